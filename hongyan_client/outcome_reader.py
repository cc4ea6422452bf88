"""Reads the outcome events of the platform (docs/outcomes.md), and remembers where it was.

    with OutcomeReader("kafka-1:9092", group_id="orders") as reader:
        reader.run(handle, stop)

The place is committed to Kafka after the handler has returned; nobody waits for Kafka's answer, which may
never come. So an event is handled at least once, and a repeat has the same `event_id`. A handler that keeps
the place in its own database, in its own transaction, starts the reader with `positions` and gets each
event once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import msgspec

from hongyan_client.errors import ClientError, WrongProperties
from hongyan_client.kafka_log import KafkaLog
from message.kafka_errors import is_fatal
from message.outcome_event import VERSION, OutcomeEvent
from message.producer_properties import REASON, SAFE, Property, refused_property
from message.vocabulary import DEFAULT_TOPIC_PREFIX, outcome_topic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger("hongyan_client")

_POLL_S: Final = 0.2
_BATCH: Final = 500
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_CLOSE_S: Final = 10.0
"""Longest wait of `close`."""
_SAFE_READER: Final[Mapping[str, Property]] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,  # it would be stored before the handler has returned
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "check.crcs": True,
    "queued.max.messages.kbytes": 4_096,
}
_decoder = msgspec.json.Decoder(OutcomeEvent)


class OutcomePlace(NamedTuple):
    """Place of one event. The next one to read has `offset` + 1."""

    topic: str
    partition: int
    offset: int


class PlacedOutcome(NamedTuple):
    """An event and its place."""

    event: OutcomeEvent
    place: OutcomePlace


class ReaderFigures(NamedTuple):
    """Counts since the start of the reader."""

    handled: int
    unreadable: int
    """Records that are no outcome event of a known version; they are passed over and logged."""
    failures: int
    """Calls of the handler that raised."""


Handle = Callable[[Sequence[PlacedOutcome]], None]
"""Handles events of one or more partitions, in the order of each. After an exception the same events come
again, once a pause is over; those of a partition that moved meanwhile come to its owner."""
Positions = Mapping[int, int]
"""Next offset by partition, as the handler kept it."""


class OutcomeReader:
    """One member of a group of readers. One thread uses it."""

    def __init__(
        self,
        bootstrap: str,
        *,
        group_id: str,
        topic_prefix: str = DEFAULT_TOPIC_PREFIX,
        properties: Mapping[str, Property] | None = None,
        positions: Callable[[], Positions] | None = None,
        batch: int = _BATCH,
    ) -> None:
        """`group_id` names the business system; each has a place of its own. `positions`: read from the
        handler's own store when partitions are assigned; then nothing is committed to Kafka. Raises
        WrongProperties."""
        self._topic = outcome_topic(topic_prefix)
        self._positions = positions
        self._batch = batch
        self._handled = self._unreadable = self._failures = 0  # written by the thread of `run`
        self._pausing = False  # written by the thread of `run`
        self._moved: set[int] = set()  # partitions that came or went; written in its polls
        self._unplaced = False  # the places of the partitions are not known yet; like `_moved`
        self._consumer = _consumer(bootstrap, group_id, properties or {})
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone
        )
        self._closed = False

    def run(self, handle: Handle, stop: threading.Event) -> None:
        """Hands events to `handle` until `stop` is set. An exception of `handle` is logged; the same
        events follow after a pause, which grows to half a minute. So is one of `positions`: nothing is read
        before the places are known. Raises ClientError if Kafka refuses the reader for good."""
        wait = _FIRST_WAIT_S
        while not stop.is_set():
            if self._unplaced and not self._placed():
                self._held(stop, wait)
                wait = min(2 * wait, _LONGEST_WAIT_S)
                continue
            wait = _FIRST_WAIT_S
            events, following = self._polled()
            if following:
                self._remember(self._handled_at_last(handle, events, following, stop))

    def figures(self) -> ReaderFigures:
        """Returns the counts."""
        return ReaderFigures(self._handled, self._unreadable, self._failures)

    def close(self) -> None:
        """Leaves the group, so that others take over at once; idempotent. Ends after `_CLOSE_S` seconds,
        also while no broker answers."""
        if self._closed:
            return
        self._closed = True
        # librdkafka waits for the answers to its commits, without a limit.
        closing = threading.Thread(
            target=self._consumer.close, name="hongyan-outcomes-close", daemon=True
        )
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            log.warning("outcomes: Kafka did not let the reader go within %g s", _CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _polled(self) -> tuple[list[PlacedOutcome], dict[int, int]]:
        """Returns the next events, and the next offset of each partition they came from."""
        events: list[PlacedOutcome] = []
        following: dict[int, int] = {}
        messages = self._consumer.consume(self._batch, _POLL_S)
        self._moved.clear()
        for message in messages:
            place = self._place_of(message)
            if place is None:
                continue
            following[place.partition] = place.offset + 1
            event = self._event_of(message, place)
            if event is not None:
                events.append(PlacedOutcome(event, place))
        return events, following

    def _place_of(self, message: Message) -> OutcomePlace | None:
        """Returns the place of a record; None for a report of librdkafka. Raises ClientError."""
        error = message.error()
        if error is not None:
            if is_fatal(error):
                raise ClientError(f"Kafka refused the reader ({error.str()}); start it anew")
            log.warning("outcomes: %s", error.str())
            return None
        return OutcomePlace(self._topic, message.partition() or 0, message.offset() or 0)

    def _event_of(self, message: Message, place: OutcomePlace) -> OutcomeEvent | None:
        try:
            event = _decoder.decode(message.value() or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            cause = str(exc)
        else:
            if event.v == VERSION:
                return event
            cause = f"version {event.v}; this reader knows {VERSION}"
        self._unreadable += 1
        log.error("outcomes: %s/%d/%d is passed over: %s", *place, cause)
        return None

    def _handled_at_last(
        self,
        handle: Handle,
        events: Sequence[PlacedOutcome],
        following: Mapping[int, int],
        stop: threading.Event,
    ) -> Mapping[int, int]:
        """Calls the handler until it returns. Returns the next offsets of what it handled; none if `stop`
        was set before. Events of a partition that moved meanwhile are left to its owner, who begins at the
        kept place: another reader, or this one again."""
        wait = _FIRST_WAIT_S
        while not self._handled_all(handle, events):
            self._held(stop, wait)
            if stop.is_set():
                return {}
            events = [one for one in events if one.place.partition not in self._moved]
            following = {n: at for n, at in following.items() if n not in self._moved}
            wait = min(2 * wait, _LONGEST_WAIT_S)
        return following

    def _handled_all(self, handle: Handle, events: Sequence[PlacedOutcome]) -> bool:
        try:
            if events:
                handle(events)
        except Exception:  # the handler's own: its events must come again
            self._failures += 1
            log.exception("outcomes: the handler failed; the same %d events follow", len(events))
            return False
        self._handled += len(events)
        return True

    def _held(self, stop: threading.Event, wait_s: float) -> None:
        """Stays in the group during a pause: paused partitions are polled and give nothing."""
        self._pausing = True
        self._consumer.pause(self._consumer.assignment())
        until = time.monotonic() + wait_s
        while not stop.is_set() and time.monotonic() < until:
            self._consumer.poll(min(_POLL_S, wait_s))
        self._pausing = False
        if not self._unplaced:
            self._consumer.resume(self._consumer.assignment())

    def _remember(self, following: Mapping[int, int]) -> None:
        """Commits the places, where Kafka keeps them. It does not wait for the answer: while no broker
        gives one, librdkafka's wait has no limit, and `run` would not end."""
        if self._positions is not None or not following:
            return
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(self._topic, number, at) for number, at in following.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as exc:
            _note_commit(exc, places)

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        """Starts each partition where the handler was. Runs inside poll, in the thread of `run`."""
        self._unplaced = not self._begin_at_kept_places(partitions)
        consumer.assign(partitions)
        self._moved |= {one.partition for one in partitions}
        if self._pausing or self._unplaced:
            consumer.pause(partitions)

    def _begin_at_kept_places(self, partitions: list[Any]) -> bool:
        """Sets the offsets that the handler kept. Returns False if it cannot tell them now."""
        try:
            known = self._positions() if self._positions is not None else {}
        except Exception:  # of the handler's database: at another place its events would come again
            log.exception("outcomes: the kept places could not be read; nothing is read meanwhile")
            return False
        for one in partitions:
            if one.partition in known:
                one.offset = known[one.partition]
        return True

    def _placed(self) -> bool:
        """Starts the partitions whose places were not known when they came. Returns False if they are not
        known yet."""
        partitions = self._consumer.assignment()
        if not self._begin_at_kept_places(partitions):
            return False
        self._unplaced = False
        self._consumer.assign(partitions)
        self._consumer.resume(partitions)
        return True

    def _gone(self, _consumer: Consumer, partitions: list[Any]) -> None:
        """Notes partitions that others may have now. Runs like `_assigned`, and in `close`."""
        self._unplaced = False
        self._moved |= {one.partition for one in partitions}


def _note_commit(error: Any, places: Sequence[Any]) -> None:
    """Logs a failed commit: the events come again. Runs inside poll, in the thread of `run`."""
    for fault in [error] if error is not None else [one.error for one in places if one.error]:
        log.warning("outcomes: the place was not committed: %s", fault)


def _consumer(bootstrap: str, group_id: str, properties: Mapping[str, Property]) -> Consumer:
    """Returns the client. Raises WrongProperties."""
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaException

    if (refused := refused_property(properties)) is not None:
        raise WrongProperties(f"properties: {refused!r} {REASON}")
    if not group_id:
        raise WrongProperties("group_id is empty; name the system that reads, as in orders")
    config: dict[str, Any] = {
        **_SAFE_READER,
        **SAFE,
        "log_level": 4,
        **properties,
        "bootstrap.servers": bootstrap,
        "group.id": group_id,
        "logger": KafkaLog(),
        "on_commit": _note_commit,
    }
    try:
        return KafkaConsumer(config)
    except (KafkaException, TypeError, ValueError) as exc:
        raise WrongProperties(f"properties: {exc}; correct or remove the property") from exc
