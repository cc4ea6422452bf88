"""Alert rules over the numbers of `/metrics`, and the monitor that applies them.

They read the numbers that everybody sees, so an alert and a dashboard cannot disagree. The ledger answers
questions about the whole fleet, such as lost workers (sending/alerts/fleet.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import structlog
from prometheus_client import CollectorRegistry

from backends.settings import AlertSettings
from message.reasons import (
    BY_CODE,
    INTAKE,
    NO_TEMPLATE,
    TEMPLATE_UNKNOWN,
    Mender,
    code_of,
    mender_of,
)
from sending.alerts.fleet import FleetAlerts
from sending.alerts.notifier import Alert, AlertNotifier
from sending.alerts.windows import Subject

log = structlog.get_logger(__name__)
LOOK_EVERY_S: Final = 5.0
_SPENT: Final = ("attempts_spent", "horizon_over")
"""Reasons of a row whose retries are spent, up to their colon."""
_RISING: Final = (
    (
        "records_removed",
        "hongyan_records_removed_total",
        "Kafka removed records before they were read; the log names topic, partition and offsets",
    ),
    (
        "log_began_anew",
        "hongyan_logs_begun_anew_total",
        "a topic was made anew or cut below its committed offset; the log names it",
    ),
)
"""Rule, counter, text: each rise raises an alert."""
_OF_OUR_TEMPLATES: Final = frozenset(
    row.code
    for row in INTAKE
    if row.mender is Mender.TEMPLATE_AUTHOR and row.code not in (TEMPLATE_UNKNOWN, NO_TEMPLATE)
)
"""Reasons whose notification surely names a template of the file."""
Key = tuple[str, str, str]
"""Rule, lane and label, such as the account."""


class Sample(NamedTuple):
    """One number of `/metrics`."""

    name: str
    labels: Mapping[str, str]
    value: float


class ThresholdRule(NamedTuple):
    """Raises an alert while a gauge is at its limit or above."""

    rule: str
    metric: str
    limit: float
    text: str
    about: str = ""
    """Label that distinguishes alerts of one lane."""


class DurationRule(NamedTuple):
    """Raises an alert while a gauge has not been 0 for so many seconds."""

    rule: str
    metric: str
    seconds: float
    text: str
    about: str = ""


class AlertRules(NamedTuple):
    """The rules of a process."""

    levels: Sequence[ThresholdRule]
    lasting: Sequence[DurationRule]


def rules_of(settings: AlertSettings) -> AlertRules:
    """Returns the rules with these thresholds; leaves out one whose threshold is 0."""
    levels = (
        ThresholdRule(
            "oldest_uncommitted",
            "hongyan_oldest_uncommitted_seconds",
            settings.uncommitted_s,
            "a record has waited {value:,.0f} s and its offset cannot pass",
        ),
        ThresholdRule(
            "lag", "hongyan_lag", settings.lag, "a worker is {value:,.0f} records behind"
        ),
        ThresholdRule(
            "dead_letters_held",
            "hongyan_dead_letters_held",
            1,
            "{value:,.0f} poison records wait for a permit and the lane is paused",
            "reason",
        ),
        ThresholdRule(
            "login_refused",
            "hongyan_login_refused",
            1,
            "the provider refuses the account's login: check its id and secret, the addresses that may"
            " call, our clock, and whether the application is on; the log has its code (login_refused)",
            "account",
        ),
        ThresholdRule(
            "policy_refused",
            "hongyan_policy_refused",
            1,
            "a process refused the newest policy version and goes on by an older one;"
            " its log says why (policy_refused)",
        ),
        *_rules_of_long_work(settings),
        ThresholdRule(
            "policy_lanes_kept",
            "hongyan_policy_lanes_kept",
            1,
            "{value:,.0f} lanes of a process follow the newest policy only after a restart",
        ),
    )
    lasting = (
        DurationRule(
            "breaker_open",
            "hongyan_breaker_state",
            settings.breaker_s,
            "the account's breaker has been open for {value:,.0f} s",
            "account",
        ),
    )
    return AlertRules([r for r in levels if r.limit], [r for r in lasting if r.seconds])


def _rules_of_long_work(settings: AlertSettings) -> tuple[ThresholdRule, ...]:
    """Returns the rules about resend jobs, campaigns and look-back."""
    return (
        ThresholdRule(
            "resend_job_paused",
            "hongyan_resend_jobs_paused",
            1,
            "a resend job paused itself, since too many of its deliveries failed or did not end;"
            " `hongyan resend jobs show` has the reason",
            "job",
        ),
        ThresholdRule(
            "campaign_paused",
            "hongyan_campaigns_paused",
            1,
            "a campaign paused itself, and its rows wait; `hongyan campaign show` has the reason",
            "campaign",
        ),
        ThresholdRule(
            "lookback_forward_late",
            "hongyan_lookback_oldest_committed_seconds",
            settings.lookback_s,
            "a committed message has not been forwarded for {value:,.0f} s;"
            " the log of hongyan lookback has the cause (not_forwarded)",
        ),
    )


class RuleEvaluator:
    """Remembers the start of lasting conditions and the last counts. For one thread."""

    def __init__(self, rules: AlertRules, monotonic: Callable[[], float]) -> None:
        self._rules = rules
        self._monotonic = monotonic
        self._since: dict[Key, float] = {}
        self._going_on: set[Subject] = set()
        self._risen: dict[tuple[str, str], float] = {}

    def look(self, samples: Iterable[Sample]) -> list[tuple[Alert, int]]:
        """Returns the alerts of these numbers, each with a count; 0: it goes on since the last look."""
        by_name: dict[str, list[Sample]] = {}
        for sample in samples:
            by_name.setdefault(sample.name, []).append(sample)
        found = [a for rule in self._rules.levels for a in _reached(rule, by_name)]
        found += [a for rule in self._rules.lasting for a in self._lasted(rule, by_name)]
        counted = [(a, int(a.subject not in self._going_on)) for a in found]
        self._going_on = {a.subject for a in found}
        for rule, metric, text in _RISING:
            counted += self._rises(rule, by_name.get(metric, ()), text)
        return counted

    def _rises(self, rule: str, samples: Iterable[Sample], text: str) -> list[tuple[Alert, int]]:
        alerts = []
        for _, labels, value in samples:
            lane = labels["lane"]
            more = int(value - self._risen.get((rule, lane), 0.0))
            self._risen[rule, lane] = value
            if more > 0:
                alerts.append((Alert(rule, lane, "", text), more))
        return alerts

    def _lasted(self, rule: DurationRule, by_name: Mapping[str, list[Sample]]) -> list[Alert]:
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


class AlertMonitor:
    """Looks every few seconds, in a thread of its own. An error here ends no other work."""

    def __init__(
        self,
        registry: CollectorRegistry,
        looking: RuleEvaluator,
        desk: AlertNotifier,
        fleet: FleetAlerts,
        *,
        every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._registry = registry
        self._looking = looking
        self._desk = desk
        self._fleet = fleet
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Lets the thread look once more, for the last events, and end; idempotent."""
        self._stop.set()
        self._desk.stop()
        if self._thread.is_alive():
            self._thread.join(self._every_s)

    def look_once(self) -> None:
        """Looks once, and sends the due alerts."""
        for alert, count in self._looking.look(_samples(self._registry)):
            self._desk.raise_(alert, count)
        self._desk.flush()
        self._fleet.look()

    def _run(self) -> None:
        while True:
            stopping = self._stop.wait(self._every_s)
            try:
                self.look_once()
            except Exception:  # after any error the next look comes
                log.exception("alerts_failed")
            if stopping:
                self._fleet.stop()
                return


def parked(lane: str, reason: str, template: str = "") -> Alert:
    """Returns the alert of a parked delivery; `reason` is ours up to a colon, then the provider's code or a
    sentence. `template` is the name in its notification."""
    short = code_of(reason)
    if short in _SPENT:
        return Alert("retries_spent", lane, short, "deliveries are parked: their retries are spent")
    if mender_of(short):
        text = f"deliveries are parked until this is mended, then resent by hand: {_fault(reason)}"
        return Alert("parked", lane, _about(short, template), text)
    return Alert("parked", lane, short, "deliveries are parked and wait for a person")


def dropped(lane: str, reason: str, template: str = "") -> Alert:
    """Returns the alert of a delivery that a `best_effort` lane drops over a fault that can be mended."""
    text = f"deliveries are dropped until this is mended: {_fault(reason)}"
    return Alert("dropped", lane, _about(code_of(reason), template), text)


def _about(code: str, template: str) -> str:
    """Returns the code, and the template if it is one of ours: the names of others are without number."""
    return f"{code} {template}" if template and code in _OF_OUR_TEMPLATES else code


def _fault(reason: str) -> str:
    code, _, sentence = reason.partition(": ")
    row = BY_CODE.get(code)
    return sentence or (row.text if row is not None else code)


def _reached(rule: ThresholdRule, by_name: Mapping[str, list[Sample]]) -> list[Alert]:
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


def _samples(registry: CollectorRegistry) -> Iterable[Sample]:
    for family in registry.collect():
        for sample in family.samples:
            yield Sample(sample.name, sample.labels, sample.value)
