"""Reads a business producer's configuration: `key=value` lines, of Java's client or of librdkafka. Pure
functions.

Java's names become librdkafka's, and the client's defaults are filled in, as it adjusts them to the given
keys, so that rules know one vocabulary. A file without a key of one client alone is read as both would read
it. Values of keys that hold secrets are not kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from producer.doctor.client_facts import PRODUCER_DEFAULTS
from producer.doctor.client_keys import ONLY_JAVA, ONLY_LIBRDKAFKA
from producer.doctor.facts import ClientFacts

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
_TRANSACTIONS: Final = "transactional.id"
_TRANSACTION_MS: Final = "transaction.timeout.ms"
_IDEMPOTENCE: Final = "enable.idempotence"
_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_MOST_IN_FLIGHT: Final = 5
_TRUE: Final = ("true", "t", "1")


def producer_of(name: str, text: str, topics: Sequence[str]) -> ClientFacts:
    """Returns the producer that the file describes. Raises ValueError, with the line, for one that is no
    `key=value`."""
    given, lines = _given(text)
    config, places = {}, {}
    for key, value in given.items():
        known = _ALIASES.get(key, key)
        if known in _KNOWN:
            config[known], places[known] = value, f"{name}:{lines[key]}"

    def librdkafka() -> ClientFacts:
        defaults = PRODUCER_DEFAULTS | _adjusted_by_librdkafka(given, config)
        return ClientFacts(name, defaults | config, list(topics), places, "librdkafka's default")

    def java() -> ClientFacts:
        own = places.copy()
        more = _java(given, own, name, lines)
        defaults = _JAVA_DEFAULTS | _adjusted_by_java(given, config)
        return ClientFacts(name, defaults | config | more, list(topics), own, "Java's default")

    if given.keys() & ONLY_JAVA:
        return java()
    if given.keys() & ONLY_LIBRDKAFKA:
        return librdkafka()
    return msgspec.structs.replace(java(), other=librdkafka())


def _adjusted_by_librdkafka(given: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Returns the defaults that follow from given keys (rd_kafka_conf_finalize in rdkafka_conf.c)."""
    found = {}
    transactions = bool(given.get(_TRANSACTIONS))
    if transactions:
        found[_IDEMPOTENCE] = "true"
        found["delivery.timeout.ms"] = given.get(_TRANSACTION_MS, "60000")
    if transactions or config.get(_IDEMPOTENCE, "").lower() in _TRUE:
        found[_IN_FLIGHT] = str(_MOST_IN_FLIGHT)
    return found


def _adjusted_by_java(given: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Returns the defaults that follow from given keys: without transactions the client switches its
    idempotence off for them (ProducerConfig.postProcessAndValidateIdempotenceConfigs)."""
    in_flight = config.get(_IN_FLIGHT, "")
    conflicts = (
        config.get("acks", "all") not in ("all", "-1")
        or given.get("retries") == "0"
        or (in_flight.isdigit() and int(in_flight) > _MOST_IN_FLIGHT)
    )
    return {_IDEMPOTENCE: "false"} if conflicts and not given.get(_TRANSACTIONS) else {}


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
