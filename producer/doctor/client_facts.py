"""The effective configuration of our own Kafka clients, with the defaults that rules compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backends.kafka.config import GroupProtocol, consumer_config, producer_config
from backends.settings import KafkaSettings, Settings
from backends.settings_reader import origin_of
from hongyan_client.options import ClientOptions
from hongyan_client.publisher import producer_config as publisher_config
from lookback.forwarder import forward_properties
from message.producer_properties import DELIVERY_TIMEOUT_MS
from message.vocabulary import dead_letter_topic
from producer.doctor.facts import ClientFacts

PRODUCER_DEFAULTS: Final = {
    "linger.ms": "5",
    "request.timeout.ms": "30000",
    "acks": "all",
    "enable.idempotence": "false",
    "max.in.flight.requests.per.connection": "1000000",
    "partitioner": "consistent_random",
    "delivery.timeout.ms": "300000",
    "message.max.bytes": "1000000",
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "1048576",
}
"""librdkafka's defaults."""
_CONSUMER_DEFAULTS: Final = {
    "max.poll.interval.ms": "300000",
    "session.timeout.ms": "45000",
    "heartbeat.interval.ms": "3000",
}
_LARGEST_ENVELOPE: Final = (1 << 20) + (64 << 10)
"""1 MiB, with key and headers."""


def own_producers(settings: Settings, lane_topics: Sequence[str]) -> list[ClientFacts]:
    """Returns the producers of workers, of `hongyan send` and campaigns, of the client with its defaults,
    of gateway, relay and look-back. Raises SettingsError."""
    config = PRODUCER_DEFAULTS | _texts(producer_config(settings.kafka, "", {}))
    sources = _sources(settings)
    dead = dead_letter_topic(settings.kafka.topic_prefix)
    found = [ClientFacts("worker", config, [dead], sources)]
    for name, delivery_s, place in _publishers(settings):
        found.append(_publisher(settings, name, delivery_s, place, lane_topics))
    if settings.lookback.biz_types:
        changes = forward_properties(settings.lookback.lease_s)
        forwarder = PRODUCER_DEFAULTS | _texts(producer_config(settings.kafka, "", changes))
        places = dict.fromkeys(changes, "lookback.lease_s")
        limit = {"message.max.bytes": str(_LARGEST_ENVELOPE)}
        found.append(
            ClientFacts("hongyan lookback", forwarder | limit, list(lane_topics), sources | places)
        )
    return found


def _publishers(settings: Settings) -> Iterator[tuple[str, float, str]]:
    """Yields name and delivery timeout of each process that uses the client's publisher, and the setting
    that the timeout follows from."""
    yield "hongyan send", DELIVERY_TIMEOUT_MS / 1_000, "message/producer_properties.py"
    yield "hongyan-client", ClientOptions().delivery_timeout_s, "ClientOptions.delivery_timeout_s"
    yield "hongyan gateway", settings.gateway.timeout_s, "gateway.timeout_s"
    if settings.relay.outbox_url:
        yield "hongyan relay", settings.relay.lease_s / 2, "relay.lease_s"


def _publisher(
    settings: Settings, name: str, delivery_s: float, place: str, topics: Sequence[str]
) -> ClientFacts:
    """Returns a publisher of the client (hongyan_client/publisher.py). Its records are envelopes."""
    given = publisher_config(settings.kafka.bootstrap, name, settings.kafka.client, delivery_s)
    config = PRODUCER_DEFAULTS | _texts(given) | {"message.max.bytes": str(_LARGEST_ENVELOPE)}
    places = dict.fromkeys(("delivery.timeout.ms", "request.timeout.ms"), place)
    places |= {"message.max.bytes": "the limit of an envelope, 1 MiB"}
    return ClientFacts(name, config, list(topics), places | _sources(settings))


def own_consumer(settings: Settings, protocol: GroupProtocol) -> ClientFacts:
    """Returns the workers' consumer. Raises SettingsError."""
    config = _CONSUMER_DEFAULTS | _texts(consumer_config(settings.kafka, protocol))
    return ClientFacts("worker", config, sources=_sources(settings))


def likely_protocol(
    settings: KafkaSettings, protocol_now: str, *, knows_kip_848: bool
) -> GroupProtocol:
    """Returns the protocol that workers use: as configured, else as the group has it now, else the new one
    where brokers know it."""
    if settings.group_protocol != "auto":
        return settings.group_protocol
    if protocol_now in ("consumer", "classic"):
        return "consumer" if protocol_now == "consumer" else "classic"
    return "consumer" if knows_kip_848 else "classic"


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
        if "password" not in key and "secret" not in key and "_cb" not in key
    }


def _sources(settings: Settings) -> dict[str, str]:
    """Returns the places of the properties that the user's configuration gave."""
    return {
        key: origin_of(settings.origins, f"kafka.client.{key}") or "kafka.client"
        for key in settings.kafka.client
    }
