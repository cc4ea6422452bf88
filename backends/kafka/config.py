"""Configuration of our Kafka clients, with its reasons. Pure functions.

`kafka.client` in hongyan.toml may add any property (TLS, SASL, timeouts) except `OURS`. These keep messages
from being lost, doubled or reordered (message/producer_properties.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from backends.settings import KafkaSettings, SettingsError
from message.producer_properties import OURS as OURS
from message.producer_properties import REASON, SAFE, SAFE_PRODUCER, refused_property

GroupProtocol = Literal["consumer", "classic"]
Config = dict[str, Any]

_SAFE_CONSUMER: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,  # it would be stored before the message is handed over
    "auto.offset.reset": "earliest",  # a lane without commits is read from its start
    "isolation.level": "read_committed",
    "check.crcs": True,
    "enable.partition.eof": False,
    "allow.auto.create.topics": False,
    # Memory: all prefetched messages of the one consumer queue, whatever the backlog.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 2_000,
    "fetch.max.bytes": 2 << 20,
    "max.partition.fetch.bytes": 256 << 10,
    # A batch that zstd would inflate beyond this is refused by the client (docs/decisions/066).
    "receive.message.max.bytes": 32 << 20,
    "fetch.queue.backoff.ms": 10,  # the default second stalls a quick consumer
    "fetch.error.backoff.ms": 200,
    # A topic created later is found within this time.
    "topic.metadata.refresh.interval.ms": 5_000,
}
CLASSIC_ASSIGNORS: Final = frozenset({"range", "roundrobin", "cooperative-sticky"})
_ASSIGNORS: Final[dict[GroupProtocol, tuple[str, ...]]] = {
    # The first of each spreads every topic. The second lets a worker join at all: the broker's own choice,
    # and the one of older workers (docs/decisions/063-every-lane-over-all-workers.md).
    "consumer": ("range", ""),
    "classic": ("roundrobin", "cooperative-sticky"),
}

_SETTING_FOR: Final = {
    "bootstrap.servers": "kafka.bootstrap",
    "metadata.broker.list": "kafka.bootstrap",
    "group.id": "kafka.group_id",
    "group.protocol": "kafka.group_protocol",
    "group.instance.id": "kafka.group_instance_id",
    "session.timeout.ms": "kafka.session_timeout_s",
    "group.remote.assignor": "kafka.assignor",
    "partition.assignment.strategy": "kafka.assignor",
}


def check_client(extra: Mapping[str, object]) -> None:
    """Raises SettingsError for the first property that safety depends on."""
    for key in extra:
        if key in _SETTING_FOR:
            raise SettingsError(f"kafka.client: set {_SETTING_FOR[key]} instead of {key!r}")
        if refused_property([key]):
            raise SettingsError(f"kafka.client: {key!r} {REASON}")


def common_config(settings: KafkaSettings, client_id: str = "") -> Config:
    """Returns the part that all clients share: address, the user's own properties, quiet reconnects."""
    check_client(settings.client)
    return {
        **SAFE,
        **settings.client,
        "bootstrap.servers": settings.bootstrap,
        **({"client.id": client_id} if client_id else {}),
    }


def assignors(settings: KafkaSettings, protocol: GroupProtocol) -> list[str]:
    """Returns the assignors that a member offers, in this order; empty text: the broker's own choice."""
    asked = settings.assignor
    known = asked and (protocol == "consumer" or asked in CLASSIC_ASSIGNORS)
    return list(dict.fromkeys([*([asked] if known else []), *_ASSIGNORS[protocol]]))


def consumer_config(
    settings: KafkaSettings,
    protocol: GroupProtocol,
    client_id: str = "",
    assignor: str | None = None,
) -> Config:
    """Returns the configuration of a group member, with the first of `assignors` unless one is named; see
    `backends.kafka.clients.consumer`."""
    chosen = assignors(settings, protocol)[0] if assignor is None else assignor
    config = {
        **_SAFE_CONSUMER,
        **common_config(settings, client_id),
        "group.id": settings.group_id,
        "group.protocol": protocol,
    }
    if settings.group_instance_id:
        config["group.instance.id"] = settings.group_instance_id
    if protocol == "classic":  # under KIP-848 the broker decides both and refuses ours
        config["partition.assignment.strategy"] = chosen
        config["session.timeout.ms"] = int(settings.session_timeout_s * 1_000)
    elif chosen:
        config["group.remote.assignor"] = chosen
    return config


def producer_config(
    settings: KafkaSettings, client_id: str, changes: Mapping[str, int | str | bool]
) -> Config:
    """Returns the configuration of an idempotent producer; `changes` of our code replace defaults."""
    return {**SAFE_PRODUCER, **changes, **common_config(settings, client_id)}
