"""The sends of one `send_many`: one object for all of them, and their ends by number.

A send of a batch has no future and no object of its own. Only one that fails, or goes to the overflow,
becomes a `PendingSend`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from hongyan_client.errors import SendFailed
from hongyan_client.hot_keys import KeyShares
from hongyan_client.publisher import OnReport
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_send import (
    PendingSend,
    SendHost,
    SendResult,
    sent_notification,
)
from message.envelope import Notification

if TYPE_CHECKING:
    from confluent_kafka import Message

_UNKNOWN: Final = 0.0


class SendBatch:
    """Notifications and their ends, both by number. The core adds in the caller's thread; others end.

    An end is written before its notification goes. So who reads the notification first finds one of them.
    """

    def __init__(self, host: SendHost) -> None:
        self._host = host
        self.notifications: list[Notification | None] = []
        """None: it is in Kafka. Batches may be larger than what should stay in memory."""
        self.ends: list[SendResult | None] = []
        self.traceparents: dict[int, str] = {}
        self.started: dict[int, float] = {}  # monotonic seconds; empty where nobody asks for them
        self.last: LaneSends | None = None
        """The lane of the newest send."""
        self._lanes: dict[LaneRoute, LaneSends] = {}
        self._ended = 0  # all before it have ended; of the caller's thread

    def __len__(self) -> int:
        return len(self.ends)

    def lane(self, route: LaneRoute) -> LaneSends:
        """Returns the sends of one lane."""
        found = self._lanes.get(route)
        if found is None:
            found = self._lanes[route] = LaneSends(self, route, self._host)
        self.last = found
        return found

    def note_keys(self, shares: KeyShares) -> None:
        """Adds the sends since the last call to the shares of their keys."""
        for lane in self._lanes.values():
            shares.note_many(lane.route.name, lane.counted, lane.keys)
            lane.counted = 0
            lane.keys.clear()

    def end(self, number: int, result: SendResult) -> None:
        """Notes an end, then lets the notification go if it is in Kafka or the overflow."""
        self.ends[number] = result
        if not isinstance(result, BaseException):
            self.notifications[number] = None

    def has_ended(self) -> bool:
        """Whether all sends have ended. Looks only at those that had not at the last call."""
        ends, count = self.ends, self._ended
        while count < len(ends) and ends[count] is not None:
            count += 1
        self._ended = count
        return count == len(ends)


class LaneSends:
    """The sends of one lane in a batch. librdkafka's reports come here."""

    __slots__ = (
        *("_batch", "_ends", "_host", "_notifications", "_topic"),
        *("counted", "keys", "report", "route"),
    )

    def __init__(self, batch: SendBatch, route: LaneRoute, host: SendHost) -> None:
        self._batch = batch
        self._ends, self._notifications = batch.ends, batch.notifications
        self.route, self._topic = route, route.topic
        self._host = host
        self.report: OnReport = self._report  # bound once, not for each send
        # Not yet noted; of the caller's thread.
        self.counted = 0
        self.keys: list[str] = []

    def _report(self, number: int, failure: SendFailed | None, message: Message | None) -> None:
        """Takes librdkafka's report. Runs in the thread that polls; a refusal in the caller's."""
        if failure is not None:
            self._host.failed(self.pending(number), failure, message)
            return
        one = self._notifications[number]
        if one is None or message is None:
            return
        sent = sent_notification(one.id, self._topic, message)
        self.route.acknowledged += 1
        if self._host.watched:
            self._host.acknowledged(self.pending(number), sent)
        self._ends[number] = sent
        self._notifications[number] = None

    def pending(self, number: int) -> PendingSend:
        """Returns a send as one of its own."""
        batch = self._batch
        notification = self._notifications[number]
        assert notification is not None, "it has ended"
        return PendingSend(
            notification,
            self.route,
            batch.traceparents.get(number),
            batch.started.get(number, _UNKNOWN),
            self._host,
            partial(batch.end, number),
        )
