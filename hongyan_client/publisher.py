"""Publishes records and waits for Kafka's acknowledgement of each; the buffer is bounded.

`publish` hands a record to librdkafka. While the buffer is full it blocks, until the caller's deadline. No
record is dropped and no thread is started for one.

The holder of the poll lock polls librdkafka, ends the records and runs their callbacks. That is the thread
of the publisher, or a thread inside `publish` or `flush`: a busy caller then pays no switch of threads.

A fatal error of the idempotent producer ends its records as in doubt; a new producer takes over. While
librdkafka refuses to open one, the publisher takes nothing and tries again. Callbacks run without the
publisher's lock, and may publish.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hongyan_client.delivery_errors import refusal
from hongyan_client.errors import BufferFull, ClientClosed, WrongProperties
from hongyan_client.kafka_log import KafkaLog
from hongyan_client.record_ages import AGELESS, RecordAges
from hongyan_client.record_report import BufferUse, EndReport, NumberedReport, RecordReport
from hongyan_client.records import Acknowledged, OnBatchEnd, OnEnd, Record, RecordParts
from hongyan_client.sends.pending_result import PendingResult
from message.producer_properties import (
    DELIVERY_TIMEOUT_MS,
    MAX_MESSAGE_BYTES,
    REASON,
    SAFE,
    SAFE_PRODUCER,
    Property,
    refused_property,
    request_timeout_ms,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

log = logging.getLogger("hongyan_client")

_POLL_S: Final = 0.1
_TOGETHER_MARGIN_S: Final = 30.0
"""librdkafka's own timeout, which ends records one by one, is so much longer."""
POLL_EVERY: Final = 64
"""Records between two polls of a busy caller."""
ANY, NOW = -1, 0
"""Partition and time of a record as librdkafka chooses them."""
_CALLER_POLLS_S: Final = 0.003
"""Seconds after a caller's poll for which the publisher's thread leaves the polling to callers."""
_DRIVER_POLLS_S: Final = 0.02
"""The same while callers hand over batches: each look of the thread takes the interpreter from them."""
_BUSY_S, _BUSY_POLL_S = 0.5, 0.005
"""So long after a caller's poll the thread polls in short turns: `close` often comes then, and waits for
the end of one."""
_BEING_REPORTED: Final = 64
"""Room in librdkafka's buffer beside the limit: it counts a record until its report has returned, and the
report may publish another one. One would do."""
_PURGE_S: Final = 5.0
_REOPEN_S: Final = 1.0
"""Pause after librdkafka refused to open a new producer."""
EXIT_S: Final = 10.0
"""Longest wait for Kafka where a process ends without `close`."""
_LOG_LEVEL: Final = 4  # syslog's "warning"
_open_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()


class BufferLimits(NamedTuple):
    """Bounds of the records without an acknowledgement."""

    records: int = 20_000
    bytes: int = 32 << 20


DEFAULT_LIMITS: Final = BufferLimits()


MayPass = Callable[[str, bytes | None], bool]
"""Asked with topic and key, under the publisher's lock: may a record go to Kafka now?"""


class MustWait(Exception):
    """`may_pass` held the record back: an earlier one of its key is not in Kafka yet."""


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
        together: bool = False,
    ) -> None:
        """Connects by itself, later: a broker that is away prevents no start. `properties`: further
        properties of librdkafka (TLS, SASL). `together`: when one record is older than the delivery
        timeout, all open ones end with it, so that none overtakes it. Raises WrongProperties."""
        own_s = delivery_timeout_s + (_TOGETHER_MARGIN_S if together else 0)
        self._config = producer_config(bootstrap, client_id, properties or {}, own_s, limits)
        self.limits = limits
        self._most_records, self._most_bytes = limits
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._poll_lock = threading.Lock()
        self._poller = 0  # written by the holder of the poll lock: its thread
        self.use = BufferUse(RecordAges(delivery_timeout_s) if together else None)
        self._waiters = 0  # written under the lock
        self._drivers = 0  # callers inside `driven`; written under the lock
        self._polled_at = 0.0  # written by callers that polled; a lost write does no harm
        self._fatal = False  # a new producer is due; written by the holder of the poll lock
        self._closed = ""  # the reason; written by `close` under the lock, or after a fork
        self._shut = False  # `take` takes nothing; written under the lock, or after a fork
        self._stopping = (
            False  # written by `close`, or after a fork; read by the publisher's thread
        )
        self._kafka_log = KafkaLog()
        self._client = self._opened()  # replaced under both locks
        self._former: Producer | None = None  # purged; written by the holder of the poll lock
        self._reopen_at = (
            0.0  # 0: no new producer was refused; written by the holder of the poll lock
        )
        self._thread = threading.Thread(target=self._run, name="hongyan-publisher", daemon=True)
        self._thread.start()
        _open_publishers.add(self)
        atexit.register(self._close_at_exit)

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """Returns the acknowledgement to come; it fails with NotDelivered or SendInDoubt. Records of one
        key arrive in the order of the calls. Blocks while the buffer is full, for at most `deadline_s`
        seconds; never in a callback of a future. Raises BufferFull, ClientClosed."""
        future: PendingResult[Acknowledged] = PendingResult()
        self.publish_to(record, future.end, deadline_s)
        return future

    def publish_to(self, record: Record, on_end: OnEnd, deadline_s: float) -> None:
        """Like `publish`, with a function in place of the future."""
        parts = (record.topic, record.key, record.value, list(record.headers))
        self.take_by(EndReport(self.use, record.size, 0, on_end), parts, deadline_s)

    def take_by(
        self,
        report: RecordReport,
        parts: RecordParts,
        deadline_s: float,
        may_pass: MayPass | None = None,
    ) -> None:
        """Like `publish_to`, for callers that know the size and want librdkafka's report itself. The
        headers are a list. Raises MustWait where `may_pass` returns False."""
        if not self.take(report, parts, may_pass):
            until = time.monotonic() + deadline_s
            self._await_room(until, deadline_s)
            while not self.take(report, parts, may_pass):
                self._await_room(until, deadline_s)
        if not self.use.taken % POLL_EVERY:
            self.poll_now()

    def poll_now(self) -> None:
        """Ends the records that librdkafka reports now. For callers that use `take`, every `POLL_EVERY`
        records: the publisher's thread leaves the polling to them."""
        self._polled_at = time.monotonic()
        self._poll(0)

    def publish_batch(
        self, records: Sequence[Record], on_end: OnBatchEnd, deadline_s: float
    ) -> int:
        """Publishes records in their order, without a future for each. `on_end` gets the place of a record
        in `records`, and None or its failure. Blocks while the buffer is full, for at most `deadline_s`
        seconds. Returns the number of records taken: the first ones; the others are not sent."""
        until = time.monotonic() + deadline_s
        taken = 0

        try:
            with self.driven():
                for record in records:
                    topic, key, value, headers = record
                    parts = (topic, key, value, list(headers))
                    report = NumberedReport(self.use, record.size, 0, on_end, taken)
                    while not self.take(report, parts):
                        self._await_room(until, deadline_s)
                    taken += 1
                    if not taken % POLL_EVERY:
                        self.poll_now()
        except (BufferFull, ClientClosed):
            pass
        self.poll_now()
        return taken

    @property
    def unacknowledged(self) -> int:
        """Records taken and not ended."""
        return self.use.taken - self.use.done

    def flush(self, timeout_s: float) -> int:
        """Waits for the acknowledgements, at most `timeout_s` seconds. Returns the number of records
        without one."""
        until = time.monotonic() + timeout_s
        while self.unacknowledged and (left := until - time.monotonic()) > 0:
            if self._poller == threading.get_ident():
                break
            self._poll_or_wait(left)
        return self.unacknowledged

    def await_ends(self, timeout_s: float) -> bool:
        """Polls, or waits for the thread that polls, until some records ended or the time is over. Returns
        False in a callback, where nobody else can poll."""
        if self._poller == threading.get_ident():
            return False
        self._poll_or_wait(timeout_s)
        return True

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Inside, a caller polls often by itself: the publisher's thread looks only now and then."""
        with self._lock:
            self._drivers += 1
        try:
            yield
        finally:
            with self._lock:
                self._drivers -= 1

    def close(self, timeout_s: float = EXIT_S) -> int:
        """Waits like `flush`, then ends the rest as in doubt. Returns their number; idempotent.
        Never call it in a callback of a future."""
        with self._lock:
            self._closed = self._closed or "the publisher is closed; open another one"
            self._shut = True
        atexit.unregister(self._close_at_exit)
        if self._stopping:
            return 0
        left = self.flush(timeout_s)
        self._stopping = True
        if self._thread.is_alive():
            self._thread.join(_PURGE_S + 2 * _POLL_S)
        else:  # an error ended it
            self._end_rest()
        return left

    def take(
        self, report: RecordReport, parts: RecordParts, may_pass: MayPass | None = None
    ) -> bool:
        """Hands the record to librdkafka if it fits. Returns False if it does not, or if a new producer
        must take over first. A refused record is reported at once. Raises ClientClosed, and MustWait.
        Where records end together, nothing is taken before all of them are reported."""
        use, size = self.use, report.size
        topic, key, value, headers = parts
        with self._lock:
            if self._shut:
                return self._not_taken()
            if may_pass is not None and not may_pass(topic, key):
                raise MustWait
            if use.taken - use.done >= self._most_records or (
                use.taken_bytes - use.done_bytes + size > self._most_bytes
                and (size <= self._most_bytes or use.taken != use.done)
            ):
                return False
            ages = use.ages if report.age != AGELESS else None
            if ages is not None:
                report.age = use.age  # the holder of the poll lock may write this one meanwhile
            try:
                # By place: names cost a dictionary for each record.
                self._client.produce(topic, value, key, ANY, report, None, NOW, headers)  # type: ignore[arg-type]
            except Exception as exc:
                if (refused := refusal(exc)) is None:
                    return False
            else:
                use.taken += 1
                use.taken_bytes += size
                if ages is not None:
                    ages.taken(report.age)
                return True
        report.end(refused, None)
        return True

    def _not_taken(self) -> bool:
        """Returns False: a new producer takes over. Raises ClientClosed."""
        if self._closed:
            raise ClientClosed(self._closed)
        return False

    def _await_room(self, until: float, deadline_s: float) -> None:
        """Waits until records ended. Raises BufferFull at the deadline; up to `_PURGE_S` later while a new
        producer takes over."""
        takes_over = self._shut and not self._reopen_at
        left = until - time.monotonic() + (_PURGE_S if takes_over else 0)
        if left <= 0 or self._poller == threading.get_ident():
            raise self.buffer_full(deadline_s)
        self._poll_or_wait(left)

    def buffer_full(self, deadline_s: float) -> BufferFull:
        """Returns the error of a caller that waited `deadline_s` seconds for room."""
        return BufferFull(
            f"Kafka acknowledged too little within {deadline_s:g} s, and the buffer of "
            f"{self.limits.records} records and {self.limits.bytes >> 20} MiB is full; "
            "is the broker reachable?"
        )

    def _poll_or_wait(self, left_s: float) -> None:
        """Polls, or waits for the thread that polls now."""
        self._polled_at = time.monotonic()
        if self._poll(min(left_s, _POLL_S)):
            return
        with self._lock:
            self._waiters += 1
            self._room.wait(min(left_s, _POLL_S))
            self._waiters -= 1

    def _poll(self, timeout_s: float) -> bool:
        """Ends the records that librdkafka reports. Returns False if another thread polls."""
        if self._poll_lock.locked():
            return False
        # A signal's handler may raise anywhere: only `with` leaves no lock held then.
        with self._poll_lock:
            try:
                self._poller = threading.get_ident()
                self._client.poll(timeout_s)
                self._kafka_log.acknowledged(self.use.done - self.use.failed)
                if (ages := self.use.ages) is not None:
                    self.use.age = ages.now()
                    self._fatal = self._fatal or ages.is_overdue()
                if self._fatal:
                    self._renew()
            finally:
                self._poller = 0
        if self._waiters:
            with self._lock:
                self._room.notify_all()
        return True

    def _run(self) -> None:
        """Polls while no caller does, until `close`. Then ends the records that are left."""
        while not self._stopping:
            leave_s = _DRIVER_POLLS_S if self._drivers else _CALLER_POLLS_S
            idle_s = time.monotonic() - self._polled_at
            poll_s = _BUSY_POLL_S if idle_s < _BUSY_S else _POLL_S
            if idle_s < leave_s or not self._poll(poll_s):
                time.sleep(leave_s)
        self._end_rest()

    def _end_rest(self) -> None:
        """Ends the open records as in doubt. Nothing is taken any more."""
        with self._poll_lock:
            self._poller = threading.get_ident()
            with self._lock:  # a record that is being taken now is among them
                self._client.purge()
            for client in filter(None, (self._former, self._client)):
                self._report_ends(client)
            self._poller = 0
        with self._lock:
            self._room.notify_all()

    def take_back(self) -> bool:
        """Ends all open records as in doubt. Returns False in a callback, where nobody can poll."""
        if self._poller == threading.get_ident():
            return False
        with self._poll_lock:
            self._poller = threading.get_ident()
            try:
                self._renew()
            finally:
                self._poller = 0
        return True

    def _renew(self) -> None:
        """Takes the open records back and opens a new producer: a purge leaves gaps in the old one's
        sequence. Without a new one nothing is taken, and the next poll tries again. Call with the poll
        lock. After an exception, as of a signal, the next poll goes on."""
        if self._former is None:
            self._replace()
        if self._former is not None:
            self._report_ends(self._former)
        with self._lock:
            refused = self._former is self._client
            self._former = None
            self._fatal = refused
            self._shut = refused or bool(self._closed)
            self._room.notify_all()

    def _replace(self) -> None:
        """Purges the producer and puts a new one in its place, if librdkafka opens one. The old one's
        records are yet to end."""
        fresh = self._opened_again()
        with self._lock:
            self._fatal = True
            self._shut = self._shut or fresh is None or self.use.ages is not None
            self._client.purge()
            self._former = self._client
            if fresh is not None:
                self._client = fresh

    def _opened_again(self) -> Producer | None:
        """Returns a new producer. None if librdkafka refuses one, as while a CA file is exchanged, or
        refused one less than `_REOPEN_S` ago."""
        if time.monotonic() < self._reopen_at:
            return None
        try:
            fresh = self._opened()
        except WrongProperties as exc:
            if not self._reopen_at:
                log.error("no new producer could be opened: %s; further tries are not logged", exc)
            self._reopen_at = time.monotonic() + _REOPEN_S
            return None
        if self._reopen_at:
            log.warning("a new producer was opened; records go to Kafka again")
        self._reopen_at = 0.0
        return fresh

    def _report_ends(self, client: Producer) -> None:
        """Ends the records of a purged producer. Call with the poll lock alone: callbacks run."""
        until = time.monotonic() + _PURGE_S
        while len(client) and time.monotonic() < until:
            client.poll(_POLL_S)

    def _opened(self) -> Producer:
        from confluent_kafka import KafkaException
        from confluent_kafka import Producer as KafkaProducer

        config = {**self._config, "logger": self._kafka_log, "error_cb": self._on_error}
        try:
            return KafkaProducer(config)
        except (KafkaException, TypeError, ValueError) as exc:
            cause = exc.args[0] if exc.args else exc
            text = cause.str() if hasattr(cause, "str") else cause
            raise WrongProperties(f"properties: {text}; correct or remove the property") from exc

    def _on_error(self, error: KafkaError) -> None:
        """Notes errors of no single record. Runs in the thread that holds the poll lock."""
        self._fatal = self._fatal or error.fatal()
        self._kafka_log.error(error)

    def _close_at_exit(self) -> None:
        if left := self.close():
            log.error("the process ends with %d records that Kafka did not acknowledge", left)

    def forget_after_fork(self) -> None:
        """Refuses records in a forked child, where no thread polls."""
        self._closed = (
            "the process was forked after the publisher was opened; open one in the child"
        )
        self._shut = self._stopping = True
        self._lock = threading.Lock()
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
        # Two tries fit: one slow answer of the broker is not a record's end.
        "request.timeout.ms": request_timeout_ms(int(delivery_timeout_s * 1_000)),
        **properties,
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "delivery.timeout.ms": int(delivery_timeout_s * 1_000),
        "queue.buffering.max.messages": limits.records + _BEING_REPORTED,
        "queue.buffering.max.kbytes": 2 * max(limits.bytes, MAX_MESSAGE_BYTES) >> 10,
    }


def _forked() -> None:
    for publisher in list(_open_publishers):
        publisher.forget_after_fork()


os.register_at_fork(after_in_child=_forked)
