"""One send from its call to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hongyan_client.errors import SendFailed
from hongyan_client.record_report import RecordReport
from hongyan_client.records import Record
from hongyan_client.sends.lane_route import LaneRoute
from message.envelope import Notification

if TYPE_CHECKING:
    from confluent_kafka import Message

NO_PLACE: Final = -1
_new: Final = tuple.__new__


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


SendResult = SentNotification | BaseException


def sent_notification(name: str, topic: str, message: Message) -> SentNotification:
    """Returns the place of an acknowledged record. `_new` saves the call of the class's own `__new__`."""
    place = (name, topic, message.partition(), message.offset(), message.timestamp()[1])
    return _new(SentNotification, place)


class SendHost(Protocol):
    """The core, as its sends see it. `acknowledged` and `failed` run in the thread that polls."""

    watched: bool
    """Whether `acknowledged` must be called: somebody hears of acknowledgements, beside their counts."""

    def acknowledged(self, send: PendingSend, sent: SentNotification) -> None:
        """Announces an acknowledgement. Must not raise."""

    def failed(self, send: PendingSend, failure: SendFailed, message: Message | None) -> None:
        """Passes a send to the overflow, or ends it. `message`: librdkafka's report, if it made one."""

    def ended(self, send: PendingSend, result: SendResult) -> None:
        """Counts an end that is no acknowledgement. Must not raise."""


class PendingSend:
    """One send: what goes to Kafka, and who waits for it. It ends once."""

    __slots__ = (
        "_finish",
        "_host",
        "expires_at",
        "notification",
        "record",
        "route",
        "started",
        "traceparent",
    )

    def __init__(
        self,
        notification: Notification,
        route: LaneRoute,
        traceparent: str | None,
        started: float,
        host: SendHost,
        finish: Callable[[SendResult], None],
    ) -> None:
        """`started`: monotonic seconds. `finish` tells the end to those who wait."""
        self.notification = notification
        self.route = route
        self.traceparent = traceparent
        self.started = started
        self._host = host
        self._finish = finish
        # Made where the overflow gets the send: until then librdkafka alone holds the bytes.
        self.record: Record | None = None
        self.expires_at = 0  # epoch milliseconds

    def arrive(self, failure: SendFailed | None, message: Message | None) -> None:
        """Takes the publisher's report of its record."""
        if failure is not None:
            self._host.failed(self, failure, message)
        elif message is not None:
            sent = sent_notification(self.notification.id, self.route.topic, message)
            self.route.acknowledged += 1
            if self._host.watched:
                self._host.acknowledged(self, sent)
            self._finish(sent)

    def spooled(self) -> None:
        """The overflow has it."""
        self.end(SentNotification(self.notification.id, self.route.topic, NO_PLACE, NO_PLACE, 0))

    def end(self, result: SendResult) -> None:
        """Counts the end and tells it. An exception: nobody is known to have the notification."""
        self._host.ended(self, result)
        self._finish(result)


class SingleReport(RecordReport, gc=False):
    """librdkafka's report of one send with a future."""

    send: PendingSend

    def end(self, failure: SendFailed | None, message: Message | None) -> None:
        self.send.arrive(failure, message)
