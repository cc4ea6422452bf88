"""The source: the only thread that touches the Consumer.

It polls, decodes, registers offsets, pauses and resumes partitions, answers rebalances and commits.
Completions reach it through a queue: a Consumer serialises its methods, so a tight poll loop would block
other threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

import structlog

from backends.kafka.message_headers import Headers, headers_of
from dispatcher.dead_letters.writer import Poison
from dispatcher.kafka.backpressure import Backpressure
from dispatcher.kafka.commits import Commits, Position
from dispatcher.kafka.offset_metadata import OffsetRange
from dispatcher.kafka.offset_metadata import decode as decode_runs
from dispatcher.kafka.offsets import Offsets, OffsetStatus
from dispatcher.kafka.unreadable import CODES as UNREADABLE
from dispatcher.kafka.unreadable import REASON as UNREADABLE_REASON
from dispatcher.kafka.unreadable import UnreadableBatches
from dispatcher.metrics import Metrics
from dispatcher.pipeline.work import Assignment, KafkaRecord, PartitionState
from message.envelope import EnvelopeError, Notification, check_account, check_arrival, decode
from message.foreign_text import shown
from message.kafka_errors import is_fatal
from message.trace_context import HEADER as TRACE_HEADER
from message.trace_context import trace_context
from message.vocabulary import Lane, lane_of_topic
from sending.runtime.clock import Clock

log = structlog.get_logger(__name__)

POLL_S = 0.1
"""Longest wait for a message; a signal, a completion or a commit waits no longer."""
BUSY_POLL_S = 0.01
POLL_BATCH = 100
"""Messages decoded at once; more would hold the interpreter, and all lane threads, for milliseconds."""
WAKE_AT_MOST = 16
"""Partitions asked about after a resume: enough to reach every broker at little cost."""
WAKE_TIMEOUT_S = 0.2
REVOKE_DRAIN_S = 10.0
"""Bounds the drain inside a revoke, during which the loop does not run."""
COMMITTED_TIMEOUT_S = 10.0
OBSERVE_INTERVAL_S = 1.0
UNREADABLE_HEADERS: Final = "unreadable_headers"
_HEADERS_LEFT_OUT: Final = "the name of a header is not UTF-8; the letter has none of the headers"
_HARMLESS = frozenset({"_PARTITION_EOF", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})


class SourceFailed(RuntimeError):
    """The Consumer cannot go on; the text is the client's."""


class Inbox(Protocol):
    """Takes the records of some lanes (dispatcher/pipeline/expand.py)."""

    def put(self, records: list[KafkaRecord]) -> None:
        """Takes records of its lanes."""
        ...

    def leaving(self) -> None:
        """A partition is being revoked: nothing more of it is claimed."""
        ...


class Removals(Protocol):
    """Reports records that Kafka removed unread (dispatcher/kafka/removed_records.py)."""

    def came(
        self, place: tuple[str, int], lane: Lane, committed: int, done: Sequence[OffsetRange]
    ) -> None:
        """A partition was assigned at its committed offset."""
        ...

    def gap(self, place: tuple[str, int], lane: Lane, start: int, end: int) -> None:
        """No record came between these offsets."""
        ...


class Poisons(Protocol):
    """Takes poison (dispatcher/dead_letters/writer.py)."""

    def put(self, poison: Poison) -> None:
        """Takes one poison record."""
        ...


class Downstream(NamedTuple):
    """Where the source hands records on, and where they come back."""

    inboxes: Mapping[Lane, Inbox]
    poisons: Poisons
    removals: Removals
    done: SimpleQueue[Sequence[KafkaRecord | Poison]]
    """Records and poison that are done with."""


class Source:
    """One consumer group member. Every method runs on the thread of `run_once`, except `follow`.

    `done` brings records whose last delivery ended or was given back.
    """

    def __init__(
        self,
        consumer: Any,
        commits: Commits,
        flow: Backpressure,
        downstream: Downstream,
        *,
        accounts: Mapping[Lane, frozenset[str]],
        topic_prefix: str,
        place: Any,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self.beat = clock.monotonic()
        """Monotonic time of the loop's last round; for the stuck detector."""
        self.lag: dict[Lane, int] = {}
        """Records between watermark and log end; replaced by `_observe`, read by metrics."""
        self.partitions: dict[Lane, int] = {}
        """Partitions of each lane that this worker reads; replaced by `_observe`."""
        self.oldest_age: dict[Lane, float] = {}
        """Seconds since each lane's oldest uncommitted record came; replaced by `_observe`."""
        self.absence: str | None = "waiting for partitions"
        """The reason why it is not in the group; None once it is, even without partitions. Written by
        `_observe` and `_on_assign`, read by /readyz."""
        self._consumer = consumer
        self._commits = commits
        self._flow = flow
        self._inboxes = downstream.inboxes
        self._poisons = downstream.poisons
        self._removals = downstream.removals
        self._accounts = dict(accounts)
        """`follow` replaces whole entries, from the thread of `PolicyWatcher.run`."""
        self._topic_prefix = topic_prefix
        self._place = place
        self._clock = clock
        self._metrics = metrics
        self._assignments: dict[tuple[str, int], Assignment] = {}
        self._done = downstream.done
        self._unreadable = UnreadableBatches()
        self._closed_lanes: frozenset[Lane] = frozenset()
        self._quiet = False
        self._observed_at = float("-inf")

    # ---- the loop ----------------------------------------------------------------------------

    def subscribe(self, lanes: Iterable[Lane]) -> None:
        """Joins the group for these lanes' topics; later topics are found within seconds."""
        self._consumer.subscribe(
            [lane.topic(self._topic_prefix) for lane in lanes],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
            on_refused=self._on_refused,
        )

    def run_once(self) -> None:
        """Runs one round of the loop."""
        self.beat = self._clock.monotonic()
        self._take_completions()
        self._apply_backpressure()
        self._hand_on(self._register_all(self._poll()))
        self._commits.commit_if_due(self._assignments.values())
        self._observe()

    def close_lanes(self, lanes: frozenset[Lane]) -> None:
        """Pauses these lanes whatever they hold (their ledger is away); others by their load."""
        self._closed_lanes = lanes

    def follow(self, lane: Lane, accounts: frozenset[str], max_records: int) -> None:
        """Replaces the accounts that the lane's notifications may name, and its limit of records. Safe from
        any thread."""
        self._accounts[lane] = accounts
        self._flow[lane].max_records = max_records

    def quiet(self) -> None:
        """Takes nothing more, but stays in the group and commits; idempotent."""
        if not self._quiet:
            self._quiet = True
            self._closed_lanes = frozenset(self._accounts)
            self._apply_backpressure()

    @property
    def busy(self) -> bool:
        """Whether a record is between expansion and settlement."""
        return any(assignment.busy for assignment in self._assignments.values())

    def flush_commits(self, deadline: float) -> bool:
        """Commits and polls until the broker acknowledged all; returns False at monotonic `deadline`."""
        while True:
            self._take_completions()
            if self._commits.is_clean(self._assignments.values()):
                return True
            if self._clock.monotonic() >= deadline:
                return False
            self._commits.commit_if_due(self._assignments.values(), now=True)
            self._poll()

    def close(self) -> None:
        """Leaves the group, after the drain and the last commit: `close` calls on_revoke."""
        self._consumer.close()

    @property
    def assignments(self) -> list[Assignment]:
        """The partitions held now."""
        return list(self._assignments.values())

    # ---- completions and back-pressure -------------------------------------------------------

    def _take_completions(self, wait_s: float = 0.0) -> None:
        try:
            batch = self._done.get(timeout=wait_s) if wait_s else self._done.get_nowait()
            while True:
                for record in batch:
                    self._complete(record)
                batch = self._done.get_nowait()
        except Empty:
            return

    def _complete(self, record: KafkaRecord | Poison) -> None:
        """Moves the watermark, unless the partition is lost or the record must be read again."""
        assignment = record.assignment
        self._flow[assignment.lane].remove(record.weight)
        given_back = isinstance(record, KafkaRecord) and record.given_back
        if assignment.state is not PartitionState.LOST and not given_back:
            assignment.offsets.complete(record.offset)

    def _apply_backpressure(self) -> None:
        for flow in self._flow.changes(self._closed_lanes):
            places = self._places(a for a in self._assignments.values() if a.lane == flow.lane)
            if flow.paused:
                self._metrics.pauses.labels(flow.lane.name).inc()
            if places and flow.paused:
                self._consumer.pause(places)
            elif places:
                self._consumer.resume(places)
                self._wake_fetching(places)

    def _wake_fetching(self, places: Sequence[Any]) -> None:
        """Sends each broker a request, so that librdkafka fetches resumed partitions at once. Its thread
        would wake up to a second later (docs/decisions/043-resuming-at-once.md)."""
        for place in places[:WAKE_AT_MOST]:
            try:
                self._consumer.get_watermark_offsets(place, timeout=WAKE_TIMEOUT_S)
            except Exception as exc:  # KafkaException; it only would have been quicker
                log.debug("not_woken", cause=str(exc))
                return

    # ---- polling -----------------------------------------------------------------------------

    def _poll(self) -> list[Any]:
        """Waits briefly for one message, then takes all that are there: `consume` waits its whole time."""
        waiting = self._commits.waiting or any(flow.paused for flow in self._flow)
        first = self._consumer.poll(BUSY_POLL_S if waiting else POLL_S)
        if first is None:
            return []
        return [first, *self._consumer.consume(POLL_BATCH - 1, 0)]

    def _register_all(self, messages: Iterable[Any]) -> dict[Lane, list[KafkaRecord]]:
        records: dict[Lane, list[KafkaRecord]] = {}
        moment, now = self._clock.monotonic(), self._clock.now_ms()
        for message in messages:
            record = self._register(message, moment, now)
            if record is not None:
                records.setdefault(record.assignment.lane, []).append(record)
        return records

    def _register(self, message: Any, moment: float, now: int) -> KafkaRecord | None:
        """Registers one message's offset. Returns its record; None if there is nothing to send."""
        if message.error() is not None:
            self._note_error(message, moment)
            return None
        assignment = self._assignments.get((message.topic(), message.partition()))
        if assignment is None or self._quiet:
            return None
        offset = message.offset()
        seen = assignment.offsets.register(offset, moment)
        if seen is OffsetStatus.REWOUND:
            assignment = self._begin_anew(assignment)
            seen = assignment.offsets.register(offset, moment)
        return self._read(message, assignment, offset, now) if seen is OffsetStatus.NEW else None

    def _read(
        self, message: Any, assignment: Assignment, offset: int, now: int
    ) -> KafkaRecord | None:
        payload, headers = message.value(), headers_of(message)
        try:
            if headers is None:
                raise EnvelopeError(UNREADABLE_HEADERS, "headers", _HEADERS_LEFT_OUT)
            notification = decode(payload)
            check_arrival(notification, assignment.lane, now)
            self._check_account(notification, assignment.lane)
        except EnvelopeError as exc:
            self._put_poison(_poison(message, assignment, offset, exc, headers or []))
            return None
        self._flow[assignment.lane].add(len(payload))
        return KafkaRecord(assignment, offset, notification, payload, now, _traceparent(headers))

    def _put_poison(self, poison: Poison) -> None:
        self._flow[poison.assignment.lane].add(poison.weight)
        self._poisons.put(poison)

    def _check_account(self, notification: Notification, lane: Lane) -> None:
        known = self._accounts[lane]
        if not known:
            raise EnvelopeError("unknown_lane", "$", f"lane {lane.name} has no account configured")
        check_account(notification, lane, known)

    def _hand_on(self, records: Mapping[Lane, list[KafkaRecord]]) -> None:
        for lane, batch in records.items():
            self._metrics.received.labels(lane.name).inc(len(batch))
            self._inboxes[lane].put(batch)

    def _note_error(self, message: Any, moment: float) -> None:
        error = message.error()
        if error.name() in UNREADABLE and (
            assignment := self._assignments.get((message.topic(), message.partition()))
        ):
            self._note_unreadable(message, assignment, moment)
            return
        if is_fatal(error):
            raise SourceFailed(f"the Kafka consumer cannot go on: {error}")
        if error.name() not in _HARMLESS:
            log.warning("consumer_error", code=error.name(), text=error.str())

    def _note_unreadable(self, message: Any, assignment: Assignment, moment: float) -> None:
        """Makes a dead letter of one offset of an unreadable batch, after several tries."""
        place = (assignment.topic, assignment.partition)
        offset = max(message.offset(), assignment.offsets.expected or 0)
        if self._quiet or not self._unreadable.give_up(place, offset, moment):
            return
        text = message.error().str()
        log.error("unreadable_batch", topic=place[0], partition=place[1], offset=offset, cause=text)
        if assignment.offsets.register(offset, moment) is OffsetStatus.NEW:
            exc = EnvelopeError(UNREADABLE_REASON, "$", text)
            self._put_poison(_poison(None, assignment, offset, exc, []))
        self._consumer.seek(self._place(*place, offset + 1))

    def _observe(self) -> None:
        now = self._clock.monotonic()
        if now - self._observed_at < OBSERVE_INTERVAL_S:
            return
        self._observed_at = now
        self.absence = self._consumer.absence()
        lag: dict[Lane, int] = {}
        partitions: dict[Lane, int] = {}
        ages: dict[Lane, float] = {}
        for assignment in self._assignments.values():
            lane, oldest = assignment.lane, assignment.offsets.oldest
            lag[lane] = lag.get(lane, 0) + self._lag_of(assignment)
            partitions[lane] = partitions.get(lane, 0) + 1
            ages[lane] = max(ages.get(lane, 0.0), 0.0 if oldest is None else now - oldest)
        self.lag, self.partitions, self.oldest_age = lag, partitions, ages

    def _lag_of(self, assignment: Assignment) -> int:
        """Returns the records between the watermark and the log's end, as of the last fetch."""
        place = self._place(assignment.topic, assignment.partition)
        _, high = self._consumer.get_watermark_offsets(place, cached=True)
        watermark = assignment.offsets.watermark
        return max(high - watermark, 0) if watermark is not None and high >= 0 else 0

    # ---- rebalances --------------------------------------------------------------------------

    def _on_assign(self, consumer: Any, places: Sequence[Any]) -> None:
        """Adopts partitions. A pause survives losing and regaining one: resumes, then pauses anew."""
        self.absence = None
        if not places:
            return
        committed = self._committed(consumer, places)
        for place in places:
            lane = lane_of_topic(place.topic, self._topic_prefix)
            if lane is None or lane not in self._accounts:
                raise SourceFailed(
                    f"{place.topic} was assigned, which no lane of this worker reads"
                )
            self._begin(place.topic, place.partition, lane, committed)
        consumer.resume(list(places))
        paused = [p for p in places if self._flow[self._lane_of(p)].paused]
        if paused:
            consumer.pause(paused)
        log.info("partitions_assigned", partitions=_names(places))

    def _begin(
        self, topic: str, partition: int, lane: Lane, committed: Mapping[tuple[str, int], Position]
    ) -> None:
        position = committed.get((topic, partition))
        start = position.offset if position else None
        done = decode_runs(position.metadata, position.offset) if position else []
        on_gap = partial(self._removals.gap, (topic, partition), lane)
        assignment = Assignment(topic, partition, lane, Offsets(start, done, on_gap))
        if position is not None:
            self._removals.came((topic, partition), lane, position.offset, done)
        self._assignments[topic, partition] = assignment
        self._commits.adopt(assignment, position)

    def _committed(self, consumer: Any, places: Sequence[Any]) -> dict[tuple[str, int], Position]:
        """Returns the group's commits with metadata; empty after an error: then the ledger answers."""
        try:
            found = consumer.committed(list(places), timeout=COMMITTED_TIMEOUT_S)
        except Exception as exc:  # KafkaException; the metadata only saves look-ups
            log.warning("committed_unknown", cause=str(exc))
            return {}
        return {
            (p.topic, p.partition): Position(p.offset, p.metadata or "")
            for p in found
            if p.error is None and p.offset >= 0
        }

    def _on_revoke(self, _consumer: Any, places: Sequence[Any]) -> None:
        """Drains partitions being revoked for a bounded time, commits them once, then never again."""
        leaving = [a for p in places if (a := self._assignments.get((p.topic, p.partition)))]
        for assignment in leaving:
            assignment.state = PartitionState.REVOKING
        for inbox in {id(i): i for a in leaving if (i := self._inboxes.get(a.lane))}.values():
            inbox.leaving()
        deadline = self._clock.monotonic() + REVOKE_DRAIN_S
        while any(a.busy for a in leaving) and self._clock.monotonic() < deadline:
            self._take_completions(BUSY_POLL_S)
        self._take_completions()
        self._commits.commit_leaving(leaving)
        self._let_go(leaving)
        if leaving:
            left = sum(a.begun - a.ended for a in leaving)
            log.info("partitions_revoked", partitions=_names(places), left_to_ledger=left)

    def _on_lost(self, _consumer: Any, places: Sequence[Any]) -> None:
        """Lets lost partitions go without a commit; deliveries in flight still settle their rows."""
        lost = [a for p in places if (a := self._assignments.get((p.topic, p.partition)))]
        self._let_go(lost)
        log.warning("partitions_lost", partitions=_names(places))

    def _on_refused(self) -> None:
        """Lets all partitions go: the group refused this member."""
        lost = self.assignments
        self._let_go(lost)
        if lost:
            log.warning("partitions_lost", partitions=_names(lost))

    def _let_go(self, assignments: Iterable[Assignment]) -> None:
        for assignment in assignments:
            assignment.state = PartitionState.LOST
            self._commits.forget(assignment)
            self._assignments.pop((assignment.topic, assignment.partition), None)

    def _begin_anew(self, old: Assignment) -> Assignment:
        """Replaces the tracker: the log restarted below the watermark (new topic, offsets reset)."""
        log.warning("offset_went_back", partition=repr(old), watermark=old.offsets.watermark)
        if (watermark := old.offsets.watermark) is not None:
            self._removals.came((old.topic, old.partition), old.lane, watermark, [])
        self._let_go([old])
        self._begin(old.topic, old.partition, old.lane, {})
        return self._assignments[old.topic, old.partition]

    def _lane_of(self, place: Any) -> Lane:
        return self._assignments[place.topic, place.partition].lane

    def _places(self, assignments: Iterable[Assignment]) -> list[Any]:
        return [self._place(a.topic, a.partition) for a in assignments]


def _poison(
    message: Any | None,
    assignment: Assignment,
    offset: int,
    exc: EnvelopeError,
    headers: Headers,
) -> Poison:
    """Returns the poison; without key and value for a message that cannot be read, which is None."""
    return Poison(
        assignment,
        offset,
        key=None if message is None else message.key(),
        payload=None if message is None else message.value(),
        headers=headers,
        code=exc.code,
        detail=shown(f"{exc.path}: {exc.detail}"),
    )


def _traceparent(headers: Headers) -> str | None:
    """Returns the trace context of the first header with that name; None if it is none."""
    for key, value in headers:
        if key == TRACE_HEADER and value:
            return trace_context(value.decode("ascii", "replace"))
    return None


def _names(places: Iterable[Any]) -> list[str]:
    return [f"{place.topic}/{place.partition}" for place in places]
