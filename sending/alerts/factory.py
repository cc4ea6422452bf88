"""Builds a process's alerts: notifier, rules, and the webhook if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from backends.metrics.readings import show_readings
from backends.settings import Settings
from channels.engine import Sender
from idempotency.sql_ledger import SqlLedger
from message.vocabulary import lanes_matching
from sending.alerts.fleet import FleetAlerts
from sending.alerts.notifier import AlertNotifier
from sending.alerts.rules import AlertMonitor, RuleEvaluator, rules_of
from sending.alerts.webhook import AlertHook

D = TypeVar("D", bound=AlertNotifier)


def open_desk(
    kind: Callable[..., D],
    settings: Settings,
    registry: CollectorRegistry,
    ledger: SqlLedger,
    sender: Sender,
    name: str,
) -> D:
    """Returns a notifier of that kind. Raises SettingsError for a webhook that is no address."""
    alerts = settings.alerts
    options: dict[str, Any] = {"windows": ledger.alerting(), "name": name}
    if alerts.webhook:
        options |= {"post": AlertHook(alerts, sender).post, "post_s": alerts.timeout_s}
    return kind(registry, alerts.window_s, **options)


def open_watchman(
    settings: Settings,
    registry: CollectorRegistry,
    ledger: SqlLedger,
    desk: AlertNotifier,
    monotonic: Callable[[], float],
) -> AlertMonitor:
    """Returns a monitor of this process's `/metrics` and of the fleet; not started."""
    lanes = [lane.name for lane in lanes_matching(["*"])]
    fleet = FleetAlerts(
        desk,
        ledger.fleet_health(),
        ledger.duties(),
        settings.alerts,
        lanes,
        pauses=ledger.controls(),
        monotonic=monotonic,
    )
    show_readings(registry, fleet.readings)
    return AlertMonitor(registry, RuleEvaluator(rules_of(settings.alerts), monotonic), desk, fleet)
