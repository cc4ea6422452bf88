"""The recorder of all processes: events go into memory, threads of its own write them to the sinks.

Each sink has its own queue and its own thread, so that a stuck one costs the others nothing. Events that do
not fit, or that a sink refuses, are dropped and counted by reason. No send is delayed, and `record` never
raises.

    Exception
     ├─ SinkAway      the batch may go through later: it is kept, and the sink opened again with back-off
     ├─ SinkBroken    the sink took the batch and counted its losses; it is opened again
     └─ any other     the sink took nothing of this batch: dropped, and the sink opened again
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog

from tracing.drops import CLOSED, CLOSING, FULL, REFUSED, UNFINISHED
from tracing.drops import Drops as Drops
from tracing.events import TraceEvent

log = structlog.get_logger(__name__)

FLUSH_S: Final = 0.5
BATCH: Final = 500
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0
_CLOSE_S = 5.0


class SinkAway(Exception):
    """The sink cannot write now; the text names the cause."""


class SinkBroken(Exception):
    """The sink took the batch and counted what it lost of it, but must be opened again."""


class Sink(Protocol):
    """Writes batches somewhere. One thread opens, uses and closes it."""

    def write(self, events: Sequence[TraceEvent]) -> None:
        """Writes the batch. Raises SinkAway where a repeat may help, SinkBroken after it took the batch;
        after any other error nothing of the batch was taken."""

    def close(self, timeout_s: float, last: bool = False) -> None:
        """Finishes writes under way, within the time; called once. `last`: no other sink follows, and each
        event was written or counted."""


OpenSink = Callable[[Drops], Sink]
"""Opens a sink; the sink adds its own losses to the drops."""


def log_drops(lost: Mapping[str, int]) -> None:
    """Logs events that a process lost."""
    log.warning("trace_events_dropped", **lost)


class QueuedRecorder:
    """Takes events from any thread and hands them to every sink's own queue."""

    def __init__(
        self,
        sinks: Mapping[str, OpenSink],
        *,
        buffer: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.drops = Drops(monotonic, log_drops)
        self._monotonic = monotonic
        self._queues = [
            _SinkQueue(name, open_sink, buffer=buffer, drops=self.drops, monotonic=monotonic)
            for name, open_sink in sinks.items()
        ]

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Hands events over; they must not change afterwards. Never blocks, never raises."""
        if events:
            for queue in self._queues:
                queue.put(events)

    def dropped(self) -> Mapping[tuple[str, str], int]:
        return self.drops.counts()

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes buffered events, for at most `timeout_s` seconds in all; idempotent."""
        deadline = self._monotonic() + timeout_s
        for queue in self._queues:
            queue.finish(deadline)
        for queue in self._queues:
            queue.join()


class _SinkQueue:
    """One sink, its queue, and the thread that opens, uses and closes it."""

    def __init__(
        self,
        name: str,
        open_sink: OpenSink,
        *,
        buffer: int,
        drops: Drops,
        monotonic: Callable[[], float],
    ) -> None:
        self._name = name
        self._open = open_sink
        self._buffer = buffer
        self._drops = drops
        self._monotonic = monotonic
        self._changed = threading.Condition()
        # Guarded by _changed: `put` adds on any thread, `_take` takes on our own.
        self._queue: deque[Sequence[TraceEvent]] = deque()
        self._held = 0  # events queued or in hand
        self._deadline: float | None = None  # `finish` sets it once: by then all must be written
        self._abandoned = False  # `join` sets it: the time was over with a batch in hand
        # Written by `_run` and its steps alone, on our own thread.
        self._batch: list[TraceEvent] = []
        self._wait_s = _FIRST_WAIT_S
        self._failing = False
        self._ended = False
        self._thread = threading.Thread(target=self._run, name=f"trace-{name}", daemon=True)
        self._thread.start()

    def put(self, events: Sequence[TraceEvent]) -> None:
        """Queues the events, or counts them as lost."""
        with self._changed:
            fits = self._deadline is None and self._held + len(events) <= self._buffer
            if fits:
                self._queue.append(events)
                self._held += len(events)
                if self._held >= BATCH:
                    self._changed.notify()
            else:  # counted under the lock: the last record must not miss it
                reason = FULL if self._deadline is None else CLOSED
                self._drops.count(self._name, reason, len(events))
        if not fits:
            self._drops.tell()

    def finish(self, deadline: float) -> None:
        """Ends the queue: takes nothing more, and writes until `deadline`."""
        with self._changed:
            if self._deadline is None:
                self._deadline = deadline
            self._changed.notify()

    def join(self) -> None:
        """Waits for the end. Counts events not written by the deadline as lost."""
        self._thread.join(self._left_s())
        with self._changed:
            self._abandoned = self._thread.is_alive()
            in_hand = min(len(self._batch), self._held) if self._abandoned else 0
            self._drops.count(self._name, UNFINISHED, in_hand)
            self._held -= in_hand
            self._count_left()
        self._drops.tell()

    def _run(self) -> None:
        while not self._over():
            try:
                self._serve()
            except Exception as exc:  # after any error the sink is opened again
                self._failed(exc)
        if not self._ended and self._left_s() > 0:
            with suppress(Exception):  # all is written or counted: a sink that fails loses nothing
                self._serve()

    def _serve(self) -> None:
        sink = self._open(self._drops)
        try:
            while self._take():
                self._write(sink)
            self._ended = self._count_left()
        finally:
            sink.close(min(self._left_s(), _CLOSE_S), self._ended)

    def _count_left(self) -> bool:
        """Counts unwritten events as lost: the time is over. Returns False if `join` gave up before, with a
        batch in hand."""
        with self._changed:
            lost, self._held = self._held, 0
            self._queue.clear()
            if lost:
                self._drops.count(self._name, CLOSING, lost)
            return not self._abandoned

    def _take(self) -> bool:
        """Waits for a batch. Returns False if none will come."""
        with self._changed:
            if not self._batch:
                self._changed.wait_for(self._is_due, timeout=FLUSH_S)
                while self._queue and len(self._batch) < BATCH:
                    self._batch.extend(self._queue.popleft())
        return not self._over()

    def _is_due(self) -> bool:
        return self._held >= BATCH or self._deadline is not None

    def _write(self, sink: Sink) -> None:
        if not self._batch:
            return
        try:
            sink.write(self._batch)
        except SinkAway:
            raise
        except SinkBroken:
            self._forget()
            raise
        except Exception:  # any other error: the sink will never take this batch
            self._drops.add(self._name, REFUSED, len(self._batch))
            self._forget()
            raise
        self._forget()
        if self._failing:
            log.info("trace_sink_back", sink=self._name)
        self._failing, self._wait_s = False, _FIRST_WAIT_S

    def _forget(self) -> None:
        with self._changed:
            self._held = max(0, self._held - len(self._batch))
            self._batch = []

    def _failed(self, exc: Exception) -> None:
        """Logs the first failure, then waits, longer each time; only briefly after `finish`."""
        if not self._failing:
            expected = isinstance(exc, SinkAway | SinkBroken)
            log.warning(
                "trace_sink_failed",
                sink=self._name,
                cause=str(exc),
                exc_info=None if expected else exc,
            )
        self._failing = True
        with self._changed:
            if self._deadline is None:
                self._changed.wait_for(lambda: self._deadline is not None, timeout=self._wait_s)
            else:
                self._changed.wait(min(_FIRST_WAIT_S, self._left_s()))
        self._wait_s = min(self._wait_s * 2, _LONGEST_WAIT_S)

    def _over(self) -> bool:
        """Returns True after `finish` once all is written or time is up."""
        with self._changed:
            if self._deadline is None:
                return False
            return self._held == 0 or self._monotonic() >= self._deadline

    def _left_s(self) -> float:
        if self._deadline is None:
            return _CLOSE_S
        return max(0.0, self._deadline - self._monotonic())
