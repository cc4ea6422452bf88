"""Holds facts against the rules. Pure functions; a fact that is not known never passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from producer.doctor.facts import Facts
from producer.doctor.rule import ONE_BROKER, DoctorRule, NotKnown, Seen, Severity

Status = Literal["ok", "found", "unknown"]
_ORDER: Final = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation of one rule, with all subjects that have it."""

    rule: str
    severity: Severity
    subjects: list[str]
    seen: str
    source: str
    wanted: str
    loss: str
    fixes: list[str]
    why: str = ""
    """Why the severity is not the rule's."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that could not be decided, or not for all subjects."""

    rule: str
    severity: Severity
    """The severity that a deviation would have."""
    subjects: list[str]
    reason: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    findings: list[DoctorFinding]
    unknown: list[Gap]
    passed: list[str]
    at_ms: int = 0
    took_ms: int = 0
    partitions: dict[str, int] = {}

    def count(self, severity: Severity) -> int:
        """Returns the number of findings of this severity."""
        return sum(one.severity is severity for one in self.findings)

    @property
    def healthy(self) -> bool:
        """Whether there is no error, and nothing unknown that could be one."""
        gaps = any(one.severity is Severity.ERROR for one in self.unknown)
        return not self.count(Severity.ERROR) and not gaps


def diagnose(facts: Facts, rules: Sequence[DoctorRule]) -> Diagnosis:
    """Returns what the rules say of these facts, errors first."""
    findings: list[DoctorFinding] = []
    unknown: list[Gap] = []
    passed: list[str] = []
    for rule in rules:
        seen, gaps = _applied(rule, facts)
        findings += _grouped(rule, seen, facts)
        unknown += _gathered(rule, gaps)
        if not seen and not gaps:
            passed.append(rule.id)
    findings.sort(key=lambda one: _ORDER[one.severity])
    return Diagnosis(
        findings=findings, unknown=unknown, passed=passed, partitions=_partitions(facts)
    )


def _applied(rule: DoctorRule, facts: Facts) -> tuple[list[Seen], list[NotKnown]]:
    lacking = [source for source in rule.needs if source in facts.missing]
    if lacking:
        return [], [NotKnown(source, facts.missing[source]) for source in lacking]
    answers = list(rule.check(facts))
    return (
        [one for one in answers if isinstance(one, Seen)],
        [one for one in answers if isinstance(one, NotKnown)],
    )


def _grouped(rule: DoctorRule, seen: Sequence[Seen], facts: Facts) -> list[DoctorFinding]:
    alike: dict[tuple[object, ...], list[Seen]] = {}
    for one in seen:
        key = (one.seen, one.source, one.wanted, one.severity, one.why)
        alike.setdefault(key, []).append(one)
    found = []
    for same in alike.values():
        first = same[0]
        severity, why = _severity(rule, first, facts)
        found.append(
            DoctorFinding(
                rule=rule.id,
                severity=severity,
                subjects=[one.subject for one in same],
                seen=first.seen,
                source=first.source,
                wanted=first.wanted,
                loss=rule.loss,
                fixes=list(dict.fromkeys(one.fix for one in same)),
                why=why,
            )
        )
    return found


def _severity(rule: DoctorRule, seen: Seen, facts: Facts) -> tuple[Severity, str]:
    """Returns the severity that counts, and the reason if it is not the rule's."""
    severity = seen.severity or rule.severity
    if rule.needs_brokers and facts.one_broker and severity is Severity.ERROR:
        return Severity.WARNING, ONE_BROKER
    return severity, seen.why


def _gathered(rule: DoctorRule, gaps: Sequence[NotKnown]) -> list[Gap]:
    reasons: dict[str, dict[str, None]] = {}
    for one in gaps:
        reasons.setdefault(one.reason, {})[one.subject] = None
    return [
        Gap(rule=rule.id, severity=rule.severity, subjects=[*subjects], reason=reason)
        for reason, subjects in reasons.items()
    ]


def _partitions(facts: Facts) -> dict[str, int]:
    topics = facts.cluster.topics if facts.cluster else {}
    return {
        name: len(topics[name].partitions)
        for name in facts.plans
        if name in topics and topics[name].partitions
    }
