"""The worker's obedience to a person's orders, and the snapshot that its heartbeat carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dispatcher.kafka.source import Source
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lanes import LanePool
from idempotency.fleet.snapshots import AccountSnapshot, LaneSnapshot, ProcessSnapshot, encoded
from message.vocabulary import Lane
from policy.templates.active import TemplateFollower
from policy.watcher import PolicyWatcher

_DIGITS: Final = 1


class PausedLanes:
    """Pauses and resumes the pools of the lanes. `ControlWatcher`'s thread calls it."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        intakes: Sequence[Intake],
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called after each change: the fleet shows what this process obeys."""
        self._pools = pools
        self._intakes = intakes
        self._on_change = on_change

    def __call__(self, paused: frozenset[str]) -> None:
        """Pauses these lanes, resumes all others."""
        for name, pool in self._pools.items():
            pool.pause(name in paused)
        for intake in self._intakes:
            intake.room_made()
        self._on_change()


class SnapshotSource:
    """Makes the worker's snapshot; the thread of `WorkerLease.run` calls it."""

    def __init__(
        self,
        pools: Mapping[str, LanePool],
        source: Source,
        watch: PolicyWatcher,
        *,
        templates: TemplateFollower,
        waiting: Callable[[str], int],
        open_breakers: Callable[[str], list[str]],
        accounts: Callable[[], dict[str, AccountSnapshot]],
        monotonic: Callable[[], float],
    ) -> None:
        """`waiting` returns how many deliveries of a lane are read and not claimed."""
        self._pools = pools
        self._source = source
        self._watch = watch
        self._templates = templates
        self._waiting = waiting
        self._open_breakers = open_breakers
        self._accounts = accounts
        self._monotonic = monotonic
        self._counted_at = monotonic()
        self._counted: dict[str, int] = {}

    def __call__(self) -> str:
        """Returns the snapshot as text for the heartbeat row."""
        now, lag, partitions = self._monotonic(), self._source.lag, self._source.partitions
        oldest = self._source.oldest_age
        seconds = max(now - self._counted_at, 1e-3)
        settled = {name: pool.settled_count for name, pool in self._pools.items()}
        lanes = {}
        for name, pool in self._pools.items():
            lanes[name] = LaneSnapshot(
                in_flight=pool.unsettled,
                waiting=self._waiting(name),
                lag=lag.get(pool.lane),
                partitions=partitions.get(pool.lane, 0),
                rate=round((settled[name] - self._counted.get(name, 0)) / seconds, _DIGITS),
                open=self._open_breakers(name),
                paused=pool.paused,
                oldest=round(oldest.get(pool.lane, 0.0), _DIGITS),
            )
        self._counted_at, self._counted = now, settled
        return encoded(
            ProcessSnapshot(
                self._watch.number,
                lanes,
                accounts=self._accounts(),
                templates=self._templates.number,
            )
        )


def lanes_paused(pools: Sequence[LanePool]) -> frozenset[Lane]:
    """Returns the lanes whose pool is paused."""
    return frozenset(pool.lane for pool in pools if pool.paused)
