"""Rules for the brokers and for Kafka's own topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from backends.kafka.inspection import BrokerState, ConfigValue
from backends.kafka.topic_demands import alter
from producer.doctor.facts import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Facts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("broker", "cluster")
_COPIES: Final = 3
_IN_SYNC: Final = 2
_NEVER: Final = ("", str((1 << 63) - 1))
_MINUTES_A_DAY: Final = 1_440


def _brokers(facts: Facts, key: str) -> Iterator[tuple[str, ConfigValue] | NotKnown]:
    """Yields the value of each broker, by the broker's name."""
    for broker in facts.cluster.brokers if facts.cluster else ():
        if broker.refusal:
            yield NotKnown(_name(broker), broker.refusal)
        elif key in broker.config:
            yield _name(broker), broker.config[key]


def _name(broker: BrokerState) -> str:
    return f"broker {broker.id}"


def _demand(facts: Facts, key: str, wrong: Callable[[str], bool], wanted: str, fix: str) -> Said:
    for one in _brokers(facts, key):
        if isinstance(one, NotKnown):
            yield one
        elif wrong(one[1].value):
            yield Seen(one[0], f"{key}={one[1].value}", one[1].source, wanted, fix)


def _set_all(key: str, value: str) -> str:
    return f"kafka-configs.sh --alter --entity-type brokers --entity-default --add-config {key}={value}"


def _in_file(key: str, value: str) -> str:
    return f"server.properties of every broker: {key}={value}, then restart one after another"


@BOOK.rule(
    "broker-unclean-election",
    Severity.WARNING,
    "Brokers elect no leader that lags behind, by default",
    "A topic without a setting of its own, such as Kafka's own offsets, loses acknowledged records when"
    " its in-sync copies are down.",
)
def unclean(facts: Facts) -> Said:
    """unclean.leader.election.enable of the brokers."""
    key = "unclean.leader.election.enable"
    return _demand(facts, key, lambda value: value == "true", "false", _set_all(key, "false"))


@BOOK.rule(
    "broker-auto-create",
    Severity.ERROR,
    "Brokers make no topic by themselves",
    "A misspelt topic is made at the first record, with few copies. The producer is told yes, and no"
    " worker ever reads it.",
)
def auto_create(facts: Facts) -> Said:
    """auto.create.topics.enable."""
    key = "auto.create.topics.enable"
    return _demand(facts, key, lambda value: value == "true", "false", _in_file(key, "false"))


def _own_topic(facts: Facts, topic: str, keys: tuple[str, str]) -> Said:
    """Checks one of Kafka's own topics as it is; if it is not made yet, what it will be."""
    state = facts.cluster.topics.get(topic) if facts.cluster else None
    if state is not None and state.refusal:
        yield NotKnown(topic, state.refusal)
    elif state is not None and state.partitions:
        if state.replication < _COPIES:
            fix = f"kafka-reassign-partitions.sh --execute, with 3 brokers for each partition of {topic}"
            seen = f"replication.factor={state.replication}"
            yield Seen(topic, seen, "the topic's partitions", "≥ 3", fix)
        least = int(state.value("min.insync.replicas") or 0)
        if least < _IN_SYNC:
            source = state.config["min.insync.replicas"].source
            fix = alter(topic, "min.insync.replicas", "2")
            if state.replication < _COPIES:  # the command alone would stop all writes
                fix = f"once it has three copies: {fix}"
            yield Seen(topic, f"min.insync.replicas={least}", source, "2", fix)
    else:
        for key, wanted in zip(keys, (_COPIES, _IN_SYNC), strict=True):
            yield from _demand(
                facts,
                key,
                lambda value, wanted=wanted: int(value or 0) < wanted,  # type: ignore[misc]
                f"≥ {wanted}",
                _in_file(key, str(wanted)),
            )


@BOOK.rule(
    "broker-offsets-topic",
    Severity.ERROR,
    "The topic of committed offsets has three copies, two in sync",
    "The broker with the only copy of a group's offsets dies: workers begin at the oldest record, and all"
    " that is kept is read again.",
    needs_brokers=True,
)
def offsets_topic(facts: Facts) -> Said:
    """__consumer_offsets."""
    keys = ("offsets.topic.replication.factor", "min.insync.replicas")
    return _own_topic(facts, OFFSETS_TOPIC, keys)


@BOOK.rule(
    "broker-transaction-topic",
    Severity.ERROR,
    "The topic of transactions has three copies, two in sync",
    "Business systems with transactional producers lose the state of open transactions: their records"
    " stay invisible to read_committed, and so do later ones of the partition.",
    needs_brokers=True,
)
def transaction_topic(facts: Facts) -> Said:
    """__transaction_state."""
    keys = ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
    return _own_topic(facts, TRANSACTIONS_TOPIC, keys)


@BOOK.rule(
    "broker-flush",
    Severity.WARNING,
    "Flush settings are unset, or set together with their scheduler",
    "Somebody relies on a flush that never runs: log.flush.interval.ms is looked at once in"
    " log.flush.scheduler.interval.ms, which by default is never. A power cut of all brokers then takes"
    " what they held in memory.",
)
def flush(facts: Facts) -> Said:
    """log.flush.interval.ms without log.flush.scheduler.interval.ms."""
    for broker in facts.cluster.brokers if facts.cluster else ():
        if broker.refusal:
            yield NotKnown(_name(broker), broker.refusal)
            continue
        interval = broker.config.get("log.flush.interval.ms")
        scheduler = broker.config.get("log.flush.scheduler.interval.ms")
        if interval is None or interval.value in _NEVER:
            continue
        if scheduler is None or scheduler.value in _NEVER:
            yield Seen(
                _name(broker),
                f"log.flush.interval.ms={interval.value} without its scheduler",
                interval.source,
                "both unset, or log.flush.scheduler.interval.ms set, too",
                _in_file("log.flush.scheduler.interval.ms", "1000"),
            )


@BOOK.rule(
    "broker-log-dirs",
    Severity.ERROR,
    "Brokers keep their logs outside of /tmp",
    "A reboot or a nightly clean-up empties /tmp, and with it every record of that broker.",
    needs_brokers=True,
)
def log_dirs(facts: Facts) -> Said:
    """log.dirs, else log.dir."""
    for broker in facts.cluster.brokers if facts.cluster else ():
        if broker.refusal:
            yield NotKnown(_name(broker), broker.refusal)
            continue
        found = next(
            (
                broker.config[key]
                for key in ("log.dirs", "log.dir")
                if key in broker.config and broker.config[key].value
            ),
            None,
        )
        if found is not None and any(_is_temporary(one) for one in found.value.split(",")):
            fix = _in_file("log.dirs", "/var/lib/kafka")
            yield Seen(
                _name(broker), f"log.dirs={found.value}", found.source, "a lasting disk", fix
            )


def _is_temporary(folder: str) -> bool:
    return f"{folder.strip()}/".startswith(("/tmp/", "/var/tmp/", "/dev/shm/"))  # noqa: S108 (compared)


@BOOK.rule(
    "broker-offsets-retention",
    Severity.ERROR,
    "Committed offsets outlive the longest shutdown",
    "Workers are stopped for longer than offsets are kept: the group's places are forgotten, and every"
    " record that is still kept is read again.",
)
def offsets_retention(facts: Facts) -> Said:
    """offsets.retention.minutes."""
    days = facts.deployment.outage_days
    least = days * _MINUTES_A_DAY
    return _demand(
        facts,
        "offsets.retention.minutes",
        lambda value: int(value or 0) <= least,
        f"more than {least} ({days} days)",
        _in_file("offsets.retention.minutes", str(max(10_080, 2 * least))),
    )
