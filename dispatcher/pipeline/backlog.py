"""Backlog of one lane's unclaimed records: a plain queue, or one that keeps order per key.

A record is expanded into deliveries only when its lane has room: a thousand receivers cost nothing while
they wait. A backlog belongs to the thread of its `ExpandStage`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from dispatcher.pipeline.work import KafkaRecord, PartitionState, Work
from policy.schema import Ordering

Expand = Callable[[KafkaRecord], list[Work]]


class Backlog:
    """First come, first served."""

    def __init__(self, expand: Expand) -> None:
        self._expand = expand
        self._records: deque[KafkaRecord] = deque()
        self._begun: deque[Work] = deque()
        self._dropped: list[KafkaRecord] = []

    def __len__(self) -> int:
        """Returns the number of waiting records and of the begun record's deliveries."""
        return len(self._records) + len(self._begun)

    def add(self, record: KafkaRecord) -> None:
        """Adds a record from the source."""
        self._records.append(record)

    def done(self, record: KafkaRecord) -> None:
        """All deliveries of a record ended; `KeyedBacklog` lets the key's next record go."""

    def take(self, room: int) -> list[Work]:
        """Returns up to `room` deliveries that may be claimed now. Passes over records of a partition being
        revoked; its next owner reads them again."""
        taken: list[Work] = []
        while len(taken) < room:
            if self._begun:
                taken.append(self._begun.popleft())
            elif not self._records:
                break
            else:
                self._begin(self._records.popleft())
        return taken

    def leave(self) -> list[Work]:
        """Forgets the deliveries of begun records whose partition is being revoked. Returns them."""
        leaving = [work for work in self._begun if _is_leaving(work.record)]
        if leaving:
            self._begun = deque(work for work in self._begun if not _is_leaving(work.record))
        return leaving

    def dropped(self) -> list[KafkaRecord]:
        """Returns the records passed over since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def abandon(self) -> list[Work]:
        """Forgets everything. Returns the unclaimed deliveries of begun records."""
        rest = list(self._begun)
        self._begun.clear()
        self._records.clear()
        return rest

    def _begin(self, record: KafkaRecord) -> None:
        if _is_leaving(record):
            self._dropped.append(record)
            self.done(record)
            return
        works = self._expand(record)
        record.open_deliveries = len(works)
        record.assignment.begun += 1
        self._begun.extend(works)


class KeyedBacklog(Backlog):
    """One record per ordering key at a time, in the order they came; other keys are not held up.

    `ordering_key` null orders nothing.
    """

    def __init__(self, expand: Expand) -> None:
        super().__init__(expand)
        self._waiting: dict[str, deque[KafkaRecord]] = {}
        self._held = 0

    def __len__(self) -> int:
        return super().__len__() + self._held

    def add(self, record: KafkaRecord) -> None:
        key = record.notification.ordering_key
        if key is None:
            self._records.append(record)
        elif key in self._waiting:
            self._waiting[key].append(record)
            self._held += 1
        else:
            self._waiting[key] = deque()
            self._records.append(record)

    def done(self, record: KafkaRecord) -> None:
        """The key's next record may go."""
        key = record.notification.ordering_key
        if key is None or key not in self._waiting:
            return
        if self._waiting[key]:
            self._records.append(self._waiting[key].popleft())
            self._held -= 1
        else:
            del self._waiting[key]

    def abandon(self) -> list[Work]:
        self._waiting.clear()
        self._held = 0
        return super().abandon()


def _is_leaving(record: KafkaRecord) -> bool:
    return record.assignment.state is not PartitionState.OWNED


def backlog_for(ordering: Ordering, expand: Expand) -> Backlog:
    """Returns the backlog for a lane's ordering."""
    return KeyedBacklog(expand) if ordering is Ordering.KEY else Backlog(expand)
