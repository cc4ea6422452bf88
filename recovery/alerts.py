"""Recovery's alerts about parked deliveries (docs/alerts.md)."""

from __future__ import annotations

from sending.alerts.notifier import AlertNotifier
from sending.alerts.rules import parked


class Alerts(AlertNotifier):
    """One reason in one lane is one alert, for any number of deliveries. `parked` is thread-safe."""

    def parked(self, lane: str, reason: str, _delivery: str, template: str = "") -> None:
        """Raises the alert for a parked delivery; `template` is the name in its notification."""
        self.raise_(parked(lane, reason, template))
