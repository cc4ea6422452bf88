"""Lanes over the whole fleet: what live processes report of them, their pause, and who obeys it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from idempotency.fleet.controls import LanePause
from idempotency.fleet.snapshots import LaneSnapshot
from idempotency.fleet.status import Process


class ServedLane(NamedTuple):
    """One lane over all live processes."""

    lane: str
    workers: int
    """Live workers that serve it."""
    partitions: int
    lag: int | None
    """None: unknown, since no worker reads it and the broker did not answer."""
    in_flight: int
    waiting: int
    rate: float
    open: list[str]
    """Accounts whose breaker is not closed in some process."""
    pause: LanePause | None
    not_obeying: list[str]
    """Live processes that have not reported yet that they obey the pause, or that it is over."""
    obeying: Sequence[str] = ()
    """Live processes that serve it and have reported that they do."""

    @property
    def idle(self) -> bool:
        """Whether there is nothing to look at."""
        return not (
            self.workers
            or self.lag
            or self.in_flight
            or self.waiting
            or self.open
            or self.pause
            or self.not_obeying
        )


def served_lanes(
    lanes: Sequence[str], processes: Iterable[Process], pauses: Iterable[LanePause]
) -> dict[str, ServedLane]:
    """Returns each lane as the live processes report it."""
    live = [one for one in processes if not one.lost]
    paused = {pause.lane: pause for pause in pauses}
    return {lane: _served(lane, live, paused.get(lane)) for lane in lanes}


def _served(lane: str, live: Sequence[Process], pause: LanePause | None) -> ServedLane:
    serving = [(one, shown) for one in live if (shown := _of(one, lane)) is not None]
    workers = [shown for one, shown in serving if one.kind == "worker"]
    lags = [shown.lag for shown in workers if shown.lag is not None]
    differing = {one.id for one in live if lane in one.lanes and _differs(one, lane, pause)}
    return ServedLane(
        lane=lane,
        workers=sum(one.kind == "worker" and lane in one.lanes for one in live),
        partitions=sum(shown.partitions for shown in workers),
        lag=sum(lags) if lags else None,
        in_flight=sum(shown.in_flight for _, shown in serving),
        waiting=sum(shown.waiting for shown in workers),
        rate=round(sum(shown.rate for shown in workers), 1),
        open=sorted({account for _, shown in serving for account in shown.open}),
        pause=pause,
        not_obeying=[one.id for one in live if one.id in differing],
        obeying=[one.id for one in live if lane in one.lanes and one.id not in differing],
    )


def _differs(process: Process, lane: str, pause: LanePause | None) -> bool:
    """Returns whether the process has not reported yet that it obeys the pause, or that it is over."""
    if process.snapshot is None:
        return pause is not None
    shown = _of(process, lane)
    return shown is not None and shown.paused is (pause is None)


def _of(process: Process, lane: str) -> LaneSnapshot | None:
    return process.snapshot.lanes.get(lane) if process.snapshot is not None else None
