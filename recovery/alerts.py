"""Recovery's alerts: what it parks, it tells (docs/alerts.md)."""

from __future__ import annotations

from sending.alerts.notifier import AlertNotifier
from sending.alerts.rules import parked


class Alerts(AlertNotifier):
    """One kind of trouble in one lane is one alert, however many deliveries it strikes. `parked` is any
    thread's."""

    def parked(self, lane: str, reason: str, _delivery: str) -> None:
        """A delivery waits for a person."""
        self.raise_(parked(lane, reason))
