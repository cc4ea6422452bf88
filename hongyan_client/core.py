"""The part that the client and its asyncio twin share: from a notification to its record's end.

compose ─▶ record ─▶ publisher's buffer ─▶ acknowledged
                         │ full, failed, or an earlier one of its key waits
                         ▼
                     overflow (spool) ─▶ later, in order
"""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final

from hongyan_client.accepted_recorder import AcceptedRecorder
from hongyan_client.composition import encoded, refused
from hongyan_client.errors import BufferFull, ClientError, SendFailed, WrongNotification
from hongyan_client.hot_keys import KeyShares
from hongyan_client.metrics import (
    ACKNOWLEDGED,
    SPOOLED,
    ClientFigures,
    EndCounts,
    Observer,
    SendEnd,
)
from hongyan_client.options import ClientOptions
from hongyan_client.overflow import OpenOverflow, Overflow
from hongyan_client.overflow_queue import OverflowQueue
from hongyan_client.publisher import EXIT_S, POLL_EVERY, MayPass, MustWait, Publisher
from hongyan_client.records import OVERHEAD, Record, RecordParts
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_result import PendingResult
from hongyan_client.sends.pending_send import (
    PendingSend,
    SendResult,
    SentNotification,
    SingleReport,
)
from hongyan_client.sends.send_batch import SendBatch, SendReport
from hongyan_client.traceparent import CONTEXTS, current
from message.envelope import MAX_ID, EnvelopeError, Notification, encode
from message.producer_properties import Property
from message.receiver_hash import hasher
from message.trace_context import HEADER, trace_context
from message.vocabulary import trace_topic
from tracing.accepted_events import AcceptedPlace, accepted_events

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger("hongyan_client")

_ID_HEADER: Final = "hongyan-id"
_SPENT: Final = OVERHEAD + len(_ID_HEADER) + MAX_ID
_CONTEXT_BYTES: Final = len(HEADER) + 55
_CODE_UNKNOWN = "error"
_LOOK_S, _PAUSE_S = 0.05, 0.005
_KEEP_S: Final = 5.0
"""Shortest time that `close` gives the overflow for what Kafka did not take."""


Wired = tuple[RecordParts, int, LaneRoute]
"""A notification in its wire form: the record, its bytes in the buffer, about, and its lane."""


class ClientCore:
    """One publisher, one trace, and the overflow if there is one. Safe from any thread."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        topic_prefix: str,
        properties: Mapping[str, Property],
        options: ClientOptions,
        overflow: OpenOverflow | None,
        observer: Observer | None,
    ) -> None:
        options.check()
        self.options = options
        self._client_id = client_id
        self._prefix = topic_prefix
        self._observer = observer
        self._hash_receiver = hasher(options.hash_key)
        self._routes: dict[tuple[str, str], LaneRoute] = {}  # any thread adds one that is missing
        self._counts = EndCounts()
        self._shares = KeyShares(options.hot_share)
        self.publisher = Publisher(
            bootstrap,
            client_id=client_id,
            properties=properties,
            delivery_timeout_s=options.delivery_timeout_s,
            limits=options.limits,
            together=overflow is not None,
        )
        self._trace: AcceptedRecorder | None = None
        if options.trace:
            process = f"{client_id}-{socket.gethostname()}-{os.getpid()}"
            self._trace = AcceptedRecorder(self.publisher, trace_topic(topic_prefix), process)
        self._overflow: Overflow | None = self._opened(overflow) if overflow else None
        self._queue: OverflowQueue | None = None
        self._may_pass: MayPass | None = None
        if self._overflow is not None:
            self._queue = OverflowQueue(self._overflow, options.limits.records)
            self._may_pass = self._queue.may_pass
        self.watched = self._trace is not None or observer is not None
        self._pid = os.getpid()
        atexit.register(self._close_at_exit)  # after the publisher's: it runs before that

    def _opened(self, overflow: OpenOverflow) -> Overflow:
        """Returns the opened overflow. If it cannot be opened, ends what this client has started: its
        caller gets no client to close."""
        try:
            return overflow(self.publisher)
        except BaseException:  # also of a signal: nobody else can close them
            if self._trace is not None:
                self._trace.close(0)
            self.publisher.close(0)
            raise

    @property
    def has_overflow(self) -> bool:
        """Whether a record that Kafka does not take goes to the overflow."""
        return self._queue is not None

    def prepared(
        self, notification: Notification, traceparent: str | None
    ) -> tuple[PendingSend, PendingResult[SentNotification], Wired]:
        """Returns the send of a notification, its future and its wire form. Raises WrongNotification."""
        context = current() if traceparent is None else trace_context(traceparent)
        wired = self._wired(notification, context)
        future: PendingResult[SentNotification] = PendingResult()
        started = monotonic()
        send = PendingSend(notification, wired[2], context, started, self, future.end)
        return send, future, wired

    def enqueue(
        self,
        send: PendingSend,
        wired: Wired,
        deadline_s: float,
        *,
        last: bool = True,
        spill_s: float | None = None,
    ) -> None:
        """Hands a send to the buffer, or to the overflow once the deadline is over. Raises BufferFull,
        ClientClosed. With `last` False BufferFull comes before the overflow is asked. `spill_s`: longest
        wait for room in the overflow's queue; None: as long as for the buffer."""
        parts, size, route = wired
        self._counts.begin()
        try:
            try:
                report = SingleReport(self.publisher.use, size, 0, send)
                self.publisher.take_by(report, parts, deadline_s, self._may_pass)
            except (MustWait, BufferFull) as exc:
                if self._queue is None or (isinstance(exc, BufferFull) and not last):
                    raise
                self._spill(
                    self._queue, send, parts, deadline_s if spill_s is None else spill_s, exc
                )
        except BaseException:  # also of a signal: the send has no end to be counted
            self._counts.withdraw()
            raise
        self._shares.note(route.name, send.notification.ordering_key)

    def send_all(self, notifications: Iterable[Notification], until: float) -> SendBatch:
        """Hands all over and waits for their ends until `until` (monotonic seconds). Refused sends have
        their error as end; the end None is still to come."""
        batch = SendBatch(self, self.publisher.use)
        taken = self.publisher.take if self._may_pass is None else self._taken_in_turn
        modules, watched, count = sys.modules, self.watched, 0
        with self._counts.of(batch), self.publisher.driven():
            for one in notifications:
                try:
                    context = current() if CONTEXTS in modules else None
                    parts, size, route = self._wired(one, context)
                    report = batch.add(route, one if watched else parts[2], one.id, size)
                    if watched or context is not None:
                        self._note_start(batch, count, context)
                    if not taken(report, parts):
                        self._send_late(report, parts, until)
                    report.lane.counted += 1
                    if one.ordering_key:
                        report.lane.keys.append(one.ordering_key)
                except BaseException as exc:  # also of a signal: it has no end to be counted
                    self._refuse(batch, count, one, exc)
                    if not isinstance(exc, ClientError):
                        raise
                count += 1
                if not count % POLL_EVERY:
                    self.publisher.poll_now()
                    batch.note_keys(self._shares)
            batch.note_keys(self._shares)
            while not batch.has_ended() and (left := until - monotonic()) > 0:
                if not self.publisher.await_ends(min(left, self._look_s())):
                    break
        return batch

    def _note_start(self, batch: SendBatch, number: int, context: str | None) -> None:
        """Keeps the start and the trace context of a send, for its end."""
        if self._observer is not None:
            batch.started[number] = monotonic()
        if context is not None:
            batch.traceparents[number] = context

    def _refuse(self, batch: SendBatch, number: int, one: Notification, why: BaseException) -> None:
        """Ends a send with the error that its caller gets; it may be in the batch already."""
        if len(batch) > number:
            batch.end(number, "", why)
        else:
            batch.refuse(one, why)
        self._counts.withdraw()  # last: others would count too few open sends

    def _taken_in_turn(self, report: SendReport, parts: RecordParts) -> bool:
        """Like the publisher's `take`; returns False, too, where an earlier record of the key waits."""
        try:
            return self.publisher.take(report, parts, self._may_pass)
        except MustWait:
            return False

    def _send_late(self, report: SendReport, parts: RecordParts, until: float) -> None:
        """Waits for room for one send of a batch, or hands it to the overflow. Raises ClientError."""
        left = max(0.0, until - monotonic())
        if self._queue is not None:
            left = min(left, self.options.deadline_s)
        try:
            self.publisher.take_by(report, parts, left, self._may_pass)
        except (MustWait, BufferFull) as exc:
            if self._queue is None:
                raise
            self._spill(self._queue, report.pending(), parts, left, exc)

    def _wired(self, notification: Notification, context: str | None) -> Wired:
        """Returns the wire form. Raises WrongNotification."""
        try:
            value = encode(notification)
        except (EnvelopeError, AttributeError, TypeError) as exc:
            raise refused(exc) from exc
        route = self._routes.get((notification.channel, notification.kind))
        if route is None:
            route = self._route_of(notification)
        ttl = notification.ttl_ms
        lasts_ms = route.ttl_ms if ttl is None else ttl
        if notification.created_at + lasts_ms <= time() * 1_000:
            raise WrongNotification(
                "expired",
                f"notification {notification.id} is past its time to live; nobody sends it",
            )
        order = notification.ordering_key
        name = notification.id.encode()
        key = order.encode() if order else name
        size = len(value) + len(key) + _SPENT
        headers = [(_ID_HEADER, name)]
        if context is not None:
            headers.append((HEADER, context.encode()))
            size += _CONTEXT_BYTES
        return (route.topic, key, value, headers), size, route

    def _wired_again(self, send: PendingSend, message: Message | None) -> tuple[Record, int]:
        """Returns the record of a send, and its `expires_at`: librdkafka's report lacks headers."""
        one, context = send.notification, send.traceparent
        value = message.value() if message is not None else None
        headers = [(_ID_HEADER, one.id.encode())]
        if context is not None:
            headers.append((HEADER, context.encode()))
        if not isinstance(value, bytes):
            value = encoded(one)
        record = Record(send.route.topic, one.kafka_key.encode(), value, headers)
        return record, self.options.expires_at(one)

    def _route_of(self, notification: Notification) -> LaneRoute:
        """Returns the route of a lane that had none yet."""
        channel, kind = notification.channel, notification.kind
        name = f"{channel}.{kind}"
        topic = f"{self._prefix}.dispatch.{name}"
        route = LaneRoute(name, topic, self.options.ttl_ms(name))
        route = self._routes.setdefault((channel, kind), route)
        self._counts.know(route)
        return route

    def _spill(
        self,
        queue: OverflowQueue,
        send: PendingSend,
        parts: RecordParts,
        deadline_s: float,
        cause: MustWait | BufferFull,
    ) -> None:
        """Hands a send to the overflow that Kafka's buffer did not take. Raises BufferFull."""
        # Records in the buffer go first. A callback cannot take them back.
        if isinstance(cause, BufferFull) and not self.publisher.take_back():
            raise cause
        send.record = Record(*parts)
        send.expires_at = self.options.expires_at(send.notification)
        queue.put_new(send, deadline_s)

    def _look_s(self) -> float:
        """Returns the seconds to wait for ends at once: few while the overflow's thread is at work."""
        return _PAUSE_S if self._queue else _LOOK_S

    def figures(self) -> ClientFigures:
        """Returns a snapshot of the figures."""
        return ClientFigures(
            ends=self._counts.by_lane_and_code(),
            buffered=self.publisher.unacknowledged,
            overflow_waiting=self._overflow.waiting() if self._overflow else 0,
            overflow_queued=len(self._queue) if self._queue is not None else 0,
            trace_dropped=self._trace.dropped() if self._trace else {},
            hot_keys=self._shares.hot(),
        )

    def flush(self, timeout_s: float) -> int:
        """Waits until each send has its end: from Kafka, or from the overflow. Returns the number
        without one."""
        until = monotonic() + timeout_s
        while self._counts.open and (left := until - monotonic()) > 0:
            self.publisher.flush(min(left, _LOOK_S))
            if self._queue is not None and self._counts.open:
                sleep(min(left, _PAUSE_S))  # the overflow's thread is at work
        return self._counts.open

    def drain(self, timeout_s: float) -> int:
        """Lets the overflow publish what it has. Returns the number that still waits there."""
        return self._overflow.drain(timeout_s) if self._overflow is not None else 0

    def close(self, timeout_s: float) -> int:
        """Flushes, writes the trace, and closes all. Returns the number of notifications that are not safe:
        those that failed meanwhile, and those without an end."""
        atexit.unregister(self._close_at_exit)
        until = monotonic() + timeout_s
        failed_before = self._counts.failed
        if self._trace is not None:
            self.flush(timeout_s)
            self._trace.close(max(0.0, until - monotonic()))
        self.publisher.close(max(0.0, until - monotonic()))
        if self._queue is not None:
            self._queue.close(max(_KEEP_S, until - monotonic()))
        if self._overflow is not None:
            self._overflow.close(max(1.0, until - monotonic()))
        return self._counts.open + self._counts.failed - failed_before

    def _close_at_exit(self) -> None:
        """Closes in the process that opened; a forked child leaves all to its parent."""
        if os.getpid() == self._pid and (left := self.close(EXIT_S)):
            log.error("the process ends with %d notifications that are not safe", left)

    def acknowledged(self, send: PendingSend, sent: SentNotification) -> None:
        """Announces an acknowledgement. Runs in the thread that polls."""
        try:
            if self._trace is not None:
                self._announce(self._trace, send, sent)
            self._observe(send, ACKNOWLEDGED)
        except Exception:  # the observer's, or a receiver that cannot be hashed
            log.exception("the end of %s could not be noted", sent.id)

    def failed(self, send: PendingSend, failure: SendFailed, message: Message | None) -> None:
        """Passes a send on to the overflow, or ends it. Runs in the thread that polls; for a refused
        record in the caller's."""
        if self._queue is None or not failure.repeatable:
            send.end(failure)
            return
        if send.record is None:
            send.record, send.expires_at = self._wired_again(send, message)
        self._queue.put(send)

    def ended(self, send: PendingSend, result: SendResult) -> None:
        """Counts an end that is no acknowledgement by Kafka."""
        code = _code_of(result)
        self._counts.add(send.route.name, code)
        try:
            self._observe(send, code)
        except Exception:  # the observer's: the end is counted all the same
            log.exception("the end of %s could not be noted", send.notification.id)

    def _observe(self, send: PendingSend, code: str) -> None:
        if self._observer is not None:
            self._observer(SendEnd(send.route.name, code, monotonic() - send.started))

    def _announce(self, trace: AcceptedRecorder, send: PendingSend, sent: SentNotification) -> None:
        at = AcceptedPlace(f"{sent.topic}/{sent.partition}/{sent.offset}", sent.timestamp_ms)
        hashed, context = self._hash_receiver, send.traceparent
        one = send.notification
        trace.record(accepted_events(one, at, self._client_id, hashed, traceparent=context))


def _code_of(result: SendResult) -> str:
    if isinstance(result, SentNotification):
        return SPOOLED
    return str(getattr(result, "code", _CODE_UNKNOWN))
