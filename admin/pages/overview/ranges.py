"""Ranges of time: a board for each named one, shared by all who watch it, and a person's own range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from admin.access import Person, Role
from admin.live.board import BoardValue
from admin.live.spec import BoardSpec
from admin.pages.overview.figures import Figures, SharedFigures
from admin.parts import ConsoleParts
from admin.web.forms import WrongForm
from admin.web.moments import iso
from idempotency.sums.counter import MINUTE_MS
from idempotency.sums.reading import LONGEST_MS, SumReader
from idempotency.sums.rollup import DAY_MS, HOUR_MS


class NamedRange(NamedTuple):
    """A range up to now."""

    name: str
    length_ms: int
    every_s: float
    """Time between two readings."""


RANGES: Final = (
    NamedRange("15m", 15 * MINUTE_MS, 10.0),
    NamedRange("1h", HOUR_MS, 10.0),
    NamedRange("6h", 6 * HOUR_MS, 30.0),
    NamedRange("24h", DAY_MS, 30.0),
    NamedRange("7d", 7 * DAY_MS, 60.0),
)
DEFAULT: Final = "1h"
OWN: Final = "own"
_BY_NAME: Final = {one.name: one for one in RANGES}
_MS: Final = 1_000
_MINUTES: Final = len("2026-11-24T08:00")


class AskedRange(NamedTuple):
    """The range that a page shows."""

    over: str
    """Name of a range; OWN with the two below."""
    since: str = ""
    until: str = ""
    """As `2026-11-24T08:00`, UTC."""
    lane: str = ""
    """Empty: all lanes."""

    @property
    def every_s(self) -> float:
        """Seconds after which the figures are asked for again; 0: never."""
        return 0.0 if self.over == OWN else _BY_NAME[self.over].every_s


def asked_range(over: str, since: str, until: str, lane: str) -> AskedRange:
    """Returns the range of a query. Raises WrongForm for an unknown one."""
    if since or until:
        _moments(since, until)
        return AskedRange(OWN, since, until, lane)
    if (over or DEFAULT) not in _BY_NAME:
        raise WrongForm("overview.bad_range", "over", names=", ".join(_BY_NAME))
    return AskedRange(over or DEFAULT, lane=lane)


def own_range(asked: AskedRange, now_ms: int) -> tuple[str, str]:
    """Returns begin and end for the fields of an own range, as `2026-11-24T08:00`, UTC."""
    if asked.over == OWN:
        return asked.since, asked.until
    start = now_ms - _BY_NAME[asked.over].length_ms
    return iso(start)[:_MINUTES], iso(now_ms)[:_MINUTES]


def read_range(parts: ConsoleParts, asked: AskedRange, person: Person) -> BoardValue:
    """Returns the figures that the person may see. Raises LedgerError for an own range."""
    if asked.over == OWN:
        start, end = _moments(asked.since, asked.until)
        read = _sum_reader(parts).between(start, end)
        found = BoardValue(SharedFigures(read), parts.wall_ms())
    else:
        found = parts.boards[board_name(asked.over)].now()
    if found.value is None:
        return found
    return replace(found, value=figures_for(found.value, person, asked.lane))


def figures_for(shared: SharedFigures, person: Person, lane: str = "") -> Figures:
    """Returns the figures of the lanes that the person may see, or of this one among them."""
    seen = person.among(shared.lanes)
    return shared.of([one for one in seen if not lane or one == lane])


def board_name(over: str) -> str:
    """Returns the name of a range's board."""
    return f"figures-{over}"


def _moments(since: str, until: str) -> tuple[int, int]:
    start, end = _moment(since, "since"), _moment(until, "until")
    if not 0 < end - start <= LONGEST_MS:
        raise WrongForm("overview.bad_span", "until", days=LONGEST_MS // DAY_MS)
    return start, end


def _moment(text: str, field: str) -> int:
    try:
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return int(at.timestamp() * _MS)
    except (ValueError, OverflowError):
        raise WrongForm("overview.bad_time", field) from None


def _sum_reader(parts: ConsoleParts) -> SumReader:
    return SumReader(parts.databases.reads, parts.databases.reads_clock)


def _board(one: NamedRange) -> BoardSpec:
    def reader(parts: ConsoleParts) -> Callable[[], SharedFigures]:
        sums = _sum_reader(parts)
        return lambda: SharedFigures(sums.last(one.length_ms))

    return BoardSpec(
        board_name(one.name),
        one.every_s,
        reader,
        "overview/figures.html",
        Role.VIEWER,
        figures_for,
    )


BOARDS = [_board(one) for one in RANGES]
