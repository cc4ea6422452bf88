"""Lanes, alerts and fleet as they are now: one board for all watchers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from admin.access import Person, Role
from admin.live.spec import BoardSpec
from admin.parts import ConsoleParts
from idempotency.alerts.book import AlertBook, AlertShown
from idempotency.fleet.controls import Controls, LanePause
from idempotency.fleet.status import FleetStatus, LaneStatus, Process
from message.vocabulary import LANES

EVERY_S: Final = 2.0
_MS: Final = 1_000


class LaneRow(NamedTuple):
    """One lane over the whole fleet."""

    status: LaneStatus
    pause: LanePause | None
    rate: float
    """Deliveries settled a second, over all workers."""
    lag: int | None
    """Records behind the log's end; None: no worker knows."""
    open_breakers: tuple[str, ...]
    oldest_ms: int
    """Age of the oldest record whose offset is not committed."""

    @property
    def shown(self) -> bool:
        """Whether there is something to see."""
        return bool(not self.status.idle or self.pause or self.rate or self.lag)


class Overview(NamedTuple):
    """The content of the overview."""

    lanes: Sequence[LaneRow]
    alerts: Sequence[AlertShown]
    processes: Sequence[Process]
    now_ms: int


def _reader(parts: ConsoleParts) -> Callable[[], Overview]:
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    fleet, book, controls = (
        FleetStatus(reads, clock),
        AlertBook(reads, clock),
        Controls(reads, clock),
    )

    def read() -> Overview:
        processes = fleet.processes()
        pauses = {pause.lane: pause for pause in controls.pauses()}
        lanes = [
            lane_row(status, pauses.get(status.lane), processes)
            for status in fleet.lanes([lane.name for lane in LANES])
        ]
        return Overview(lanes, book.alerts(), processes, fleet.now_ms())

    return read


def lane_row(status: LaneStatus, pause: LanePause | None, processes: Sequence[Process]) -> LaneRow:
    """Returns a lane with what the live processes say of it."""
    reported = [
        one.snapshot.lanes[status.lane]
        for one in processes
        if one.snapshot and not one.lost and status.lane in one.snapshot.lanes
    ]
    lags = [one.lag for one in reported if one.lag is not None]
    breakers = tuple(sorted({account for one in reported for account in one.open}))
    rate = sum(one.rate for one in reported)
    oldest_ms = int(max((one.oldest for one in reported), default=0.0) * _MS)
    return LaneRow(status, pause, rate, sum(lags) if lags else None, breakers, oldest_ms)


def _shown(value: Overview, person: Person) -> Overview:
    """Returns what the person may see: lanes and alerts of its lanes, and processes that serve one."""
    may = person.may
    return Overview(
        [row for row in value.lanes if row.shown and may(Role.VIEWER, row.status.lane)],
        [one for one in value.alerts if not one.lane or may(Role.VIEWER, one.lane)],
        [one for one in value.processes if person.among(one.lanes) or not one.lanes],
        value.now_ms,
    )


BOARD: Final = BoardSpec(
    "overview", EVERY_S, _reader, "overview/live.html", shown=_shown, shares_text=True
)
BOARDS = [BOARD]
