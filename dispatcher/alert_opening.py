"""Puts a process's alerts together: its desk, its rules, and the webhook if there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry

from backends.settings import Settings
from channels.alert_hook import AlertHook
from channels.engine import Sender
from dispatcher.alert_rules import Looking, Watchman, rules_of
from dispatcher.alerts import Desk
from idempotency.alerting import AlertWindows

D = TypeVar("D", bound=Desk)


def open_desk(
    kind: Callable[..., D],
    settings: Settings,
    registry: CollectorRegistry,
    windows: AlertWindows,
    sender: Sender,
    name: str,
) -> D:
    """A desk of that kind; raises SettingsError for a webhook that is no address."""
    alerts = settings.alerts
    options: dict[str, Any] = {"windows": windows, "name": name}
    if alerts.webhook:
        options["post"] = AlertHook(alerts, sender).post
    return kind(registry, alerts.window_s, **options)


def open_watchman(
    settings: Settings,
    registry: CollectorRegistry,
    windows: AlertWindows,
    desk: Desk,
    monotonic: Callable[[], float],
    *,
    asks_doubts: bool = False,
) -> Watchman:
    """Over what `/metrics` shows of this process; not started. `asks_doubts` is for recovery."""
    alerts = settings.alerts
    return Watchman(
        registry,
        Looking(rules_of(alerts), monotonic),
        desk,
        windows,
        window_s=alerts.window_s,
        unknown_s=alerts.unknown_s if asks_doubts else 0.0,
    )
