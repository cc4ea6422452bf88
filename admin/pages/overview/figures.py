"""Figures over a range of time, from minute sums: what a person sees of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from idempotency.sums.counter import STAGES, SumRow
from idempotency.sums.reading import SumsRead
from idempotency.sums.sketch import LatencySketch
from message.states import State

ARRIVED: Final = (State.SENT,)
FAILED: Final = (State.REJECTED, State.EXPIRED, State.PARKED)
"""Ends without a send. A retry and a doubt are no ends, and a drop is the policy's wish."""
_MOST_CACHED: Final = 64
_S: Final = 1_000


class Percentiles(NamedTuple):
    """Milliseconds; None without a time."""

    p50: int | None = None
    p99: int | None = None


class FigureRow(NamedTuple):
    """One lane, one account of a lane, or everything (both empty)."""

    lane: str
    account: str
    outcomes: Mapping[str, int]
    stages: Mapping[str, Percentiles]

    @property
    def sent(self) -> int:
        """Deliveries that a provider accepted."""
        return self.of(*ARRIVED)

    @property
    def failed(self) -> int:
        """Deliveries that ended unsent."""
        return self.of(*FAILED)

    @property
    def success(self) -> float | None:
        """Share of the sent ones among those that were sent or failed; None without any."""
        ended = self.sent + self.failed
        return self.sent / ended if ended else None

    def of(self, *states: State | str) -> int:
        """Returns how many came to one of these states."""
        return sum(self.outcomes.get(str(state), 0) for state in states)


class Slot(NamedTuple):
    """One step of the charts. Rates are deliveries a second."""

    at: int
    sent: float
    failed: float
    doubted: float
    again: float
    total: Percentiles
    call: Percentiles


class Figures(NamedTuple):
    """A range as a person sees it. Times are epoch milliseconds."""

    start: int
    end: int
    span: int
    everything: FigureRow
    rows: Sequence[FigureRow]
    """Lanes in order, each followed by its accounts if it has several."""
    slots: Sequence[Slot]
    cut: bool
    """The range has more rows than are read: figures are too low."""

    @property
    def rate(self) -> float:
        """Deliveries sent a second."""
        return self.everything.sent * _S / max(self.end - self.start, 1)


class SharedFigures:
    """The figures of one reading, made once for all who may see the same lanes. Thread-safe."""

    def __init__(self, read: SumsRead) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._made: dict[frozenset[str], Figures] = {}  # under the lock

    @property
    def lanes(self) -> frozenset[str]:
        """All lanes that have sums."""
        return frozenset(row.lane for row in self._read.rows)

    def of(self, lanes: Iterable[str]) -> Figures:
        """Returns the figures of these lanes."""
        wanted = frozenset(lanes) & self.lanes
        with self._lock:
            made = self._made.get(wanted)
            if made is None:
                if len(self._made) >= _MOST_CACHED:
                    self._made.clear()
                made = self._made[wanted] = figures_of(self._read, wanted)
            return made


def figures_of(read: SumsRead, lanes: frozenset[str]) -> Figures:
    """Returns the figures of these lanes."""
    rows = [row for row in read.rows if row.lane in lanes]
    by_slot: dict[int, list[SumRow]] = {}
    by_lane: dict[tuple[str, str], list[SumRow]] = {}
    for row in rows:
        by_slot.setdefault(row.minute, []).append(row)
        by_lane.setdefault((row.lane, row.account), []).append(row)
    starts = range(read.start, read.end, read.span)
    whole = [
        at for at in starts if at + read.span <= read.end
    ]  # the present one would look like a fall
    return Figures(
        read.start,
        read.end,
        read.span,
        _figure_row("", "", rows),
        list(_lane_rows(by_lane)),
        [
            _slot(at, by_slot.get(at, ()), min(at + read.span, read.end) - at)
            for at in whole or starts
        ],
        read.cut,
    )


def _lane_rows(found: Mapping[tuple[str, str], Sequence[SumRow]]) -> Iterable[FigureRow]:
    for lane in sorted({lane for lane, _account in found}):
        accounts = sorted(account for one, account in found if one == lane)
        together = [row for account in accounts for row in found[lane, account]]
        yield _figure_row(lane, "", together)
        for account in (one for one in accounts if len(accounts) > 1 and one):
            yield _figure_row(lane, account, found[lane, account])


def _figure_row(lane: str, account: str, rows: Sequence[SumRow]) -> FigureRow:
    outcomes: dict[str, int] = {}
    for row in rows:
        outcomes[row.outcome] = outcomes.get(row.outcome, 0) + row.deliveries
    stages = {stage: _percentiles(rows, stage) for stage in STAGES}
    return FigureRow(lane, account, outcomes, stages)


def _slot(at: int, rows: Sequence[SumRow], length_ms: int) -> Slot:
    counted = _figure_row("", "", ())._replace(
        outcomes={one: sum(r.deliveries for r in rows if r.outcome == one) for one in State}
    )
    seconds = max(length_ms, _S) / _S
    return Slot(
        at,
        counted.sent / seconds,
        counted.failed / seconds,
        counted.of(State.UNKNOWN) / seconds,
        counted.of(State.RETRY) / seconds,
        _percentiles(rows, "total"),
        _percentiles(rows, "call"),
    )


def _percentiles(rows: Iterable[SumRow], stage: str) -> Percentiles:
    sketch = LatencySketch()
    place = SumRow._fields.index(stage)
    for row in rows:
        sketch.merge(row[place])  # type: ignore[arg-type]
    return Percentiles(sketch.quantile(0.5), sketch.quantile(0.99))
