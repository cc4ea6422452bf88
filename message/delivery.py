"""One notification to one receiver: the unit of the ledger, of idempotency and of the trace."""

from __future__ import annotations

import msgspec

from message.envelope import Notification
from message.keys import delivery_key, normalise_receiver


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where in Kafka the notification stood."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class Delivery(msgspec.Struct, kw_only=True):
    """One notification to one receiver, on its way through a worker.

    The first block never changes. `attempt`, `token` and `day` are set once by the claim (the thread
    that claims writes them before it hands the delivery on; later readers only read).
    """

    key: str
    receiver: str
    """Normalised by its channel."""
    lane: str
    notification: Notification
    payload: bytes
    """The envelope's bytes as they came, unknown fields and all."""
    expires_at: int
    """Epoch milliseconds; nothing is sent after it."""
    policy_version: str = ""
    origin: Origin | None = None

    attempt: int = 0
    """Provider calls made or being made for this delivery, from 1, across workers."""
    token: int = 0
    """Fencing token of the claim under which this attempt runs."""
    day: int = 0
    """Ledger partition, as days since 1970-01-01 by the database's clock."""
    account: str = ""
    """Account chosen for this attempt."""


def deliveries_of(
    notification: Notification,
    payload: bytes,
    *,
    expires_at: int,
    policy_version: str = "",
    origin: Origin | None = None,
) -> list[Delivery]:
    """One delivery per distinct receiver, in the order written; a receiver listed twice counts once."""
    channel, lane = notification.channel, notification.lane.name
    receivers = dict.fromkeys(normalise_receiver(channel, r) for r in notification.receivers)
    return [
        Delivery(
            key=delivery_key(notification.id, channel, receiver),
            receiver=receiver,
            lane=lane,
            notification=notification,
            payload=payload,
            expires_at=expires_at,
            policy_version=policy_version,
            origin=origin,
        )
        for receiver in receivers
    ]
