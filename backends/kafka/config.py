"""Configuration of our Kafka clients, with its reasons. Pure functions.

`kafka.client` in hongyan.toml may add any property (TLS, SASL, timeouts) except `OURS`. These keep messages
from being lost, doubled or reordered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from backends.settings import KafkaSettings, SettingsError

GroupProtocol = Literal["consumer", "classic"]
Config = dict[str, Any]

MAX_MESSAGE_BYTES: Final = 4 << 20
"""Above an envelope's 1 MiB: key and headers count too, and a dead letter carries more of them."""

_SAFE: Final = {
    "socket.keepalive.enable": True,
    "log.connection.close": False,  # brokers close idle connections; that is no news
    "reconnect.backoff.max.ms": 2_000,
}
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
_SAFE_PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "partitioner": "murmur2_random",  # as Java does, so that one key keeps to one partition
    "delivery.timeout.ms": 120_000,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "compression.type": "lz4",
    # Bounded: past it produce() raises BufferError, which is back-pressure.
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
    "linger.ms": 5,
}

CLASSIC_ASSIGNORS: Final = frozenset({"range", "roundrobin", "cooperative-sticky"})
_ASSIGNORS: Final[dict[GroupProtocol, tuple[str, ...]]] = {
    # The first of each spreads every topic. The second lets a worker join at all: the broker's own choice,
    # and the one of older workers (docs/decisions/063-every-lane-over-all-workers.md).
    "consumer": ("range", ""),
    "classic": ("roundrobin", "cooperative-sticky"),
}

OURS: Final = frozenset(
    {
        *("bootstrap.servers", "metadata.broker.list", "group.id", "group.protocol"),
        *("group.instance.id", "group.remote.assignor", "partition.assignment.strategy"),
        *("enable.auto.commit", "auto.commit.enable", "enable.auto.offset.store"),
        *("auto.offset.reset", "isolation.level", "check.crcs", "enable.partition.eof"),
        *("allow.auto.create.topics", "session.timeout.ms", "message.max.bytes"),
        *("acks", "request.required.acks", "enable.idempotence", "transactional.id"),
        *("max.in.flight", "max.in.flight.requests.per.connection", "partitioner"),
        *("retries", "message.send.max.retries", "delivery.timeout.ms", "message.timeout.ms"),
        *("queue.buffering.max.messages", "queue.buffering.max.kbytes"),
        *("queued.max.messages.kbytes", "queued.min.messages", "test.mock.num.brokers"),
    }
)
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
        if key in OURS or key.endswith("_cb"):
            raise SettingsError(
                f"kafka.client: {key!r} cannot be set, because the promise that no message is "
                "lost, doubled or reordered depends on it; remove the line"
            )


def common_config(settings: KafkaSettings, client_id: str = "") -> Config:
    """Returns the part that all clients share: address, the user's own properties, quiet reconnects."""
    check_client(settings.client)
    return {
        **_SAFE,
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
    return {**_SAFE_PRODUCER, **changes, **common_config(settings, client_id)}
