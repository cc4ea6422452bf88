"""What one lane has received and not yet claimed: a plain queue, or one that keeps order per key.

Records are expanded into deliveries only when a lane has room for them, so that a thousand receivers
cost nothing while they wait. A backlog belongs to the thread of its `ExpandStage`.
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
        """Records waiting, and deliveries of the one that is begun."""
        return len(self._records) + len(self._begun)

    def add(self, record: KafkaRecord) -> None:
        """A record from the source."""
        self._records.append(record)

    def done(self, record: KafkaRecord) -> None:
        """All deliveries of a record ended; matters only where order is kept."""

    def take(self, room: int) -> list[Work]:
        """Up to `room` deliveries that may be claimed now. Records of a partition that is leaving
        are passed over: whoever gets it reads them again."""
        taken: list[Work] = []
        while len(taken) < room:
            if self._begun:
                taken.append(self._begun.popleft())
            elif not self._records:
                break
            else:
                self._begin(self._records.popleft())
        return taken

    def dropped(self) -> list[KafkaRecord]:
        """Records passed over since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def abandon(self) -> list[Work]:
        """Forget everything; returns the unclaimed deliveries of records already begun."""
        rest = list(self._begun)
        self._begun.clear()
        self._records.clear()
        return rest

    def _begin(self, record: KafkaRecord) -> None:
        if record.assignment.state is not PartitionState.OWNED:
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


def backlog_for(ordering: Ordering, expand: Expand) -> Backlog:
    """The backlog that a lane's policy asks for."""
    return KeyedBacklog(expand) if ordering is Ordering.KEY else Backlog(expand)
