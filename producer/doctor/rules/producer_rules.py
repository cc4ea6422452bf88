"""Rules for producers: our own, and a business system's by its configuration file."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final

from producer.doctor.facts import ClientFacts, Facts
from producer.doctor.rule import Check, NotKnown, RuleBook, Said, Seen, Severity

BOOK: Final = RuleBook("producer")
_ALL: Final = ("all", "-1")
_TRUE: Final = ("true", "t", "1")
_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_MURMUR2: Final = ("murmur2_random", "murmur2")
_NEITHER: Final = (
    "the file shows neither Java's client nor librdkafka, whose defaults differ here: write the key of this"
    " rule, or a key that one client alone has"
)


def _each(check: Callable[[ClientFacts, Facts], Said]) -> Check:
    """Returns the rule that checks each producer. A file that shows neither client is checked as of both;
    the rule knows nothing where they differ."""

    @wraps(check)
    def checked(facts: Facts) -> Said:
        for one in facts.producers:
            answers = list(check(one, facts))
            if one.other is not None and answers != list(check(one.other, facts)):
                answers = [NotKnown(one.name, _NEITHER)]
            yield from answers

    return checked


def _differs(one: ClientFacts, key: str, allowed: tuple[str, ...], wanted: str) -> Said:
    if one.value(key).lower() not in allowed:
        yield _seen(one, key, wanted, one.value(key))


def _seen(one: ClientFacts, key: str, wanted: str, found: str) -> Seen:
    fix = f"{one.origin(key)}: {key}={wanted}"
    return Seen(one.name, f"{key}={found or 'unset'}", one.origin(key), f"{key}={wanted}", fix)


@BOOK.rule(
    "producer-acks",
    Severity.ERROR,
    "Producers wait for all in-sync replicas (acks=all)",
    "The leader acknowledges alone. It dies before a follower has the record, and the record is gone"
    " although the business was told yes.",
)
@_each
def acks(one: ClientFacts, _facts: Facts) -> Said:
    """acks=all."""
    return _differs(one, "acks", _ALL, "all")


@BOOK.rule(
    "producer-idempotence",
    Severity.ERROR,
    "Producers are idempotent",
    "The client repeats a batch whose acknowledgement got lost: the record is twice in the log, or"
    " behind a later one of its key.",
)
@_each
def idempotence(one: ClientFacts, _facts: Facts) -> Said:
    """enable.idempotence."""
    return _differs(one, "enable.idempotence", _TRUE, "true")


@BOOK.rule(
    "producer-in-flight",
    Severity.ERROR,
    "At most 5 requests per connection are in flight",
    "The broker remembers the last five batches of a producer and partition. With more in flight a"
    " repeated batch is no longer recognised, and records of one key change their order.",
)
@_each
def in_flight(one: ClientFacts, _facts: Facts) -> Said:
    """max.in.flight.requests.per.connection."""
    if not 1 <= one.number(_IN_FLIGHT) <= 5:
        yield _seen(one, _IN_FLIGHT, "5", one.value(_IN_FLIGHT))


@BOOK.rule(
    "producer-delivery-timeout",
    Severity.ERROR,
    "delivery.timeout.ms is at least linger.ms + request.timeout.ms",
    "The client gives a record up before its first request was answered: the caller hears a failure"
    " although the record may be in Kafka, and one slow answer is enough for it.",
)
@_each
def delivery_timeout(one: ClientFacts, _facts: Facts) -> Said:
    """delivery.timeout.ms against linger and request timeout."""
    least = one.number("linger.ms") + one.number("request.timeout.ms")
    if one.number("delivery.timeout.ms") < least:
        yield _seen(one, "delivery.timeout.ms", str(least), one.value("delivery.timeout.ms"))


@BOOK.rule(
    "producer-delivery-ttl",
    Severity.WARNING,
    "delivery.timeout.ms is shorter than the TTL of verification lanes",
    "The broker takes a code after its TTL: the producer was told yes, and the worker lets the code"
    " expire unsent.",
)
@_each
def delivery_ttl(one: ClientFacts, facts: Facts) -> Said:
    """delivery.timeout.ms against the shortest TTL that the producer writes for."""
    codes = [
        lane
        for lane in facts.lanes
        if lane.name.endswith(".verification") and lane.topic in one.writes
    ]
    shortest = min((lane.ttl_ms for lane in codes), default=0)
    if shortest and one.number("delivery.timeout.ms") >= shortest:
        found = f"{one.value('delivery.timeout.ms')}, and the shortest TTL is {shortest}"
        yield _seen(one, "delivery.timeout.ms", f"below {shortest}", found)


@BOOK.rule(
    "producer-partitioner",
    Severity.ERROR,
    "All producers put one key into one partition (murmur2)",
    "Java's clients and librdkafka choose different partitions for one key: two records of one order"
    " are read by two workers, in any order.",
)
@_each
def partitioner(one: ClientFacts, _facts: Facts) -> Said:
    """partitioner."""
    return _differs(one, "partitioner", _MURMUR2, "murmur2_random")


@BOOK.rule(
    "producer-buffer",
    Severity.WARNING,
    "The producer's buffer is bounded",
    "While the broker is away the buffer grows until the process is killed for its memory, and all"
    " that was in the buffer is lost at once.",
)
@_each
def buffer(one: ClientFacts, _facts: Facts) -> Said:
    """queue.buffering.max.*."""
    most = 1 << 20
    if one.number("queue.buffering.max.messages") <= 0:
        yield _seen(one, "queue.buffering.max.messages", "100000", "0 (no limit)")
    if one.number("queue.buffering.max.kbytes") > most:
        found = one.value("queue.buffering.max.kbytes")
        yield _seen(one, "queue.buffering.max.kbytes", "65536", found)


@BOOK.rule(
    "producer-message-size",
    Severity.ERROR,
    "The largest record of a producer fits its topics",
    "The client takes a record that the broker then refuses (MSG_SIZE_TOO_LARGE): a caller that does"
    " not read the acknowledgement loses it.",
    needs=("cluster",),
)
@_each
def message_size(one: ClientFacts, facts: Facts) -> Said:
    """message.max.bytes against max.message.bytes of each topic."""
    topics = facts.cluster.topics if facts.cluster else {}
    for name in one.writes:
        if name not in topics or not topics[name].partitions:
            continue
        if topics[name].refusal:
            yield NotKnown(name, topics[name].refusal)
            continue
        limit = int(topics[name].value("max.message.bytes") or 0)
        if one.number("message.max.bytes") > limit:
            found = f"message.max.bytes={one.value('message.max.bytes')} above the topic's {limit}"
            yield Seen(
                f"{one.name} → {name}",
                found,
                topics[name].config["max.message.bytes"].source,
                "message.max.bytes ≤ max.message.bytes",
                f"kafka-configs.sh --alter --topic {name} --add-config"
                f" max.message.bytes={one.value('message.max.bytes')}",
            )
