"""Rules for the workers' consumer and its group."""

from __future__ import annotations

from typing import Final

from producer.doctor.facts import Facts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("consumer")
_COOPERATIVE: Final = "cooperative-sticky"
_LEAST_POLL_MS: Final = 60_000
_MOST_QUEUE_KB: Final = 1 << 18
_FALSE: Final = ("false", "0")


def _demand(facts: Facts, key: str, allowed: tuple[str, ...], wanted: str) -> Said:
    one = facts.consumer
    if one.value(key).lower() not in allowed:
        seen = f"{key}={one.value(key) or 'unset'}"
        fix = f"{one.origin(key)}: {key}={wanted}"
        yield Seen(one.name, seen, one.origin(key), f"{key}={wanted}", fix)


@BOOK.rule(
    "consumer-auto-commit",
    Severity.ERROR,
    "The client commits no offset by itself",
    "A timer commits records that are still in memory. The worker is killed, and its successor begins"
    " behind them.",
)
def auto_commit(facts: Facts) -> Said:
    """enable.auto.commit."""
    return _demand(facts, "enable.auto.commit", _FALSE, "false")


@BOOK.rule(
    "consumer-offset-store",
    Severity.ERROR,
    "The client stores no offset by itself",
    "An offset counts as done once its record was polled: a kill before the ledger has it loses it.",
)
def offset_store(facts: Facts) -> Said:
    """enable.auto.offset.store."""
    return _demand(facts, "enable.auto.offset.store", _FALSE, "false")


@BOOK.rule(
    "consumer-offset-reset",
    Severity.ERROR,
    "Without a committed offset the group begins at the oldest record",
    "With `latest` a new lane, or a group whose offsets are gone, passes over everything that waits.",
)
def offset_reset(facts: Facts) -> Said:
    """auto.offset.reset."""
    allowed = ("earliest", "smallest", "beginning", "error")
    return _demand(facts, "auto.offset.reset", allowed, "earliest")


@BOOK.rule(
    "consumer-poll-interval",
    Severity.WARNING,
    "max.poll.interval.ms is a minute at least",
    "A pause of the process counts as its death: partitions move, and what was at providers is in doubt.",
)
def poll_interval(facts: Facts) -> Said:
    """max.poll.interval.ms."""
    one, key = facts.consumer, "max.poll.interval.ms"
    if one.number(key) < _LEAST_POLL_MS:
        seen, fix = f"{key}={one.value(key)}", f"{one.origin(key)}: {key}=300000"
        yield Seen(one.name, seen, one.origin(key), f"≥ {_LEAST_POLL_MS}", fix)


@BOOK.rule(
    "consumer-session",
    Severity.WARNING,
    "The session lasts three heartbeats at least",
    "One lost heartbeat ends the member: partitions move although the worker lives, and what it sends"
    " meanwhile may be read again.",
)
def session(facts: Facts) -> Said:
    """session.timeout.ms against heartbeat.interval.ms; under KIP-848 the brokers'."""
    one = facts.consumer
    if one.value("group.protocol") != "consumer":
        yield from _short_session(
            one.name,
            one.number("session.timeout.ms"),
            one.number("heartbeat.interval.ms"),
            "kafka.session_timeout_s",
            "hongyan.toml: [kafka] session_timeout_s = 15",
        )
        return
    keys = ("group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms")
    for broker in facts.cluster.brokers if facts.cluster else ():
        if broker.refusal:
            yield NotKnown(f"broker {broker.id}", broker.refusal)
        elif all(key in broker.config for key in keys):
            long, beat = (int(broker.config[key].value) for key in keys)
            source, fix = broker.config[keys[0]].source, f"server.properties: {keys[0]}=45000"
            yield from _short_session(f"broker {broker.id}", long, beat, source, fix)


def _short_session(subject: str, long_ms: int, beat_ms: int, source: str, fix: str) -> Said:
    if long_ms < 3 * beat_ms:
        seen = f"session {long_ms} ms, heartbeat {beat_ms} ms"
        yield Seen(subject, seen, source, f"session ≥ {3 * beat_ms} ms", fix)


@BOOK.rule(
    "consumer-assignor",
    Severity.WARNING,
    "A rebalance takes only the partitions that move (KIP-848, or cooperative)",
    "Every restart of one worker stops all of them for the length of the rebalance: what is short-lived"
    " expires meanwhile.",
)
def assignor(facts: Facts) -> Said:
    """The group's protocol and assignor: as the brokers have it, else as configured."""
    one, group = facts.consumer, facts.cluster.group if facts.cluster else None
    if group is not None and group.refusal:
        yield NotKnown(f"group {group.id}", group.refusal)
    protocol = (group.protocol if group else "") or one.value("group.protocol")
    configured = one.value("partition.assignment.strategy")
    named = (group.assignor if group else "") or configured
    if protocol == "classic" and named != _COOPERATIVE:
        yield Seen(
            f"group {group.id}" if group else one.name,
            f"classic protocol, assignor {named}",
            "the group now" if group and group.protocol else one.origin("group.protocol"),
            "KIP-848, or cooperative-sticky",
            'hongyan.toml: [kafka] group_protocol = "consumer" (brokers from 4.0), else'
            ' assignor = "cooperative-sticky"',
        )


@BOOK.rule(
    "consumer-static",
    Severity.INFO,
    "Members keep their partitions over a restart (static membership)",
    "None. Without an instance id each restart moves partitions away and back, and they wait twice.",
)
def static(facts: Facts) -> Said:
    """group.instance.id."""
    if not facts.consumer.value("group.instance.id"):
        fix = "hongyan.toml: [kafka] group_instance_id, one for each worker"
        wanted = "an id of its own for each worker that keeps its name"
        yield Seen("workers", "group.instance.id unset", "kafka.group_instance_id", wanted, fix)


@BOOK.rule(
    "consumer-isolation",
    Severity.ERROR,
    "Only committed transactions are read (read_committed)",
    "A business transaction was rolled back, and its notification is sent all the same.",
)
def isolation(facts: Facts) -> Said:
    """isolation.level."""
    return _demand(facts, "isolation.level", ("read_committed",), "read_committed")


@BOOK.rule(
    "consumer-crcs",
    Severity.ERROR,
    "Checksums of records are compared",
    "A bit that flipped on the way or on the disk changes a number or a code, and nobody hears of it.",
)
def crcs(facts: Facts) -> Said:
    """check.crcs."""
    return _demand(facts, "check.crcs", ("true", "1"), "true")


@BOOK.rule(
    "consumer-queue",
    Severity.WARNING,
    "The client's queue is bounded",
    "A backlog fills the memory of the worker: it is killed, comes back, and is killed again.",
)
def queue(facts: Facts) -> Said:
    """queued.max.messages.kbytes."""
    one, key = facts.consumer, "queued.max.messages.kbytes"
    if not 0 < one.number(key) <= _MOST_QUEUE_KB:
        seen, fix = f"{key}={one.value(key) or 'unset'}", f"{one.origin(key)}: {key}=4096"
        yield Seen(one.name, seen, one.origin(key), f"1 to {_MOST_QUEUE_KB}", fix)
