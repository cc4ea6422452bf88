"""The part that the client and its asyncio twin share: from a notification to its record's end.

compose ─▶ record ─▶ publisher's buffer ─▶ acknowledged
                         │ full, failed, or an earlier one of its key waits
                         ▼
                     overflow (spool) ─▶ later, in order
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from functools import partial

from hongyan_client.accepted_recorder import AcceptedRecorder
from hongyan_client.composition import encoded
from hongyan_client.errors import BufferFull, SendFailed, WrongNotification
from hongyan_client.hot_keys import KeyShares
from hongyan_client.metrics import ClientFigures, EndCounts, Observer, SendEnd
from hongyan_client.options import ClientOptions
from hongyan_client.overflow import OpenOverflow, Overflow
from hongyan_client.overflow_queue import OverflowQueue
from hongyan_client.pending_send import PendingSend
from hongyan_client.publisher import MustWait, Publisher
from hongyan_client.records import Acknowledged, Record
from hongyan_client.traceparent import HEADER, checked, current
from message.envelope import Notification
from message.producer_properties import Property
from message.receiver_hash import hasher
from message.vocabulary import trace_topic
from tracing.accepted_events import AcceptedPlace, accepted_events

log = logging.getLogger("hongyan_client")

_ID_HEADER = "hongyan-id"
_CODE_UNKNOWN = "error"
_LOOK_S, _PAUSE_S = 0.05, 0.005


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
        self._overflow: Overflow | None = overflow(self.publisher) if overflow else None
        self._queue: OverflowQueue | None = None
        if self._overflow is not None:
            self._queue = OverflowQueue(self._overflow, options.limits.records)

    def prepared(self, notification: Notification, traceparent: str | None) -> PendingSend:
        """Returns the send of a notification. Raises WrongNotification."""
        value = encoded(notification)
        expires_at = self.options.expires_at(notification)
        if expires_at <= time.time_ns() // 1_000_000:
            raise WrongNotification(
                "expired",
                f"notification {notification.id} is past its time to live; nobody sends it",
            )
        context = current() if traceparent is None else checked(traceparent)
        headers = [(_ID_HEADER, notification.id.encode())]
        if context is not None:
            headers.append((HEADER, context.encode()))
        topic = f"{self._prefix}.dispatch.{notification.channel}.{notification.kind}"
        record = Record(topic, notification.kafka_key.encode(), value, headers)
        started = time.monotonic()
        return PendingSend(notification, record, expires_at, context, started, self._note_end)

    def enqueue(self, send: PendingSend, deadline_s: float, *, last: bool = True) -> None:
        """Hands a send to the buffer, or to the overflow once the deadline is over. Raises BufferFull,
        ClientClosed. With `last` False BufferFull comes before the overflow is asked."""
        self._counts.begin()
        try:
            self._hand_over(send, deadline_s, last)
        except BaseException:  # also of a signal: the send has no end to be counted
            self._counts.withdraw()
            raise
        self._shares.note(send.notification.lane.name, send.notification.ordering_key)

    def _hand_over(self, send: PendingSend, deadline_s: float, last: bool) -> None:
        queue, on_end = self._queue, partial(self._ended, send)
        if queue is None:
            self.publisher.publish_to(send.record, on_end, deadline_s)
            return
        try:
            self.publisher.publish_to(send.record, on_end, deadline_s, queue.may_pass)
        except MustWait:
            queue.put_new(send, deadline_s)
        except BufferFull:
            if not last:
                raise
            self.publisher.take_back()  # what waits there goes first
            queue.put_new(send, deadline_s)

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
        until = time.monotonic() + timeout_s
        while self._counts.open and (left := until - time.monotonic()) > 0:
            self.publisher.flush(min(left, _LOOK_S))
            if self._queue is not None and self._counts.open:
                time.sleep(min(left, _PAUSE_S))  # the overflow's thread is at work
        return self._counts.open

    def drain(self, timeout_s: float) -> int:
        """Lets the overflow publish what it has. Returns the number that still waits there."""
        return self._overflow.drain(timeout_s) if self._overflow is not None else 0

    def close(self, timeout_s: float) -> int:
        """Flushes, writes the trace, and closes all. Returns the number of records without an end that is
        safe."""
        until = time.monotonic() + timeout_s
        if self._trace is not None:
            self.flush(timeout_s)
            self._trace.close(max(0.0, until - time.monotonic()))
        left = self.publisher.close(max(0.0, until - time.monotonic()))
        if self._queue is not None:
            left = self._queue.close(max(1.0, until - time.monotonic()))
        if self._overflow is not None:
            self._overflow.close(max(1.0, until - time.monotonic()))
        return left

    def _ended(self, send: PendingSend, end: Acknowledged | SendFailed) -> None:
        """Ends a send, or passes it on to the overflow. Runs in the thread that polls."""
        if isinstance(end, Acknowledged):
            send.acknowledged(end)
        elif self._queue is not None and end.repeatable:
            self._queue.put(send)
        else:
            send.fail(end)

    def _note_end(self, send: PendingSend, end: Acknowledged | BaseException | None) -> None:
        """Counts an end and announces an acknowledgement. Must not raise."""
        try:
            lane = send.notification.lane.name
            code = _code_of(end)
            self._counts.add(lane, code)
            if self._trace is not None and isinstance(end, Acknowledged):
                self._announce(self._trace, send, end)
            if self._observer is not None:
                self._observer(SendEnd(lane, code, time.monotonic() - send.started))
        except (
            Exception
        ):  # the observer's, or a receiver that cannot be hashed: the send is as it is
            log.exception("the end of %s could not be noted", send.notification.id)

    def _announce(self, trace: AcceptedRecorder, send: PendingSend, place: Acknowledged) -> None:
        origin = f"{place.topic}/{place.partition}/{place.offset}"
        at = AcceptedPlace(origin, place.timestamp_ms)
        hashed, context = self._hash_receiver, send.traceparent
        one = send.notification
        trace.record(accepted_events(one, at, self._client_id, hashed, traceparent=context))


def _code_of(end: Acknowledged | BaseException | None) -> str:
    if isinstance(end, Acknowledged):
        return "acknowledged"
    return "spooled" if end is None else str(getattr(end, "code", _CODE_UNKNOWN))
