"""The sends of one `send_many`: one object for all of them, and their ends by number.

A send of a batch has no future and no object of its own: numbers, texts and bytes are kept of it, at which
Python's garbage collector does not look. Only a send that fails, or goes to the overflow, becomes a
`PendingSend` (decisions 263 and 303).
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hongyan_client.errors import SendFailed
from hongyan_client.hot_keys import KeyShares
from hongyan_client.publisher import OnReport
from hongyan_client.sends.lane_route import LaneRoute
from hongyan_client.sends.pending_send import (
    NO_PLACE,
    PendingSend,
    SendHost,
    SendResult,
    SentNotification,
    sent_notification,
)
from message.envelope import EnvelopeError, Notification, decode

if TYPE_CHECKING:
    from confluent_kafka import Message

_UNKNOWN: Final = 0.0
_new: Final = tuple.__new__
_OPEN, _FAILED = -3, -2
"""In place of a partition: no end yet, and a failure."""
_NO_PLACES, _NO_TIMES = array("q", [NO_PLACE] * 1_024), array("q", [0] * 1_024)
"""Room for so many sends at once."""


class SendBatch:
    """Sends by number. The core adds them in the caller's thread; others end them.

    An end is written before its body goes, its partition last. So who finds no body finds the whole end.
    """

    def __init__(self, host: SendHost) -> None:
        self.traceparents: dict[int, str] = {}
        self.started: dict[int, float] = {}  # monotonic seconds; empty where nobody asks for them
        self.last: LaneSends | None = None
        """The lane of the newest send."""
        self._host = host
        self._keeps_notifications = host.watched
        self._bodies: list[Notification | bytes | None] = []
        """Bytes, from which the notification is made again should it be asked for; the notification itself
        of a refused send, and where each acknowledgement asks for it; None: it is in Kafka or the
        overflow. Batches may be larger than what should stay in memory."""
        self._ids: list[str] = []
        self._topics: list[str] = []
        self._partitions = array("i")
        self._offsets = array("q")
        self._timestamps = array("q")
        self._failures: dict[int, BaseException] = {}
        self._lanes: dict[LaneRoute, LaneSends] = {}
        self._ended = 0  # all before it have ended; of the caller's thread

    def __len__(self) -> int:
        return len(self._partitions)

    def begin(self, notification: Notification) -> None:
        """Adds a send that nobody has checked yet. Its number is the length before."""
        self._bodies.append(notification)
        self._ids.append("")
        self._topics.append("")
        if len(self._offsets) == len(self._partitions):
            self._offsets.extend(_NO_PLACES)
            self._timestamps.extend(_NO_TIMES)
        self._partitions.append(_OPEN)  # the last one: the batch's length

    def lane(self, number: int, route: LaneRoute, name: str, value: bytes) -> LaneSends:
        """Notes id, lane and wire form of a send. Returns the sends of its lane."""
        self._ids[number] = name
        self._topics[number] = route.topic
        if not self._keeps_notifications:
            self._bodies[number] = value
        found = self.last
        if found is None or found.route is not route:
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

    def arrive(self, number: int, message: Any) -> None:
        """Notes the place in librdkafka's report of an acknowledgement, then lets the body go."""
        self._offsets[number] = message.offset()
        self._timestamps[number] = message.timestamp()[1]
        self._partitions[number] = message.partition()
        self._bodies[number] = None

    def end(self, number: int, result: SendResult) -> None:
        """Notes an end that is no acknowledgement by Kafka."""
        if isinstance(result, BaseException):
            self._failures[number] = result
            self._partitions[number] = _FAILED
        else:
            self._partitions[number] = result.partition
            self._bodies[number] = None

    def is_in_kafka(self, number: int) -> bool:
        """Whether Kafka or the overflow has it."""
        return self._bodies[number] is None

    def has_ended(self) -> bool:
        """Whether all sends have ended. Looks only at those that had not at the last call."""
        ends, count = self._partitions, self._ended
        while count < len(ends) and ends[count] != _OPEN:
            count += 1
        self._ended = count
        return count == len(ends)

    def id_of(self, number: int) -> str:
        """Returns the id of a checked send."""
        return self._ids[number]

    def notification(self, number: int) -> Notification:
        """Returns the notification of a send that is neither in Kafka nor in the overflow."""
        body = self._bodies[number]
        assert body is not None, "it has ended"
        return _notification(body)

    def results(
        self,
    ) -> tuple[list[SentNotification], list[tuple[Notification, BaseException | None]]]:
        """Returns, in the order of the call, those that are safe, and the others with their failure, or
        None without an end. Ends may still come meanwhile."""
        sent: list[SentNotification] = []
        failed: list[tuple[Notification, BaseException | None]] = []
        names = zip(self._ids, self._topics, strict=True)
        for number, (name, topic) in enumerate(names):
            body = self._bodies[number]  # read once: another thread may let it go
            if body is None:
                place = self._partitions[number], self._offsets[number], self._timestamps[number]
                sent.append(_new(SentNotification, (name, topic, *place)))
            else:
                failed.append((_notification(body), self._failures.get(number)))
        return sent, failed


class LaneSends:
    """The sends of one lane in a batch. librdkafka's reports come here."""

    __slots__ = ("_batch", "_host", "counted", "keys", "report", "route")

    def __init__(self, batch: SendBatch, route: LaneRoute, host: SendHost) -> None:
        self._batch = batch
        self.route = route
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
        batch = self._batch
        if message is None or batch.is_in_kafka(number):
            return
        self.route.acknowledged += 1
        if self._host.watched:
            sent = sent_notification(batch.id_of(number), self.route.topic, message)
            self._host.acknowledged(self.pending(number), sent)
        batch.arrive(number, message)

    def pending(self, number: int) -> PendingSend:
        """Returns a send as one of its own."""
        batch = self._batch
        return PendingSend(
            batch.notification(number),
            self.route,
            batch.traceparents.get(number),
            batch.started.get(number, _UNKNOWN),
            self._host,
            partial(batch.end, number),
        )


def _notification(body: Notification | bytes) -> Notification:
    """Returns the notification, made again where its wire form was kept."""
    if not isinstance(body, bytes):
        return body
    try:
        return decode(body)
    except EnvelopeError:  # a field of another type, which only readers refuse
        fields: dict[str, Any] = msgspec.json.decode(body)
        return Notification(**fields)
