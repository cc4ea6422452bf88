"""Publishes records and waits for Kafka's acknowledgement of each; the buffer is bounded.

`publish` hands a record to librdkafka. While the buffer is full it blocks, until the caller's deadline. No
record is dropped and no thread is started for one. One thread polls librdkafka: it ends the futures, and
runs their callbacks.

A fatal error of the idempotent producer ends its records as in doubt; a new producer takes over.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hongyan_client.delivery_errors import failure_of, refusal
from hongyan_client.errors import BufferFull, ClientClosed, WrongProperties
from hongyan_client.records import Acknowledged, Record
from message.producer_properties import (
    DELIVERY_TIMEOUT_MS,
    MAX_MESSAGE_BYTES,
    REASON,
    SAFE,
    SAFE_PRODUCER,
    Property,
    refused_property,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

log = logging.getLogger("hongyan_client")

_POLL_S: Final = 0.1
_PURGE_S: Final = 5.0
_EXIT_S: Final = 10.0
_LOG_LEVEL: Final = 4  # syslog's "warning"
_open_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


class BufferLimits(NamedTuple):
    """Bounds of the records without an acknowledgement."""

    records: int = 20_000
    bytes: int = 32 << 20


DEFAULT_LIMITS: Final = BufferLimits()


class PendingRecord(Future[Acknowledged]):
    """The acknowledgement to come. A record that librdkafka has cannot be called back."""

    def cancel(self) -> bool:
        """Returns False."""
        return False


class Publisher:
    """One idempotent producer with a bounded buffer. Safe from any thread; one for a process.

    It does not survive a fork: open it after the fork, in the process that publishes.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        properties: Mapping[str, Property] | None = None,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_MS / 1_000,
        limits: BufferLimits = DEFAULT_LIMITS,
    ) -> None:
        """Connects by itself, later: a broker that is away prevents no start. `properties`: further
        properties of librdkafka (TLS, SASL). Raises WrongProperties."""
        self._config = producer_config(
            bootstrap, client_id, properties or {}, delivery_timeout_s, limits
        )
        self._limits = limits
        self._room = threading.Condition(threading.Lock())
        self._taken = self._taken_bytes = 0  # written under the lock by `publish`
        self._done = self._done_bytes = 0  # written by the poll thread: `_ended`, `_take_back`
        self._waiters = 0  # written under the lock
        self._fatal = False  # written by the poll thread, in `_on_error` and `_renew`
        self._closed = ""  # the reason; written once, by `close` under the lock or after a fork
        self._stopping = False  # written by `close`; read by the poll thread
        self._client = self._opened()  # replaced by the poll thread under the lock
        self._thread = threading.Thread(target=self._run, name="hongyan-publisher", daemon=True)
        self._thread.start()
        _open_publishers.add(self)
        atexit.register(self._close_at_exit)

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """Returns the acknowledgement to come; it fails with NotDelivered or InDoubt. Records of one
        key arrive in the order of the calls. Blocks while the buffer is full, for at most `deadline_s`
        seconds; never in a callback of a future. Raises BufferFull, ClientClosed."""
        future = PendingRecord()
        size = min(record.size, self._limits.bytes)
        until = time.monotonic() + deadline_s
        with self._room:
            while True:
                self._await_room(size, until, deadline_s)
                if self._produced(record, size, future):
                    return future
                self._wait(until, deadline_s)

    @property
    def unacknowledged(self) -> int:
        """Records taken and not ended."""
        return self._taken - self._done

    def flush(self, timeout_s: float) -> int:
        """Waits for the acknowledgements, at most `timeout_s` seconds. Returns the number of records
        without one."""
        until = time.monotonic() + timeout_s
        with self._room:
            self._waiters += 1
            try:
                self._room.wait_for(
                    lambda: not self.unacknowledged, max(0, until - time.monotonic())
                )
            finally:
                self._waiters -= 1
            return self.unacknowledged

    def close(self, timeout_s: float = _EXIT_S) -> int:
        """Waits like `flush`, then ends the rest as in doubt. Returns their number; idempotent.
        Never call it in a callback of a future."""
        with self._room:
            self._closed = self._closed or "the publisher is closed; open another one"
        atexit.unregister(self._close_at_exit)
        if not self._thread.is_alive() or self._stopping:
            return 0
        left = self.flush(timeout_s)
        self._stopping = True
        self._thread.join(_PURGE_S + 2 * _POLL_S)
        return left

    def _await_room(self, size: int, until: float, deadline_s: float) -> None:
        """Returns once the record fits. Call with the lock."""
        while True:
            if self._closed:
                raise ClientClosed(self._closed)
            records, kept = self._taken - self._done, self._taken_bytes - self._done_bytes
            if records < self._limits.records and kept + size <= self._limits.bytes:
                return
            self._wait(until, deadline_s)

    def _wait(self, until: float, deadline_s: float) -> None:
        """Waits for the poll thread to end records. Raises BufferFull at the deadline."""
        left = until - time.monotonic()
        if left <= 0 or threading.current_thread() is self._thread:
            raise BufferFull(
                f"Kafka acknowledged too little within {deadline_s:g} s, and the buffer of "
                f"{self._limits.records} records and {self._limits.bytes >> 20} MiB is full; "
                "is the broker reachable?"
            )
        self._waiters += 1
        try:
            self._room.wait(left)
        finally:
            self._waiters -= 1

    def _produced(self, record: Record, size: int, future: Future[Acknowledged]) -> bool:
        """Hands the record to librdkafka; a refusal ends the future. Returns False while a new producer
        must take over. Call with the lock."""
        try:
            self._client.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=partial(self._ended, future, size),
            )
        except BufferError:
            return False
        except Exception as exc:
            error = refusal(exc)
            if error is None:
                return False
            future.set_exception(error)
            return True
        self._taken += 1
        self._taken_bytes += size
        return True

    def _ended(
        self, future: Future[Acknowledged], size: int, error: KafkaError | None, message: Message
    ) -> None:
        """Ends one future. Runs in the poll thread."""
        self._done += 1
        self._done_bytes += size
        if error is not None:
            future.set_exception(failure_of(error, message.topic() or ""))
            return
        place: Any = message
        future.set_result(
            Acknowledged(place.topic(), place.partition(), place.offset(), place.timestamp()[1])
        )

    def _run(self) -> None:
        """Polls until `close`, then ends what is left."""
        while not self._stopping:
            self._client.poll(_POLL_S)
            if self._fatal:
                self._renew()
            self._wake()
        with self._room:
            self._take_back()
        self._wake()

    def _wake(self) -> None:
        if self._waiters:
            with self._room:
                self._room.notify_all()

    def _renew(self) -> None:
        """Replaces the producer after a fatal error."""
        with self._room:
            self._take_back()
            self._client = self._opened()
            self._fatal = False

    def _take_back(self) -> None:
        """Ends all open records. Call with the lock, in the poll thread."""
        self._client.purge()
        until = time.monotonic() + _PURGE_S
        while self.unacknowledged and time.monotonic() < until:
            self._client.poll(_POLL_S)

    def _opened(self) -> Producer:
        from confluent_kafka import KafkaException
        from confluent_kafka import Producer as KafkaProducer

        config = {**self._config, "logger": log, "error_cb": self._on_error}
        try:
            return KafkaProducer(config)
        except (KafkaException, TypeError, ValueError) as exc:
            cause = exc.args[0] if exc.args else exc
            text = cause.str() if hasattr(cause, "str") else cause
            raise WrongProperties(f"properties: {text}; correct or remove the property") from exc

    def _on_error(self, error: KafkaError) -> None:
        """Notes errors of no single record. Runs in the poll thread."""
        self._fatal = self._fatal or error.fatal()
        level = logging.ERROR if error.fatal() else logging.WARNING
        log.log(level, "kafka: %s: %s", error.name(), error.str())

    def _close_at_exit(self) -> None:
        if left := self.close():
            log.error("the process ends with %d records that Kafka did not acknowledge", left)

    def forget_after_fork(self) -> None:
        """Refuses records in a forked child, where no thread polls."""
        self._closed = (
            "the process was forked after the publisher was opened; open one in the child"
        )
        self._room = threading.Condition(threading.Lock())
        atexit.unregister(self._close_at_exit)


def producer_config(
    bootstrap: str,
    client_id: str,
    properties: Mapping[str, Property],
    delivery_timeout_s: float,
    limits: BufferLimits = DEFAULT_LIMITS,
) -> dict[str, Any]:
    """Returns the properties of the producer. Raises WrongProperties."""
    if (refused := refused_property(properties)) is not None:
        raise WrongProperties(f"properties: {refused!r} {REASON}")
    if not bootstrap:
        raise WrongProperties("bootstrap is empty; name the brokers, as in kafka-1:9092")
    if limits.records < 1 or limits.bytes < 1:
        raise WrongProperties("limits: the buffer needs room for one record and one byte at least")
    return {
        **SAFE_PRODUCER,
        "log_level": _LOG_LEVEL,
        **SAFE,
        **properties,
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "delivery.timeout.ms": int(delivery_timeout_s * 1_000),
        # librdkafka counts a record until its report was served, so it needs a little more room.
        "queue.buffering.max.messages": 2 * limits.records,
        "queue.buffering.max.kbytes": 2 * max(limits.bytes, MAX_MESSAGE_BYTES) >> 10,
    }


def _forked() -> None:
    for publisher in list(_open_publishers):
        publisher.forget_after_fork()


os.register_at_fork(after_in_child=_forked)
