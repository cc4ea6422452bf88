"""Commits: asynchronous, one at a time, with our own deadline, fenced by our own assignments.

Kafka does not fence commits by ownership, and its synchronous commit has no timeout. A position stays dirty
until the broker acknowledged it. Nothing is committed for a lost partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import structlog

from dispatcher.kafka import offset_metadata as runs
from dispatcher.pipeline.work import Assignment, PartitionState

log = structlog.get_logger(__name__)

INTERVAL_S = 0.5
DEADLINE_S = 10.0
"""A commit without an answer for so long counts as failed."""
_NO_OFFSET = "_NO_OFFSET"
_TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"


class Position(NamedTuple):
    """A partition's position in a commit."""

    offset: int
    metadata: str


class Commits:
    """Belongs to the source's thread; `acknowledged` runs inside its poll."""

    def __init__(
        self,
        consumer: Any,
        place: Callable[[str, int, int, str], Any],
        *,
        monotonic: Callable[[], float],
        count: Callable[[str], None],
        metadata_limit: int = runs.METADATA_LIMIT,
    ) -> None:
        self._consumer = consumer
        self._place = place
        self._monotonic = monotonic
        self._count = count
        self._metadata_limit = metadata_limit
        self._acknowledged: dict[Assignment, Position] = {}
        self._sent: dict[tuple[str, int], tuple[Assignment, Position]] = {}
        self._sent_at = 0.0
        self._last_at = float("-inf")

    @property
    def waiting(self) -> bool:
        """Whether a commit is under way."""
        return bool(self._sent)

    def adopt(self, assignment: Assignment, position: Position | None) -> None:
        """Notes the group's committed position of a newly assigned partition."""
        if position is not None:
            self._acknowledged[assignment] = position

    def forget(self, assignment: Assignment) -> None:
        """Forgets a lost partition."""
        self._acknowledged.pop(assignment, None)

    def is_clean(self, assignments: Iterable[Assignment]) -> bool:
        """Returns whether the broker has acknowledged every position."""
        return not self._sent and not any(self._dirty(a) for a in assignments)

    def commit_if_due(self, assignments: Iterable[Assignment], *, now: bool = False) -> None:
        """Sends dirty positions, at most every INTERVAL_S (or `now`), never beside a commit under way."""
        moment = self._monotonic()
        self._give_up_waiting(moment)
        if self._sent or (not now and moment - self._last_at < INTERVAL_S):
            return
        self._last_at = moment
        dirty = [(a, p) for a in assignments if (p := self._dirty(a)) is not None]
        if dirty:
            self._send(dirty, moment)

    def commit_leaving(self, assignments: Iterable[Assignment]) -> None:
        """Sends the last commit for partitions being revoked, at once, even beside one under way. It
        reaches the coordinator before the partition is handed on; nothing waits for its answer."""
        dirty = [(a, p) for a in assignments if (p := self._dirty(a)) is not None]
        if dirty:
            self._send(dirty, self._monotonic())

    def acknowledged(self, error: Any, places: Sequence[Any]) -> None:
        """The consumer's on_commit: a position without an error is clean."""
        too_large = False
        for place in places:
            assignment, position = self._sent.pop((place.topic, place.partition), (None, None))
            failure = place.error or error
            if failure is not None and failure.name() != _NO_OFFSET:
                self._count("failed")
                too_large |= failure.name() == _TOO_LARGE
                log.warning(
                    "commit_failed",
                    topic=place.topic,
                    partition=place.partition,
                    cause=str(failure),
                )
            elif assignment is not None and position is not None:
                self._count("ok")
                if assignment.state is not PartitionState.LOST and position.offset == place.offset:
                    self._acknowledged[assignment] = position
        if too_large:
            self._metadata_limit //= 2  # this broker's limit is lower than the default
        if error is not None and not places:
            self._sent.clear()

    def _dirty(self, assignment: Assignment) -> Position | None:
        """Returns the position to commit; None if the broker has it, or the partition is lost."""
        watermark = assignment.offsets.watermark
        if watermark is None or assignment.state is PartitionState.LOST:
            return None
        metadata = runs.encode(watermark, assignment.offsets.runs(), self._metadata_limit)
        position = Position(watermark, metadata)
        known = self._acknowledged.get(assignment)
        if known is None and assignment.offsets.untouched:
            return None
        return None if position == known else position

    def _send(self, dirty: Sequence[tuple[Assignment, Position]], moment: float) -> None:
        places = [self._place(a.topic, a.partition, p.offset, p.metadata) for a, p in dirty]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except Exception as exc:  # KafkaException or RuntimeError: the position stays dirty
            self._count("failed")
            log.warning("commit_refused", cause=str(exc))
            return
        self._sent_at = moment
        for assignment, position in dirty:
            self._sent[assignment.topic, assignment.partition] = (assignment, position)

    def _give_up_waiting(self, moment: float) -> None:
        if self._sent and moment - self._sent_at > DEADLINE_S:
            self._count("unanswered")
            log.warning("commit_unanswered", after_s=DEADLINE_S, partitions=len(self._sent))
            self._sent.clear()
