"""Reports records that Kafka removed before this worker read them.

Retention, a deleted topic or `kafka-delete-records` may remove records above the committed offset. The
worker sees only a gap in the offsets, which compaction and transaction markers leave, too. A gap that
begins below the log's first offset was removed. A thread of its own asks for that offset, for all
partitions at once, after a gap or an assignment (docs/decisions/064-removed-before-read.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from backends.kafka.clients import KafkaUnavailable
from dispatcher.kafka.offset_metadata import OffsetRange
from dispatcher.metrics import Metrics
from message.vocabulary import Lane
from sending.runtime.clock import Clock
from tracing.events import Recorder, Stage, TraceEvent

log = structlog.get_logger(__name__)

EVERY_S: Final = 1.0
MOST_GAPS: Final = 1_000
"""Most gaps of one partition between two look-ups; later ones widen the last."""
_ON: Final = 1 << 62
"""End of a gap whose end is unknown."""
_REASON: Final = "removed_by_kafka"

Place = tuple[str, int]


class LogBounds(NamedTuple):
    """A partition's first offset and its end."""

    first: int
    end: int


Bounds = Callable[[Collection[Place]], Mapping[Place, LogBounds]]
"""Asks the brokers; leaves out a missing partition. Raises KafkaUnavailable."""


class _Suspect(NamedTuple):
    """Offsets of one partition that may have been removed."""

    lane: Lane
    gaps: list[OffsetRange]
    done: Sequence[OffsetRange]
    """Runs that a predecessor completed above the committed offset."""
    committed: int | None
    """The group's committed offset at the assignment; None for a gap seen later."""


class RemovedRecords:
    """The source's thread calls `came` and `gap`; all else belongs to the thread of `run`."""

    def __init__(
        self, bounds: Bounds, *, metrics: Metrics, recorder: Recorder, clock: Clock, worker: str
    ) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._recorder = recorder
        self._clock = clock
        self._worker = worker
        self._lock = threading.Lock()  # guards the next one
        self._suspects: dict[Place, _Suspect] = {}
        self._reported: dict[Place, int] = {}
        """The offset up to which losses are reported; written by `look`."""
        self._stop = threading.Event()

    def came(self, place: Place, lane: Lane, committed: int, done: Sequence[OffsetRange]) -> None:
        """A partition was assigned at its committed offset. Returns at once."""
        with self._lock:
            gaps = [OffsetRange(committed, _ON)]
            self._suspects[place] = _Suspect(lane, gaps, done, committed)

    def gap(self, place: Place, lane: Lane, start: int, end: int) -> None:
        """No record came between these offsets. Returns at once."""
        with self._lock:
            known = self._suspects.setdefault(place, _Suspect(lane, [], (), None))
            if len(known.gaps) < MOST_GAPS:
                known.gaps.append(OffsetRange(start, end))
            else:
                known.gaps[-1] = OffsetRange(known.gaps[-1].start, end)

    def run(self) -> None:
        """Looks until `stop`, and once more."""
        while not self._stop.wait(EVERY_S):
            self.look()
        self.look()  # the last gaps are committed by now, and no other worker will see them

    def stop(self) -> None:
        """Ends the thread; idempotent."""
        self._stop.set()

    def look(self) -> None:
        """Asks about the suspected offsets; keeps them while no broker answers."""
        with self._lock:
            suspects, self._suspects = self._suspects, {}
        if not suspects:
            return
        try:
            found = self._bounds(suspects.keys())
        except KafkaUnavailable as exc:
            log.debug("log_start_not_asked", cause=str(exc))
            with self._lock:
                self._suspects = {**suspects, **self._suspects}
            return
        for place, suspect in suspects.items():
            if place in found:
                self._judge(place, suspect, found[place])

    def _judge(self, place: Place, suspect: _Suspect, bounds: LogBounds) -> None:
        reported = self._reported.get(place, 0)
        if bounds.first < reported:
            del self._reported[place]  # the log began anew since
            reported = 0
        if suspect.committed is not None and suspect.committed > bounds.end:
            self._tell_anew(place, suspect.lane, suspect.committed, bounds)
            return
        for gap in sorted(suspect.gaps):
            start, end = max(gap.start, reported), min(gap.end, bounds.first)
            if start < end:
                reported = self._reported[place] = end
                self._tell(place, suspect, OffsetRange(start, end))

    def _tell(self, place: Place, suspect: _Suspect, lost: OffsetRange) -> None:
        count = lost.end - lost.start - sum(_overlap(lost, run) for run in suspect.done)
        if count <= 0:
            return
        topic, partition = place
        lane = suspect.lane.name
        log.error(
            "records_removed",
            topic=topic,
            partition=partition,
            first=lost.start,
            last=lost.end - 1,
            offsets=count,
            what="Kafka removed them before they were read: they were not sent",
        )
        self._metrics.records_removed.labels(lane).inc(count)
        detail = f"offsets {lost.start} to {lost.end - 1} were removed before they were read"
        self._record(lane, f"{topic}/{partition}/{lost.start}", detail)

    def _tell_anew(self, place: Place, lane: Lane, committed: int, bounds: LogBounds) -> None:
        topic, partition = place
        log.error(
            "log_began_anew",
            topic=topic,
            partition=partition,
            committed=committed,
            end=bounds.end,
            what="the log ends below the committed offset (topic made anew, or cut): it is read from "
            "its start; unread records of the old one are lost",
        )
        self._metrics.logs_anew.labels(lane.name).inc()
        detail = f"the log ends at {bounds.end}, below the committed offset {committed}"
        self._record(lane.name, f"{topic}/{partition}/{committed}", detail)

    def _record(self, lane: str, origin: str, detail: str) -> None:
        event = TraceEvent(
            at=self._clock.now_ms(),
            stage=Stage.REMOVED,
            message_id="",
            lane=lane,
            worker=self._worker,
            reason=_REASON,
            detail=detail,
            origin=origin,
        )
        self._recorder.record([event])


def _overlap(one: OffsetRange, other: OffsetRange) -> int:
    return max(0, min(one.end, other.end) - max(one.start, other.start))
