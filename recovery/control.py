"""Recovery's obedience to a person's orders, and the snapshot that its heartbeat carries.

A paused lane sends nothing again and releases nothing; a joint call in doubt is not repeated. Questions
about deliveries in doubt go on: they send nothing to a receiver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from idempotency.fleet.snapshots import AccountSnapshot, LaneSnapshot, ProcessSnapshot, encoded
from policy.templates.active import TemplateFollower
from policy.watcher import PolicyWatcher
from recovery.retry.pool import RetryPool
from sending.accounts.selector import AccountSelector

PoolsByLane = Mapping[str, Sequence[RetryPool]]


class PausedRetries:
    """Pauses and resumes the pools of the lanes. `ControlWatcher`'s thread calls it."""

    def __init__(
        self,
        pools: PoolsByLane,
        look_at: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        """`look_at` asks for a look at a resumed lane before the next poll. `on_change` is called after
        each change."""
        self._pools = pools
        self._look_at = look_at
        self._on_change = on_change

    def __call__(self, paused: frozenset[str]) -> None:
        """Pauses these lanes, resumes all others."""
        for lane, of_lane in self._pools.items():
            resumed = any(pool.paused for pool in of_lane) and lane not in paused
            for pool in of_lane:
                pool.pause(lane in paused)
            if resumed:
                self._look_at(lane)
        self._on_change()


class RecoverySnapshotSource:
    """Makes recovery's snapshot; the thread of `WorkerLease.run` calls it."""

    def __init__(
        self,
        pools: PoolsByLane,
        watch: PolicyWatcher,
        templates: TemplateFollower,
        accounts: Mapping[str, AccountSelector],
        shown: Callable[[], dict[str, AccountSnapshot]],
    ) -> None:
        """`shown` returns the state of each account."""
        self._pools = pools
        self._watch = watch
        self._templates = templates
        self._accounts = accounts
        self._shown = shown

    def __call__(self) -> str:
        """Returns the snapshot as text for the heartbeat row."""
        lanes = {
            lane: LaneSnapshot(
                in_flight=sum(pool.in_flight for pool in of_lane),
                open=self._accounts[lane].open_breakers(),
                paused=any(pool.paused for pool in of_lane),
            )
            for lane, of_lane in self._pools.items()
        }
        return encoded(
            ProcessSnapshot(
                self._watch.number,
                lanes,
                accounts=self._shown(),
                templates=self._templates.number,
            )
        )
