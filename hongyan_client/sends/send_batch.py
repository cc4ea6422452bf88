"""The sends of one `send_many`: one object for all of them, and their ends by number.

A send of a batch has no future and no object of its own: numbers, texts and bytes are kept of it, at which
Python's garbage collector does not look. Only a send that fails, or goes to the overflow, becomes a
`PendingSend`, and a place becomes a `SentNotification` where somebody reads it (decisions 263, 303, 315).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, overload

import msgspec

from hongyan_client.errors import SendFailed
from hongyan_client.hot_keys import KeyShares
from hongyan_client.record_report import BufferUse, RecordReport
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
    from confluent_kafka import KafkaError, Message

NotSafe = tuple[Notification, BaseException | None]
"""A notification that is not known to be safe, and its failure; None: it has no end yet."""
_UNKNOWN: Final = 0.0
_new: Final = tuple.__new__
_OPEN, _FAILED = -3, -2
"""In place of a partition: no end yet, and a failure."""
_ROOM: Final = 1_024
_NO_ENDS = array("i", [_OPEN] * _ROOM)
_NO_PLACES, _NO_TIMES = array("q", [NO_PLACE] * _ROOM), array("q", [0] * _ROOM)


class SendBatch:
    """Sends by number. The core adds them in the caller's thread; others end them.

    An end's partition is written last, so who finds it finds the whole end.
    """

    def __init__(self, host: SendHost, use: BufferUse) -> None:
        """`use`: of the publisher that gets the records."""
        self.traceparents: dict[int, str] = {}
        self.started: dict[int, float] = {}  # monotonic seconds; empty where nobody asks for them
        self.host = host
        self._use = use
        # By number. Batches may be larger than what should stay in memory.
        self.held: list[str | bytes | Notification] = []
        """The id of a send that is in Kafka or the overflow. Of others the bytes, from which the
        notification is made again should it be asked for; or the notification itself, where each
        acknowledgement asks for it."""
        self.partitions = array("i")
        self.offsets = array("q")
        self.timestamps = array("q")
        self._failures: dict[int, BaseException] = {}
        self._refused: dict[int, Any] = {}  # as they were given
        self._lanes: dict[LaneRoute, LaneSends] = {}
        self._lane: LaneSends | None = None  # of the newest send
        self._turns: list[int] = []  # numbers at which another lane begins,
        self._topics: list[str] = []  # and its topic
        self._room = 0  # numbers that have their place in the arrays
        self._ended = 0  # all before it have ended; of the caller's thread

    def __len__(self) -> int:
        return len(self.held)

    def add(self, route: LaneRoute, body: bytes | Notification, name: str, size: int) -> SendReport:
        """Adds a send, by its bytes or its notification, its id, and its bytes in the buffer. Returns what
        librdkafka shall call at its end."""
        number = len(self.held)
        lane = self._lane
        if lane is None or lane.route is not route:
            lane = self._turn_to(route, number)
        if number == self._room:
            self._add_room()
        self.held.append(body)
        return SendReport(self._use, size, 0, lane, number, name)

    def refuse(self, notification: Any, why: BaseException) -> None:
        """Adds a notification that broke a rule, as it was given, with its error."""
        number = len(self.held)
        self._refused[number] = notification
        self._failures[number] = why
        self.add(_NO_ROUTE, b"", "", 0)
        self.partitions[number] = _FAILED

    def note_keys(self, shares: KeyShares) -> None:
        """Adds the sends since the last call to the shares of their keys."""
        for lane in self._lanes.values():
            shares.note_many(lane.route.name, lane.counted, lane.keys)
            lane.counted = 0
            lane.keys.clear()

    def end(self, number: int, name: str, result: SendResult) -> None:
        """Notes an end that is no acknowledgement by Kafka, of the send with this id."""
        if isinstance(result, BaseException):
            self._failures[number] = result
            self.partitions[number] = _FAILED
        else:
            self.held[number] = name
            self.partitions[number] = result.partition

    def has_ended(self) -> bool:
        """Whether all sends have ended. Looks only at those that had not at the last call."""
        last = len(self.held)
        try:
            self._ended = self.partitions.index(_OPEN, self._ended, last)
        except ValueError:
            self._ended = last
        return self._ended == last

    def notification(self, number: int) -> Notification:
        """Returns the notification of a send that is neither in Kafka nor in the overflow."""
        body = self.held[number]
        assert not isinstance(body, str), "it has ended"
        return _notification(body)

    def results(self) -> tuple[SentNotifications, list[NotSafe]]:
        """Returns, in the order of the call, those that are safe, and the others. Ends may still come
        meanwhile."""
        if self.has_ended():
            self.traceparents.clear()
            self.started.clear()
            if not self._failures:
                return SentNotifications(self, range(len(self.held))), []
        safe = array("q")
        others: list[NotSafe] = []
        for number, body in enumerate(self.held):
            if isinstance(body, str):  # its partition is there, or comes at once
                safe.append(number)
                continue
            refused = number in self._refused
            given = self._refused[number] if refused else _notification(body)
            others.append((given, self._failures.get(number)))
        return SentNotifications(self, safe), others

    def sent(self, number: int) -> SentNotification:
        """Returns the place of a send that is safe."""
        topic = self._topics[bisect_right(self._turns, number) - 1]
        place = self.partitions[number], self.offsets[number], self.timestamps[number]
        return _new(SentNotification, (self.held[number], topic, *place))

    def _add_room(self) -> None:
        """Makes room for further numbers. A signal may interrupt it: then the next send makes it anew."""
        room = self._room + _ROOM
        for array_of, blank in (
            (self.offsets, _NO_PLACES),
            (self.timestamps, _NO_TIMES),
            (self.partitions, _NO_ENDS),
        ):
            if len(array_of) < room:
                array_of.extend(blank)
        self._room = room

    def _turn_to(self, route: LaneRoute, number: int) -> LaneSends:
        """Returns the sends of a lane; from this number on they are the newest."""
        if (lane := self._lanes.get(route)) is None:
            lane = self._lanes[route] = LaneSends(self, route)
        self._turns.append(number)
        self._topics.append(route.topic)
        self._lane = lane
        return lane


class SentNotifications(Sequence[SentNotification]):
    """The notifications of one `send_many` that are safe, in the order of the call. Each is made where it
    is read: a batch may hold millions."""

    def __init__(self, batch: SendBatch, numbers: Sequence[int]) -> None:
        self._batch = batch
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> SentNotification: ...

    @overload
    def __getitem__(self, index: slice) -> list[SentNotification]: ...

    def __getitem__(self, index: int | slice) -> SentNotification | list[SentNotification]:
        if isinstance(index, slice):
            return [self._batch.sent(number) for number in self._numbers[index]]
        return self._batch.sent(self._numbers[index])

    def __iter__(self) -> Iterator[SentNotification]:
        return map(self._batch.sent, self._numbers)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | SentNotifications):
            return list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles as a list: the batch belongs to its client."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"SentNotifications({list(self)!r})"


class LaneSends:
    """The sends of one lane in a batch."""

    __slots__ = ("batch", "counted", "keys", "route")

    def __init__(self, batch: SendBatch, route: LaneRoute) -> None:
        self.batch = batch
        self.route = route
        # Not yet noted; of the caller's thread.
        self.counted = 0
        self.keys: list[str] = []


class SendReport(RecordReport, gc=False):
    """librdkafka's report of one send."""

    lane: LaneSends
    number: int
    name: str
    """The notification's id."""

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """Counts and tells the end. An acknowledgement, the end of nearly all, needs no other call."""
        use = self.use
        use.done += 1
        use.done_bytes += self.size
        if use.ages is not None:
            use.ages.ended(self.age)
        if error is not None:
            self.fail(error, message)
            return
        lane, number = self.lane, self.number
        lane.route.acknowledged += 1
        batch = lane.batch
        if batch.host.watched:
            sent = sent_notification(self.name, lane.route.topic, message)
            batch.host.acknowledged(self.pending(), sent)
        batch.offsets[number] = message.offset()
        batch.timestamps[number] = message.timestamp()[1]
        batch.held[number] = self.name
        batch.partitions[number] = message.partition()

    def end(self, failure: SendFailed | None, message: Message | None) -> None:
        """Passes a failure on."""
        if failure is not None:
            self.lane.batch.host.failed(self.pending(), failure, message)

    def pending(self) -> PendingSend:
        """Returns the send as one of its own."""
        batch, number = self.lane.batch, self.number
        return PendingSend(
            batch.notification(number),
            self.lane.route,
            batch.traceparents.get(number),
            batch.started.get(number, _UNKNOWN),
            batch.host,
            partial(batch.end, number, self.name),
        )


_NO_ROUTE: Final = LaneRoute("", "", 0)


def _notification(body: Notification | bytes) -> Notification:
    """Returns the notification, made again where its wire form was kept."""
    if not isinstance(body, bytes):
        return body
    try:
        return decode(body)
    except EnvelopeError:  # a field of another type, which only readers refuse
        fields: dict[str, Any] = msgspec.json.decode(body)
        return Notification(**fields)
