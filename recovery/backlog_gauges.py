"""Gauges of the backlog. Stale numbers are not shown: 0 would mean that nothing waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from idempotency.recovery.contract import DueBacklog

_MS: Final = 1_000
_TEXTS: Final = {
    "due": "Deliveries due and not taken; counted up to 10,000.",
    "unknown": "Deliveries in doubt; counted up to 10,000.",
    "oldest_due_seconds": "How long the oldest is due.",
    "oldest_unknown_seconds": "Age of a doubt that comes next.",
}

_BEHIND: Final = "Ordering keys whose head has held others for a minute; counted up to 10,000."


class BacklogGauges(Collector):
    """`Recovery.measure` calls `show`, `LineWatch.count` `show_behind`, each in its thread; any thread may
    collect."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._shown: tuple[float, Sequence[DueBacklog]] = (float("-inf"), ())
        """End of validity, and the measured backlog; replaced as a whole by `show`."""
        self._behind: tuple[float, Mapping[str, int]] = (float("-inf"), {})
        """Likewise, by `show_behind`."""

    def show(self, backlog: Sequence[DueBacklog], valid_s: float) -> None:
        """Shows this backlog for `valid_s` seconds."""
        self._shown = self._monotonic() + valid_s, backlog

    def show_behind(self, lines: Mapping[str, int], valid_s: float) -> None:
        """Shows, per lane, the number of ordering keys that wait for a head, for `valid_s` seconds."""
        self._behind = self._monotonic() + valid_s, lines

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """See `Collector.describe`."""
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """See `Collector.collect`."""
        yield from self._waiting()
        yield from self._held()

    def _held(self) -> Iterable[GaugeMetricFamily]:
        valid_until, lines = self._behind
        if self._monotonic() < valid_until:
            family = GaugeMetricFamily("hongyan_recovery_behind", _BEHIND, labels=["lane"])
            for lane, count in lines.items():
                family.add_metric([lane], count)
            yield family

    def _waiting(self) -> Iterable[GaugeMetricFamily]:
        valid_until, backlog = self._shown
        if self._monotonic() >= valid_until:
            return
        families = {
            name: GaugeMetricFamily(f"hongyan_recovery_{name}", text, labels=["lane"])
            for name, text in _TEXTS.items()
        }
        for lane, due, doubted, due_ms, doubt_ms in backlog:
            values = (due, doubted, due_ms / _MS, doubt_ms / _MS)
            for family, value in zip(families.values(), values, strict=True):
                family.add_metric([lane], value)
        yield from families.values()
