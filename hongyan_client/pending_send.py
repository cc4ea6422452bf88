"""One send from its call to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hongyan_client.pending import PendingResult
from hongyan_client.records import Acknowledged, Record
from message.envelope import Notification

NO_PLACE: Final = -1


class SentNotification(NamedTuple):
    """A notification that is safe: in every in-sync replica, or in the spool of this machine."""

    id: str
    topic: str
    partition: int
    """-1: it is in the spool, and Kafka gets it later."""
    offset: int
    timestamp_ms: int

    @property
    def is_spooled(self) -> bool:
        """Whether the spool has it, not Kafka."""
        return self.partition == NO_PLACE


OnSendEnd = Callable[["PendingSend", Acknowledged | BaseException | None], None]
"""Gets the end of a send before its future: None if the spool has it."""


class PendingSend:
    """One send: what goes to Kafka, and who waits for it. Each method ends it, once."""

    __slots__ = (
        "_on_end",
        "expires_at",
        "future",
        "notification",
        "record",
        "started",
        "traceparent",
    )

    def __init__(
        self,
        notification: Notification,
        record: Record,
        expires_at: int,
        traceparent: str | None,
        started: float,
        on_end: OnSendEnd,
    ) -> None:
        """`started`: monotonic seconds. `expires_at`: epoch milliseconds."""
        self.notification = notification
        self.record = record
        self.expires_at = expires_at
        self.traceparent = traceparent
        self.started = started
        self.future: PendingResult[SentNotification] = PendingResult()
        self._on_end = on_end

    def acknowledged(self, place: Acknowledged) -> None:
        """Kafka has it."""
        self._on_end(self, place)
        self.future.set_result(SentNotification(self.notification.id, *place))

    def spooled(self) -> None:
        """The overflow has it."""
        self._on_end(self, None)
        nowhere = (self.record.topic, NO_PLACE, NO_PLACE, 0)
        self.future.set_result(SentNotification(self.notification.id, *nowhere))

    def fail(self, error: BaseException) -> None:
        """Nobody is known to have it."""
        self._on_end(self, error)
        self.future.set_exception(error)
