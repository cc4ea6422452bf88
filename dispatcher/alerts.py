"""Alerts: what a person has to look at, told once in a window by the whole fleet and always counted.

Any thread raises; one thread asks the ledger which of them are this process's to tell, and tells them: in
the log, and to the webhook. While the ledger is away every process tells by a window of its own, since an
outage is no time for silence.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)
_MS: Final = 1_000
_POST_TRIES: Final = 3
_POST_PAUSE_S: Final = 1.0
_MOST_SUBJECTS: Final = 1_000
"""Different alerts between two flushes; what is more is counted in the metric alone."""

Post = Callable[[Mapping[str, Any]], str | None]
"""Posts one alert; why it did not arrive, or None."""
Subject = tuple[str, str]
"""Rule, and what it is about: the unit of the window."""


class Windows(Protocol):
    """Who tells what (idempotency/alerting.py)."""

    def due(self, seen: Mapping[Subject, int], window_ms: int) -> dict[Subject, int]:
        """Those that are ours to tell now, with how often they came up since they were told before; raises
        LedgerError."""
        ...


class Alert(NamedTuple):
    """One thing that went wrong."""

    rule: str
    """As docs/alerts.md names it."""
    lane: str
    """Empty where it is none of a lane."""
    about: str
    """The reason, the account, the worker: with rule and lane it names the alert."""
    text: str
    """One sentence for whoever is called; no receiver, no content, no secret."""

    @property
    def subject(self) -> Subject:
        """What it is deduplicated by."""
        return self.rule, f"{self.lane} {self.about}".strip()


class OwnWindows:
    """The twin of the ledger's windows for one process alone. One thread's."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._told_at: dict[Subject, float] = {}
        self._kept: Counter[Subject] = Counter()

    def due(self, seen: Mapping[Subject, int], window_ms: int) -> dict[Subject, int]:
        """See `Windows.due`."""
        now, due = self._monotonic(), {}
        for subject, count in seen.items():
            self._kept[subject] += count
            told_at = self._told_at.get(subject)
            if told_at is None or now - told_at >= window_ms / _MS:
                self._told_at[subject] = now
                due[subject] = self._kept.pop(subject)
        return due


class Desk:
    """`raise_` is any thread's, the rest the desk's own."""

    def __init__(
        self,
        registry: CollectorRegistry,
        window_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        windows: Windows | None = None,
        post: Post | None = None,
        name: str = "",
    ) -> None:
        """Without `windows` it tells by its own; `name` is whose desk it is."""
        self._raised = _metric(registry, "alerts", "Times that an alert came up.", "lane")
        self._not_posted = _metric(registry, "alerts_not_posted", "Refused by the webhook.")
        self._window_ms = int(window_s * _MS)
        self._own = OwnWindows(monotonic)
        self._windows = windows or self._own
        self._post = post
        self._name = name
        self._lock = threading.Lock()  # guards the two below
        self._seen: Counter[Subject] = Counter()
        self._latest: dict[Subject, Alert] = {}
        self._stop = threading.Event()

    def raise_(self, alert: Alert, count: int = 1) -> None:
        """It came up. Returns at once."""
        self._raised.labels(alert.rule, alert.lane).inc(count)
        with self._lock:
            if alert.subject in self._seen or len(self._seen) < _MOST_SUBJECTS:
                self._seen[alert.subject] += count
                self._latest[alert.subject] = alert

    def flush(self) -> None:
        """Tell what came up since the last time and is due."""
        with self._lock:
            seen, latest = self._seen, self._latest
            self._seen, self._latest = Counter(), {}
        for subject, count in (self._due(seen) if seen else {}).items():
            self._tell(latest[subject], count)

    def stop(self) -> None:
        """Do not try a webhook again; idempotent."""
        self._stop.set()

    def _due(self, seen: Mapping[Subject, int]) -> dict[Subject, int]:
        try:
            return self._windows.due(seen, self._window_ms)
        except LedgerError as exc:
            log.warning("alerts_by_own_window", cause=str(exc))
            return self._own.due(seen, self._window_ms)

    def _tell(self, alert: Alert, count: int) -> None:
        rule, lane, about, text = alert
        log.error("alert", rule=rule, lane=lane, about=about, text=text, count=count)
        told = {"from": self._name, "at": int(time.time() * _MS), "count": count}
        error = self._posted({**alert._asdict(), **told})
        if error is not None:
            self._not_posted.labels(rule).inc()
            log.warning("alert_not_posted", rule=rule, about=about, cause=error)

    def _posted(self, alert: Mapping[str, Any]) -> str | None:
        """None once the webhook took it, or where there is none."""
        error = None
        for attempt in range(_POST_TRIES if self._post else 0):
            assert self._post is not None
            if attempt and self._stop.wait(_POST_PAUSE_S * attempt):
                break
            error = self._post(alert)
            if error is None:
                return None
        return error


def _metric(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Metric:
    return Metric(f"hongyan_{name}", text, ("rule", *labels), registry=registry)
