"""Rules for look-back: the terms of each kind of business transaction."""

from __future__ import annotations

from typing import Final

from producer.doctor.facts import Facts, LookbackFacts, LookbackKindFacts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("lookback")
LEAST_SPAN_S: Final = 3_600.0
"""Time for which the business's endpoint may be away without a person having to decide."""
_DAY_MS: Final = 86_400_000


def _kinds(facts: Facts) -> list[LookbackKindFacts]:
    return facts.lookback.kinds if facts.lookback is not None else []


def _of(kind: LookbackKindFacts, seen: str, key: str, wanted: str, value: str) -> Seen:
    place = f"lookback.biz_types.{kind.name}"
    return Seen(
        kind.name, seen, f"{place}.{key}", wanted, f"hongyan.toml: [{place}] {key} = {value}"
    )


@BOOK.rule(
    "lookback-check",
    Severity.WARNING,
    "Each kind of transaction can be asked for",
    "The business dies between its commit and the word to look-back. Nobody can be asked, so the message of"
    " a committed order waits for a person, and a code expires meanwhile.",
)
def check(facts: Facts) -> Said:
    """lookback.biz_types.NAME.check."""
    for kind in _kinds(facts):
        if not kind.check:
            yield _of(kind, "no check", "check", "an endpoint", f'"{kind.name}"')


@BOOK.rule(
    "lookback-deadline",
    Severity.ERROR,
    "A transaction is asked for before its deadline",
    "The deadline comes before the first check: every transaction whose word got lost is parked unasked,"
    " and its message waits for a person although the business committed.",
)
def deadline(facts: Facts) -> Said:
    """deadline_s against immunity_s and one pause."""
    for kind in _kinds(facts):
        least = kind.immunity_s + kind.check_s
        if kind.check and kind.deadline_s <= least:
            seen = f"deadline_s={kind.deadline_s:g}, immunity_s={kind.immunity_s:g}"
            yield _of(kind, seen, "deadline_s", f"above {least:g}", f"{4 * least:g}")


@BOOK.rule(
    "lookback-span",
    Severity.WARNING,
    "Checks go on for an hour at least",
    "The business's endpoint is away for a deployment. Its checks are spent before it is back, and all"
    " transactions of that time wait for a person.",
)
def span(facts: Facts) -> Said:
    """check_s, longest_pause_s and max_checks."""
    for kind in _kinds(facts):
        if kind.check and kind.span_s < LEAST_SPAN_S:
            seen = f"{kind.max_checks} checks within {kind.span_s:g} s"
            wanted = f"≥ {LEAST_SPAN_S:g} s from the first to the last"
            yield _of(kind, seen, "max_checks", wanted, "15")


@BOOK.rule(
    "lookback-transaction",
    Severity.WARNING,
    "An unfenced ROLLBACK counts before the deadline",
    "A ROLLBACK of a check that does not fence counts only after the longest transaction. The deadline"
    " comes first: each rolled-back transaction is parked, and committed ones drown among them.",
)
def transaction(facts: Facts) -> Said:
    """longest_transaction_s against deadline_s."""
    for kind in _kinds(facts):
        if kind.check and kind.longest_transaction_s >= kind.deadline_s:
            seen = f"longest_transaction_s={kind.longest_transaction_s:g}, deadline_s={kind.deadline_s:g}"
            wanted = f"below {kind.deadline_s:g}"
            value = f"{kind.deadline_s / 10:g}"
            yield _of(kind, seen, "longest_transaction_s", wanted, value)


@BOOK.rule(
    "lookback-lease",
    Severity.WARNING,
    "A check ends within its lease",
    "Another process takes the check over while the first one waits for its answer. The answer comes too"
    " late and is dropped: a committed message goes later by a whole pause, or is parked.",
)
def lease(facts: Facts) -> Said:
    """lookback.checks.NAME.timeout_s against lookback.lease_s."""
    for kind in _kinds(facts):
        lease_s = facts.lookback.lease_s if facts.lookback is not None else 0.0
        if kind.check and kind.check_timeout_s >= lease_s:
            seen = f"timeout_s={kind.check_timeout_s:g}, lookback.lease_s={lease_s:g}"
            fix = f"hongyan.toml: [lookback] lease_s = {4 * kind.check_timeout_s:g}"
            where = f"lookback.checks.{kind.check}.timeout_s"
            yield Seen(kind.name, seen, where, f"below {lease_s:g}", fix)


@BOOK.rule(
    "lookback-keep",
    Severity.ERROR,
    "Transactions outlive the look-back topic",
    "Offsets are reset, and a record is read again whose transaction has left the table: its prepare begins"
    " anew, is asked for, and the message goes a second time.",
    needs=("cluster",),
)
def keep(facts: Facts) -> Said:
    """lookback.keep_days against retention.ms of the topic."""
    found = facts.lookback
    state = facts.cluster.topics.get(found.topic) if facts.cluster and found else None
    if found is None or state is None or not state.partitions:
        return
    if state.refusal:
        yield NotKnown(found.topic, state.refusal)
        return
    kept_ms = int(state.value("retention.ms") or -1)
    if kept_ms < 0 or kept_ms >= found.keep_days * _DAY_MS:
        yield _kept_too_long(found, kept_ms)


def _kept_too_long(found: LookbackFacts, kept_ms: int) -> Seen:
    kept = "for ever" if kept_ms < 0 else f"{kept_ms / _DAY_MS:g} days"
    seen = f"lookback.keep_days={found.keep_days}; the topic keeps records {kept}"
    days = 1 + max(found.keep_days, -(-kept_ms // _DAY_MS))
    fix = f"hongyan.toml: [lookback] keep_days = {days}"
    if kept_ms < 0:
        fix = f"kafka-configs.sh --alter --topic {found.topic} --add-config retention.ms=691200000"
    return Seen(found.topic, seen, "lookback.keep_days", "more days than the topic", fix)
