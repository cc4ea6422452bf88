"""Reads a business producer's configuration: `key=value` lines, of Java's client or of librdkafka. Pure
functions.

Java's names become librdkafka's, and its defaults are filled in, so that rules know one vocabulary. Values
of keys that hold secrets are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from producer.doctor.client_facts import PRODUCER_DEFAULTS
from producer.doctor.facts import ClientFacts

_ONLY_LIBRDKAFKA: Final = frozenset(
    {
        *("metadata.broker.list", "partitioner", "message.max.bytes", "message.timeout.ms"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes", "request.required.acks"),
        *("max.in.flight", "queue.buffering.max.ms", "message.send.max.retries"),
    }
)
_ALIASES: Final = {
    "message.timeout.ms": "delivery.timeout.ms",
    "request.required.acks": "acks",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "queue.buffering.max.ms": "linger.ms",
    "max.request.size": "message.max.bytes",
}
_JAVA_DEFAULTS: Final = {
    "acks": "all",
    "enable.idempotence": "true",
    "max.in.flight.requests.per.connection": "5",
    "linger.ms": "5",
    "request.timeout.ms": "30000",
    "delivery.timeout.ms": "120000",
    "message.max.bytes": "1048576",
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "32768",
}
_KNOWN: Final = frozenset(PRODUCER_DEFAULTS)


def producer_of(name: str, text: str, topics: Sequence[str]) -> ClientFacts:
    """Returns the producer that the file describes. Raises ValueError, with the line, for one that is no
    `key=value`."""
    given, lines = _given(text)
    config, places = {}, {}
    for key, value in given.items():
        known = _ALIASES.get(key, key)
        if known in _KNOWN:
            config[known], places[known] = value, f"{name}:{lines[key]}"
    if given.keys() & _ONLY_LIBRDKAFKA:
        defaults, source = dict(PRODUCER_DEFAULTS), "librdkafka's default"
    else:
        defaults, source = dict(_JAVA_DEFAULTS), "Java's default"
        config |= _java(given, places, name, lines)
    return ClientFacts(name, defaults | config, list(topics), places, source)


def _given(text: str) -> tuple[dict[str, str], dict[str, int]]:
    given, lines = {}, {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        key, equals, value = stripped.partition("=")
        if not equals:
            raise ValueError(f"line {number}: write KEY=VALUE")
        given[key.strip()], lines[key.strip()] = value.strip(), number
    return given, lines


def _java(
    given: Mapping[str, str], places: dict[str, str], name: str, lines: Mapping[str, int]
) -> dict[str, str]:
    """Returns the settings that Java's client says otherwise; adds their places."""
    found = {}
    if "partitioner.class" in given:
        found["partitioner"] = given["partitioner.class"].rpartition(".")[2]
        places["partitioner"] = f"{name}:{lines['partitioner.class']}"
    if "buffer.memory" in given:
        found["queue.buffering.max.kbytes"] = str(int(given["buffer.memory"]) // 1_024)
        places["queue.buffering.max.kbytes"] = f"{name}:{lines['buffer.memory']}"
    if given.get("partitioner.ignore.keys", "").lower() == "true":
        found["partitioner"] = "ignores keys"
        places["partitioner"] = f"{name}:{lines['partitioner.ignore.keys']}"
    return found
