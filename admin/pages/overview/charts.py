"""Figures as charts: the content of `data-chart`, and a table of the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from admin.pages.overview.figures import Figures
from admin.web.moments import utc
from admin.web.view import duration

_S = 1_000
_DIGITS = 3
Text = Callable[[str], str]


class Chart(NamedTuple):
    """One chart."""

    id: str
    title: str
    unit: str
    series: Sequence[str]
    times: Sequence[int]
    """Starts of the slots, epoch milliseconds."""
    lines: Sequence[Sequence[float | None]]
    """Per series, its value in each slot."""

    @property
    def data(self) -> dict[str, Any]:
        """The content of `data-chart`."""
        return {
            "series": list(self.series),
            "unit": self.unit,
            "data": [[at / _S for at in self.times], *self.lines],
        }

    @property
    def empty(self) -> bool:
        """Whether there is nothing but zeros and gaps."""
        return not any(value for line in self.lines for value in line)

    def rows(self) -> list[list[str]]:
        """Returns the rows of the table, newest first: time, then a value per series."""
        found = [
            [utc(at)[:16], *(self._shown(line[place]) for line in self.lines)]
            for place, at in enumerate(self.times)
        ]
        return found[::-1]

    def _shown(self, value: float | None) -> str:
        if value is None:
            return "–"
        return duration(int(value * _S)) if self.unit == "s" else f"{value:,.2f}"


def charts_of(figures: Figures, text: Text) -> list[Chart]:
    """Returns rates, times until the send, and times of calls."""
    slots = figures.slots
    times = [slot.at for slot in slots]
    names = [text(f"overview.{name}") for name in ("sent", "failed", "doubted", "again")]
    rates = [
        [round(value, _DIGITS) for value in line]
        for line in zip(*((s.sent, s.failed, s.doubted, s.again) for s in slots), strict=True)
    ]
    totals = [[_seconds(slot.total[place]) for slot in slots] for place in (0, 1)]
    calls = [[_seconds(slot.call[place]) for slot in slots] for place in (0, 1)]
    shares = ["p50", "p99"]
    return [
        Chart("rates", text("overview.rates"), "/s", names, times, rates),
        Chart("totals", text("overview.total"), "s", shares, times, totals),
        Chart("calls", text("overview.call"), "s", shares, times, calls),
    ]


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / _S
