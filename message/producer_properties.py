"""Properties of a librdkafka producer that neither loses, doubles nor reorders a record. Pure data.

The platform's own producers (backends/kafka/config.py) and the client of a business process
(hongyan_client/publisher.py) share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

Property = str | int | float | bool

MAX_MESSAGE_BYTES: Final = 4 << 20
"""Above an envelope's 1 MiB: key and headers count too, and a dead letter carries more of them."""
DELIVERY_TIMEOUT_MS: Final = 120_000
"""Time for all tries of one record, from its hand-over to the client."""
BUFFER_RECORDS: Final = 100_000
"""Records that librdkafka buffers at most."""
BUFFER_KBYTES: Final = 65_536
"""KiB of records that librdkafka buffers at most."""

SAFE: Final[Mapping[str, Property]] = {
    "socket.keepalive.enable": True,
    "log.connection.close": False,  # brokers close idle connections; that is no news
    "reconnect.backoff.max.ms": 2_000,
}
"""For every kind of client."""
LINGER_MS: Final = 5
SAFE_PRODUCER: Final[Mapping[str, Property]] = {
    "acks": "all",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "partitioner": "murmur2_random",  # as Java does, so that one key keeps to one partition
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "message.max.bytes": MAX_MESSAGE_BYTES,
    "compression.type": "lz4",
    # Bounded: past it produce() raises BufferError, which is back-pressure.
    "queue.buffering.max.messages": BUFFER_RECORDS,
    "queue.buffering.max.kbytes": BUFFER_KBYTES,
    "linger.ms": LINGER_MS,
}

_REQUEST_TIMEOUT_MS: Final = 30_000
"""librdkafka's default."""


def request_timeout_ms(delivery_ms: int) -> int:
    """Returns the broker's time for one request, so that two tries fit into a record's delivery."""
    return max(1_000, min(_REQUEST_TIMEOUT_MS, delivery_ms // 2 - LINGER_MS))


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
"""Properties that safety depends on; no configuration may set them."""
REASON: Final = (
    "cannot be set, because the promise that no message is lost, doubled or reordered depends on "
    "it; remove the line"
)


def refused_property(extra: Iterable[str]) -> str | None:
    """Returns the first property that a user must not set; None if all may be set."""
    return next((key for key in extra if key in OURS or key.endswith("_cb")), None)
