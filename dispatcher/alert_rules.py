"""When a person is called: rules over what `/metrics` shows, and over what the ledger knows of the fleet.

They read the numbers that everybody sees, so an alert and a dashboard cannot disagree. What one process
alone cannot know (who was lost, what is in doubt) is asked of the ledger (docs/alerts.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import structlog
from prometheus_client import CollectorRegistry

from backends.settings import AlertSettings
from dispatcher.alerts import Alert, Desk
from idempotency.alerting import Lost
from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)
LOOK_EVERY_S: Final = 5.0
_MS: Final = 1_000
_SPENT: Final = ("attempts_spent", "horizon_over")
"""Reasons of a row whose retries are spent, up to their colon."""
Key = tuple[str, str, str]
"""Rule, lane, and what it is about."""


class Sample(NamedTuple):
    """One number of `/metrics`."""

    name: str
    labels: Mapping[str, str]
    value: float


class Level(NamedTuple):
    """Calls while a gauge is at its limit or above."""

    rule: str
    metric: str
    limit: float
    text: str
    about: str = ""
    """The label that tells one such alert of a lane from another."""


class Lasting(NamedTuple):
    """Calls when a gauge has not been 0 for so many seconds."""

    rule: str
    metric: str
    seconds: float
    text: str
    about: str = ""


class Rules(NamedTuple):
    """What is looked at."""

    levels: Sequence[Level]
    lasting: Sequence[Lasting]


def rules_of(settings: AlertSettings) -> Rules:
    """The rules with these thresholds; one whose threshold is 0 is left out."""
    levels = (
        Level(
            "oldest_uncommitted",
            "hongyan_oldest_uncommitted_seconds",
            settings.uncommitted_s,
            "a record has waited {value:,.0f} s and its offset cannot pass",
        ),
        Level("lag", "hongyan_lag", settings.lag, "a worker is {value:,.0f} records behind"),
        Level(
            "dead_letters_held",
            "hongyan_dead_letters_held",
            1,
            "{value:,.0f} poison records wait for a permit and the lane is paused",
            "reason",
        ),
    )
    lasting = (
        Lasting(
            "breaker_open",
            "hongyan_breaker_state",
            settings.breaker_s,
            "the account's breaker has been open for {value:,.0f} s",
            "account",
        ),
    )
    return Rules([r for r in levels if r.limit], [r for r in lasting if r.seconds])


class Looking:
    """Remembers since when something lasts, and how far a counter had come. One thread's."""

    def __init__(self, rules: Rules, monotonic: Callable[[], float]) -> None:
        self._rules = rules
        self._monotonic = monotonic
        self._since: dict[Key, float] = {}
        self._parked: dict[str, float] = {}

    def look(self, samples: Iterable[Sample]) -> list[tuple[Alert, int]]:
        """What these numbers call for, and how often it came up."""
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(sample.name, []).append(sample)
        found = [(a, 1) for rule in self._rules.levels for a in _reached(rule, by_name)]
        found += [(a, 1) for rule in self._rules.lasting for a in self._lasted(rule, by_name)]
        return found + self._newly_parked(by_name.get("hongyan_settled_total", ()))

    def _lasted(self, rule: Lasting, by_name: Mapping[str, list[Sample]]) -> list[Alert]:
        now, alerts = self._monotonic(), []
        for _, labels, value in by_name.get(rule.metric, ()):
            key = (rule.rule, labels.get("lane", ""), labels.get(rule.about, ""))
            if not value:
                self._since.pop(key, None)
                continue
            seconds = now - self._since.setdefault(key, now)
            if seconds >= rule.seconds:
                alerts.append(Alert(*key, rule.text.format(value=seconds)))
        return alerts

    def _newly_parked(self, settled: Iterable[Sample]) -> list[tuple[Alert, int]]:
        """A worker parks what has no retry left, and nothing else."""
        alerts = []
        for _, labels, value in settled:
            if labels.get("outcome") != "PARKED":
                continue
            lane = labels["lane"]
            more = int(value - self._parked.get(lane, 0.0))
            self._parked[lane] = value
            if more > 0:
                alerts.append((parked(lane, _SPENT[0]), more))
        return alerts


class Fleet(Protocol):
    """What the ledger knows (idempotency/alerting.py). Raises LedgerError."""

    def lost(self, within_ms: int) -> list[Lost]:
        """Workers and recoveries lost in the last so many milliseconds."""
        ...

    def doubts(self, age_ms: int) -> dict[str, int]:
        """Lane to the age of its oldest doubt, in milliseconds, where that is at least `age_ms`."""
        ...


class Watchman:
    """Looks every few seconds and keeps the desk. Whatever goes wrong here ends nobody's work."""

    def __init__(
        self,
        registry: CollectorRegistry,
        looking: Looking,
        desk: Desk,
        fleet: Fleet,
        *,
        window_s: float,
        unknown_s: float = 0.0,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        """`unknown_s`: from which age on a doubt calls; 0: somebody else asks."""
        self._registry = registry
        self._looking = looking
        self._desk = desk
        self._fleet = fleet
        self._window_ms = int(window_s * _MS)
        self._unknown_ms = int(unknown_s * _MS)
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, for what happened last, then end; idempotent."""
        self._stop.set()
        self._desk.stop()
        if self._thread.is_alive():
            self._thread.join(self._every_s)

    def look_once(self) -> None:
        """Look, and tell what is due."""
        for alert, count in self._looking.look(_samples(self._registry)):
            self._desk.raise_(alert, count)
        try:
            self._ask_ledger()
        except LedgerError as exc:
            log.debug("ledger_not_asked", cause=str(exc))
        self._desk.flush()

    def _ask_ledger(self) -> None:
        for lost in self._fleet.lost(self._window_ms):
            self._desk.raise_(_of_lost(lost))
        doubts = self._fleet.doubts(self._unknown_ms) if self._unknown_ms else {}
        for lane, age_ms in doubts.items():
            text = f"a delivery has been in doubt for {age_ms / _MS:,.0f} s"
            self._desk.raise_(Alert("unknown_age", lane, "", text))

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(self._every_s)
            try:
                self.look_once()
            except Exception:  # whatever one look dies of: the next comes
                log.exception("alerts_failed")
            if stopping:
                return


def parked(lane: str, reason: str) -> Alert:
    """A delivery waits for a person; `reason` is ours up to a colon, the provider's code behind it."""
    short = reason.partition(":")[0]
    if short in _SPENT:
        return Alert("retries_spent", lane, short, "deliveries are parked: their retries are spent")
    return Alert("parked", lane, short, "deliveries are parked and wait for a person")


def _reached(rule: Level, by_name: Mapping[str, list[Sample]]) -> list[Alert]:
    return [
        Alert(
            rule.rule,
            labels.get("lane", ""),
            labels.get(rule.about, ""),
            rule.text.format(value=value),
        )
        for _, labels, value in by_name.get(rule.metric, ())
        if value >= rule.limit
    ]


def _of_lost(lost: Lost) -> Alert:
    text = f"{lost.id} (pid {lost.pid} on {lost.host}) ended without a farewell"
    return Alert("heartbeat_lost", "", lost.id, text)


def _samples(registry: CollectorRegistry) -> Iterable[Sample]:
    for family in registry.collect():
        for sample in family.samples:
            yield Sample(sample.name, sample.labels, sample.value)
