"""Rules for our topics: copies, retention, and their state now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from backends.kafka.inspection import TopicState
from backends.kafka.topic_demands import ALL_IN_SYNC, REPLICATION, alter, shortfalls
from producer.doctor.facts import Facts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("topic", "cluster")
_COPIES: Final = 3
_HOT_SHARE: Final = 0.5
_HOT_FACTOR: Final = 3
_HOT_RECORDS: Final = 1_000
_HOUR: Final = "the last hour"
NO_FLUSH: Final = str((1 << 63) - 1)


def _ours(facts: Facts) -> Iterator[TopicState]:
    """Yields our topics that exist."""
    for name in facts.plans:
        state = facts.cluster.topics.get(name) if facts.cluster else None
        if state is not None and state.partitions:
            yield state


def _known(facts: Facts, check: Callable[[TopicState], Said]) -> Said:
    """Checks each topic whose configuration was read; the others are not known."""
    for state in _ours(facts):
        if state.refusal:
            yield NotKnown(state.name, state.refusal)
        else:
            yield from check(state)


def _short(facts: Facts, key: str, severity: Severity | None = None) -> Said:
    """Says what `hongyan topics apply` says of this key."""

    def check(state: TopicState) -> Said:
        config = {name: one.value for name, one in state.config.items()}
        for one in shortfalls(facts.plans[state.name], state.replication, config):
            if one.key == key:
                source = state.config[key].source if key in state.config else "the cluster"
                name = "min.insync.replicas" if key == ALL_IN_SYNC else key
                yield Seen(
                    state.name, f"{name}={one.found}", source, one.wanted, one.remedy, severity
                )

    return _known(facts, check)


@BOOK.rule(
    "topic-exists",
    Severity.ERROR,
    "Every lane and every table of ours has its topic",
    "Producers of the lane get an error for every record, or the broker makes a topic with one copy"
    " and a short retention.",
)
def exists(facts: Facts) -> Said:
    """Each planned topic is there."""
    for name in facts.plans:
        state = facts.cluster.topics.get(name) if facts.cluster else None
        if state is None or (not state.partitions and not state.refusal):
            yield Seen(name, "no such topic", "the cluster", "a topic", "hongyan topics apply")
        elif not state.partitions:
            yield NotKnown(name, state.refusal)


@BOOK.rule(
    "topic-replication",
    Severity.ERROR,
    "Each partition has three copies",
    "The disk of one broker fails, and with it the only copy, or the last one while the other broker is"
    " down for an upgrade: every record in it is gone.",
    needs_brokers=True,
)
def replication(facts: Facts) -> Said:
    """replication.factor."""
    for state in _ours(facts):
        if state.replication < _COPIES:
            plan = facts.plans[state.name]
            remedy = next(
                one.remedy
                for one in shortfalls(plan, state.replication, {})
                if one.key == REPLICATION
            )
            seen = f"replication.factor={state.replication}"
            yield Seen(state.name, seen, "the topic's partitions", "≥ 3", remedy)


@BOOK.rule(
    "topic-min-isr",
    Severity.ERROR,
    "A write waits for two in-sync copies at least",
    "acks=all waits for the copies that are in sync. If that is the leader alone, it acknowledges alone,"
    " and its death takes acknowledged records along. The leader counts as one of them.",
    needs_brokers=True,
)
def min_isr(facts: Facts) -> Said:
    """min.insync.replicas. With fewer than three copies the command alone would stop all writes."""
    copies = {state.name: state.replication for state in _ours(facts)}
    for answer in _short(facts, "min.insync.replicas"):
        if isinstance(answer, Seen) and copies[answer.subject] < _COPIES:
            yield answer._replace(fix=f"once it has three copies: {answer.fix}")
        else:
            yield answer


@BOOK.rule(
    "topic-min-isr-all",
    Severity.ERROR,
    "min.insync.replicas is below the number of copies",
    "One broker is down, and every write of the topic is refused (NOT_ENOUGH_REPLICAS) until it is back:"
    " codes expire in their producers.",
)
def min_isr_all(facts: Facts) -> Said:
    """min.insync.replicas against replication.factor."""
    return _short(facts, ALL_IN_SYNC)


@BOOK.rule(
    "topic-unclean-election",
    Severity.ERROR,
    "No replica that lags behind becomes leader",
    "All in-sync copies are down and one that lags behind is elected: acknowledged records that it never"
    " had are cut from the log.",
)
def unclean(facts: Facts) -> Said:
    """unclean.leader.election.enable."""
    return _short(facts, "unclean.leader.election.enable")


@BOOK.rule(
    "topic-cleanup-policy",
    Severity.ERROR,
    "Our topics delete by age and never compact",
    "Compaction keeps the newest record of a key: of two notifications with one ordering key the first is"
    " removed before a worker reads it.",
)
def cleanup(facts: Facts) -> Said:
    """cleanup.policy."""
    return _short(facts, "cleanup.policy")


@BOOK.rule(
    "topic-retention",
    Severity.ERROR,
    "Lanes keep records longer than any TTL, shutdown and resend may last",
    "Workers are down longer than records are kept: Kafka removes what nobody has read. Nor can a lost"
    " one be found and sent again afterwards.",
)
def retention(facts: Facts) -> Said:
    """retention.ms against the policy."""
    longest = {lane.topic: lane.max_ttl_ms for lane in facts.lanes}
    for answer in _short(facts, "retention.ms"):
        if isinstance(answer, Seen):
            kept_ms = int(answer.seen.partition("=")[2])
            lane_ms = longest.get(answer.subject, 0)
            covers = kept_ms > lane_ms
            why = "it still covers this lane's own longest TTL" if covers else ""
            yield answer._replace(severity=Severity.WARNING if covers else None, why=why)
        else:
            yield answer


@BOOK.rule(
    "topic-retention-bytes",
    Severity.ERROR,
    "No size limit removes records before their time",
    "A burst fills the limit, and Kafka removes the oldest records although no worker has read them.",
)
def retention_bytes(facts: Facts) -> Said:
    """retention.bytes."""
    return _short(facts, "retention.bytes")


@BOOK.rule(
    "topic-message-size",
    Severity.ERROR,
    "A topic takes the largest record that is written to it",
    "The broker refuses a large envelope or dead letter (MSG_SIZE_TOO_LARGE): it never enters the log.",
)
def message_size(facts: Facts) -> Said:
    """max.message.bytes."""
    return _short(facts, "max.message.bytes")


@BOOK.rule(
    "topic-timestamp-type",
    Severity.INFO,
    "The clock that ages a topic's records is known",
    "With CreateTime the producers' clocks decide how old a record is. A producer whose clock is days"
    " behind writes records that retention removes at once.",
)
def timestamp_type(facts: Facts) -> Said:
    """message.timestamp.type, and the bounds of CreateTime."""

    def check(state: TopicState) -> Said:
        kind = state.config.get("message.timestamp.type")
        if kind is None or kind.value != "CreateTime" or state.name not in lanes:
            return
        yield Seen(
            state.name,
            "message.timestamp.type=CreateTime",
            kind.source,
            "LogAppendTime, or producers with synchronised clocks",
            alter(state.name, "message.timestamp.type", "LogAppendTime"),
        )

    lanes = {lane.topic for lane in facts.lanes}
    return _known(facts, check)


@BOOK.rule(
    "topic-flush",
    Severity.WARNING,
    "No topic flushes by a setting of its own",
    "None by itself: replicas keep an acknowledged record, not the disk of one of them. Flushing by hand"
    " makes every write wait, and producers time out under load.",
)
def flush(facts: Facts) -> Said:
    """flush.messages, flush.ms of the topic itself; the broker's have a rule of their own."""

    def check(state: TopicState) -> Said:
        for key in ("flush.messages", "flush.ms"):
            one = state.config.get(key)
            if one is not None and one.source == "the topic's own setting":
                fix = f"kafka-configs.sh --alter --topic {state.name} --delete-config {key}"
                yield Seen(state.name, f"{key}={one.value}", one.source, "unset", fix)

    return _known(facts, check)


@BOOK.rule(
    "topic-in-sync-now",
    Severity.ERROR,
    "Every partition has all its copies in sync now",
    "With fewer copies in sync than min.insync.replicas every write is refused; with fewer than all, the"
    " next failure may be the one that loses records.",
)
def in_sync(facts: Facts) -> Said:
    """The in-sync replicas of each partition, now."""
    for state in _ours(facts):
        behind = [one for one in state.partitions if 0 <= one.in_sync < one.replicas]
        if not behind:
            continue
        least = min(one.in_sync for one in behind)
        refused = least < int(state.value("min.insync.replicas") or 1)
        yield Seen(
            state.name,
            f"{len(behind)} of {len(state.partitions)} partitions short of copies, {least} in sync",
            "the partitions now",
            "all copies in sync",
            f"kafka-topics.sh --describe --topic {state.name} --under-replicated-partitions",
            None if refused else Severity.WARNING,
            "" if refused else "writes are still taken",
        )


@BOOK.rule(
    "partition-offline",
    Severity.ERROR,
    "Every partition has a leader",
    "Nobody reads or writes the partition: its records wait, and what is due meanwhile expires. If its"
    " disk is gone, so are they.",
)
def offline(facts: Facts) -> Said:
    """Partitions without a leader, of any topic."""
    for one in facts.cluster.offline if facts.cluster else ():
        fix = "kafka-topics.sh --describe --unavailable-partitions"
        yield Seen(one, "no leader", "the partitions now", "a leader", fix)


@BOOK.rule(
    "topic-partitions-changed",
    Severity.WARNING,
    "Ordered lanes keep their number of partitions",
    "More partitions move keys: an order's second notification is read by another worker before its first"
    " one was sent.",
)
def partitions_changed(facts: Facts) -> Said:
    """The number of partitions against the run before."""
    ordered = {lane.topic for lane in facts.lanes if lane.ordered}
    for state in _ours(facts):
        before, now = facts.partitions_before.get(state.name, 0), len(state.partitions)
        if state.name in ordered and before and before != now:
            yield Seen(
                state.name,
                f"{now} partitions, {before} at the run before",
                "the stored run before",
                "the same number, or a change while the lane is empty",
                f"hongyan lanes pause, then wait until `hongyan status` shows no lag of {state.name}",
            )


@BOOK.rule(
    "partition-hot",
    Severity.WARNING,
    "No partition takes most of a lane's records",
    "One key holds most records: they go through one partition of one worker. What waits behind it in an"
    " ordered lane expires while other partitions are idle.",
)
def hot(facts: Facts) -> Said:
    """The share of the partition that grew most."""
    for one in facts.cluster.growth if facts.cluster else ():
        total, count = sum(one.records.values()), len(one.records)
        largest = max(one.records, key=one.records.__getitem__)
        share = one.records[largest] / total
        if count < 2 or total < _HOT_RECORDS or share < max(_HOT_SHARE, _HOT_FACTOR / count):
            continue
        key = (
            f"; key {one.hot_key!r} is {one.hot_key_share:.0%} of its newest records"
            if one.hot_key
            else "; its records have no key in common"
        )
        yield Seen(
            one.topic,
            f"partition {largest} took {share:.0%} of {total:,} records{key}",
            f"offsets of {_HOUR}",
            f"about {1 / count:.0%}",
            "producers: a narrower ordering_key, such as the order's number; none where order does not"
            " matter",
        )
