"""Announces acknowledged notifications in the trace topic (tracing/accepted_events.py).

Events wait in a bounded queue; one thread writes them, through the client's publisher. They never delay or
fail a send: a trace topic that takes nothing gets an eighth of the publisher's buffer, and its old records
take none of the others back. Events that did not fit, or that Kafka did not acknowledge, are counted; the
headers of the records make each loss visible to readers (tracing/record_headers.py).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from hongyan_client.errors import ClientError, SendFailed
from hongyan_client.publisher import Publisher
from hongyan_client.record_ages import AGELESS
from hongyan_client.record_report import EndReport
from hongyan_client.records import Acknowledged, Record
from tracing.drops import CLOSED, CLOSING, FULL, REFUSED, Drops
from tracing.events import TraceEvent
from tracing.record_headers import record_headers
from tracing.trace_records import NO_EVENTS, RECORD_EVENTS, SINK, TraceLife, records

log = logging.getLogger("hongyan_client")

BUFFER_EVENTS: Final = 20_000
_FLUSH_S: Final = 0.5
_PATIENCE_S: Final = 1.0
"""Seconds of waiting for room in the publisher's buffer."""
_UNREACHABLE: Final = "unreachable"
_SHARE: Final = 8


def _log_drops(lost: Mapping[str, int]) -> None:
    log.warning("trace events were lost: %s", ", ".join(f"{k} {n}" for k, n in lost.items()))


class AcceptedRecorder:
    """Takes events from any thread, and writes them from its own."""

    def __init__(self, publisher: Publisher, topic: str, process: str) -> None:
        """`process` names the life in the trace."""
        self._publisher = publisher
        self._most_open = publisher.limits.bytes // _SHARE
        self._topic = topic
        self._drops = Drops(report=_log_drops)
        self._life = TraceLife(process)  # used by our thread alone
        self._changed = threading.Condition()
        # Guarded by _changed: `record` adds on any thread, `_take` takes on ours.
        self._queue: deque[TraceEvent] = deque()
        self._until: float | None = None  # set once, by `close`
        self._open_bytes = 0  # without an acknowledgement: our thread adds, `_ended` takes off
        self._waits_for_room = False  # written by our thread
        self._thread = threading.Thread(target=self._run, name="hongyan-trace", daemon=True)
        self._thread.start()

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Queues the events, or counts them as lost."""
        with self._changed:
            if self._until is None and len(self._queue) + len(events) <= BUFFER_EVENTS:
                before = len(self._queue)
                self._queue.extend(events)
                if before < RECORD_EVENTS <= len(self._queue):
                    self._changed.notify()
                return
            self._drops.count(SINK, FULL if self._until is None else CLOSED, len(events))
        self._drops.tell()

    def dropped(self) -> dict[str, int]:
        """Returns the events lost since the start, by reason."""
        return {reason: count for (_sink, reason), count in self._drops.counts().items()}

    def close(self, timeout_s: float) -> None:
        """Writes queued events for at most `timeout_s` seconds, then ends the life; idempotent. The
        publisher's `flush` waits for their acknowledgements."""
        with self._changed:
            if self._until is None:
                self._until = time.monotonic() + timeout_s
            self._changed.notify()
        self._thread.join(timeout_s + 2 * _PATIENCE_S)

    def _run(self) -> None:
        while events := self._taken():
            self._write(events)
        with self._changed:
            self._drops.count(SINK, CLOSING, len(self._queue))
            self._queue.clear()
        if self._life.numbered or self._drops.unwritten(SINK):
            self._publish(0, NO_EVENTS, self._life.numbered, end=True)

    def _taken(self) -> list[TraceEvent]:
        """Waits for events. Returns none once `close` was called and all are written or its time is up."""
        with self._changed:
            while self._until is None and len(self._queue) < RECORD_EVENTS:
                if not self._changed.wait(_FLUSH_S) and self._queue:
                    break
            self._await_room()
            if self._is_over():
                return []
            return [self._queue.popleft() for _ in range(min(len(self._queue), RECORD_EVENTS))]

    def _await_room(self) -> None:
        """Waits while Kafka has not acknowledged the trace's share of the buffer. Needs `_changed`."""
        self._waits_for_room = True
        while self._open_bytes >= self._most_open and not self._is_over():
            self._changed.wait(_FLUSH_S)
        self._waits_for_room = False

    def _is_over(self) -> bool:
        """Whether the time that `close` gave is over."""
        return self._until is not None and time.monotonic() >= self._until

    def _write(self, events: Sequence[TraceEvent]) -> None:
        try:
            made = list(records(events))
        except Exception:  # no number was given yet: counted as refused
            log.exception("trace events could not be encoded")
            self._drops.add(SINK, REFUSED, len(events))
            return
        for count, value in made:
            self._publish(count, value, self._life.take(count))

    def _publish(self, count: int, value: bytes, first: int, *, end: bool = False) -> None:
        headers = record_headers(self._life.name, first, self._drops.unwritten(SINK), end=end)
        record = Record(self._topic, None, value, headers)
        on_end = partial(self._ended, count, record.size)
        report = EndReport(self._publisher.use, record.size, AGELESS, on_end)
        self._note_open(record.size)
        try:
            self._publisher.take_by(report, (self._topic, None, value, headers), _PATIENCE_S)
        except ClientError:
            self._note_open(-record.size)
            self._drops.add(SINK, _UNREACHABLE, count)

    def _note_open(self, size: int) -> None:
        """Counts a record that was taken, or with a negative size one that ended."""
        with self._changed:
            self._open_bytes += size
            if size < 0 and self._waits_for_room:
                self._changed.notify()

    def _ended(self, count: int, size: int, end: Acknowledged | SendFailed) -> None:
        """Notes the end of a record. Runs in the thread that polls; for a refused record in ours."""
        self._note_open(-size)
        if isinstance(end, SendFailed):
            self._drops.add(SINK, end.code, count)
