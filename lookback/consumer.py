"""Consumer of `look_back_msg`: batches of records go to the database, then their offsets pass.

    poll → decode → database transaction → dead letters acknowledged → offsets committed

The offset of a record passes only after the commit of its database transaction. A crash in between has the
batch read again, and applying it again changes nothing. While the database is away, or no dead letter is
taken, the partitions are paused, and polling goes on, so that the group keeps its members.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from idempotency.ledger import LedgerUnavailable
from lookback.dead_letters import PoisonRecord, PoisonWriter
from lookback.metrics import LookbackMetrics
from lookback.store import TakenRecords
from lookback.transaction import TxTerms
from message.kafka_errors import is_fatal
from message.lookback import (
    LookbackMessageError,
    LookbackRecord,
    PrepareRecord,
    check_arrival,
    decode,
)

log = structlog.get_logger(__name__)
POLL_S: Final = 0.2
BATCH_BYTES: Final = 16 << 20
"""Bytes of values after which a batch takes no more records: it is in memory several times."""
_TAKEN_AT_ONCE: Final = 16
"""Records between two looks at the bytes."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LETTERS_PAUSE_S: Final = 1.0
_FAREWELL_S: Final = 2.0
Place = tuple[str, int]
"""Topic and partition."""


class Takes(Protocol):
    """The store (`lookback.store.LookbackStore`)."""

    def take(self, records: Sequence[LookbackRecord]) -> TakenRecords:
        """Applies records in one transaction. Raises LedgerError."""
        ...


class ReadBatch(NamedTuple):
    """Records of one poll, sorted out."""

    records: Sequence[tuple[Any, LookbackRecord]]
    poison: Sequence[PoisonRecord]
    next_offsets: Mapping[Place, int]


class ConsumerParts(NamedTuple):
    """Parts that the consumer works with."""

    consumer: Any
    store: Takes
    poison: PoisonWriter
    terms: Mapping[str, TxTerms]
    metrics: LookbackMetrics
    place: Callable[[str, int, int], Any]
    """Makes a TopicPartition of topic, partition and offset."""


class LookbackConsumer:
    """`run` is one thread's, and the consumer's callbacks run in its polls. Any thread may call `stop`."""

    def __init__(
        self,
        parts: ConsumerParts,
        topic: str,
        batch: int,
        *,
        on_taken: Callable[[], None] = lambda: None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = parts
        self._topic = topic
        self._batch = batch
        self._on_taken = on_taken
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._stop = threading.Event()
        self._lost: set[Place] = set()  # written by callbacks in the polls of `run`
        self._paused = False  # written by `run`, read by callbacks in its polls
        self.beat = monotonic()
        """Time of the last round; `run` writes it, the health page reads it."""
        self.away: str | None = None
        """Why the database gives no answer, None while it does; `run` writes it."""
        self.held: str | None = None
        """Why the dead letters cannot be written, None while they can; `run` writes it."""
        self.assigned = False
        """Whether the group gave partitions to this process; `run` writes it."""

    def stop(self) -> None:
        """Ends `run` after the batch under way, or after the try under way to write it; idempotent."""
        self._stop.set()

    def run(self) -> None:
        """Takes batches until `stop`."""
        self._parts.consumer.subscribe(
            [self._topic], on_assign=self._gained, on_revoke=self._gone, on_lost=self._gone
        )
        try:
            while not self._stop.is_set():
                self.run_once()
            self._parts.consumer.poll(_FAREWELL_S)  # sends the last commit
        finally:
            self._parts.consumer.close()

    def run_once(self) -> int:
        """Takes one batch. Returns the number of its records."""
        self.beat = self._monotonic()
        batch = self._sorted_out(self._polled())
        if batch.next_offsets and self._settle(batch):
            self._commit(batch.next_offsets)
        return len(batch.records) + len(batch.poison)

    def _polled(self) -> list[Any]:
        """Returns the records of one batch; after BATCH_BYTES it takes no more of them."""
        polled: list[Any] = []
        total, wait_s = 0, POLL_S
        while len(polled) < self._batch and total < BATCH_BYTES:
            most = min(_TAKEN_AT_ONCE, self._batch - len(polled))
            more = self._parts.consumer.consume(most, wait_s)
            if not more:
                break
            polled += more
            total += sum(len(one.value() or b"") for one in more)
            wait_s = 0.0
        return polled

    def _sorted_out(self, polled: Sequence[Any]) -> ReadBatch:
        records: list[tuple[Any, LookbackRecord]] = []
        poison: list[PoisonRecord] = []
        offsets: dict[Place, int] = {}
        for one in polled:
            if one.error() is not None:
                _judge(one.error())
                continue
            try:
                records.append((one, self._read(one.value())))
            except LookbackMessageError as exc:
                poison.append(PoisonRecord(one, exc.code, f"at {exc.path}: {exc.detail}"))
            offsets[one.topic(), one.partition()] = one.offset() + 1
        return ReadBatch(records, poison, offsets)

    def _read(self, value: bytes | None) -> LookbackRecord:
        """Raises LookbackMessageError, also for what the configuration does not allow."""
        record = decode(value)
        check_arrival(record, self._wall_ms())
        terms = self._parts.terms.get(record.biz_type)
        if terms is None:
            fault = f"add [lookback.biz_types.{record.biz_type}], then replay the record"
            raise LookbackMessageError("unknown_biz_type", "$.biz_type", fault)
        if isinstance(record, PrepareRecord):
            _check_allowed(record, terms)
        return record

    def _settle(self, batch: ReadBatch) -> bool:
        """Returns whether the offsets may pass."""
        self._lost.clear()
        taken = self._until_taken([record for _, record in batch.records])
        if taken is None:
            return False
        refused = [
            PoisonRecord(batch.records[index][0], *refusal)
            for index, refusal in taken.poison.items()
        ]
        poison = [*batch.poison, *refused]
        self._count(taken.did, poison)
        if not self._parts.poison.write(poison, self._wait_for_letters):
            return False
        self.held = None
        self._resume()
        self._on_taken()
        return True

    def _until_taken(self, records: Sequence[LookbackRecord]) -> TakenRecords | None:
        """Repeats until the database has the batch. Returns None if `stop` was set before."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                taken = self._parts.store.take(records)
            except LedgerUnavailable as exc:
                self._hold(exc)
            else:
                self._go_on()
                return taken
            if self._stop.is_set():
                return None
            self._keep_alive(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _hold(self, cause: LedgerUnavailable) -> None:
        if not self.away:
            log.error("ledger_away", stage="lookback", cause=str(cause))
        self.away = str(cause)
        self._pause()

    def _go_on(self) -> None:
        if self.away:
            self.away = None
            log.info("ledger_back", stage="lookback")
            self._resume()

    def _wait_for_letters(self, cause: str) -> bool:
        """Waits between two tries to write dead letters. Returns False once `stop` was set."""
        self.held = cause
        if not self._stop.is_set():
            self._pause()
            self._keep_alive(_LETTERS_PAUSE_S)
        return not self._stop.is_set()

    def _pause(self) -> None:
        self._paused = True
        self._parts.consumer.pause(self._parts.consumer.assignment())

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._parts.consumer.resume(self._parts.consumer.assignment())

    def _keep_alive(self, pause_s: float) -> None:
        """Polls paused partitions: no record comes, and the group keeps its member."""
        self.beat = self._monotonic()
        message = self._parts.consumer.poll(pause_s)
        if message is not None and message.error() is not None:
            _judge(message.error())

    def _count(self, did: Counter[str], poison: Sequence[PoisonRecord]) -> None:
        for name, count in did.items():
            self._parts.metrics.records.labels(name).inc(count)
        for one in poison:
            self._parts.metrics.poison.labels(one.reason).inc()
            log.warning("record_poison", origin=one.origin, reason=one.reason, detail=one.detail)

    def _commit(self, next_offsets: Mapping[Place, int]) -> None:
        """Sends the offsets, but those of partitions that were lost meanwhile."""
        places = [
            self._parts.place(topic, partition, offset)
            for (topic, partition), offset in next_offsets.items()
            if (topic, partition) not in self._lost
        ]
        if not places:
            return
        try:
            self._parts.consumer.commit(offsets=places, asynchronous=True)
        except Exception as exc:  # the next batch's commit covers it, or the records are read again
            log.warning("commit_refused", cause=str(exc))

    def _gained(self, consumer: Any, places: Sequence[Any]) -> None:
        """A pause survives losing and regaining a partition: resumes, then pauses anew."""
        self.assigned = True
        consumer.resume(list(places))
        if self._paused:
            consumer.pause(list(places))

    def _gone(self, _consumer: Any, places: Sequence[Any]) -> None:
        self._lost |= {(one.topic, one.partition) for one in places}


class ConsumerRefused(RuntimeError):
    """Kafka refused the group's member for good."""


def _judge(error: Any) -> None:
    """Raises ConsumerRefused for a fatal error; logs any other, which passes by itself."""
    if is_fatal(error):
        raise ConsumerRefused(error.str())
    log.warning("poll_failed", cause=error.str())


def _check_allowed(record: PrepareRecord, terms: TxTerms) -> None:
    if not terms.allows(record.topic):
        fault = (
            f"add {record.topic} to topics of [lookback.biz_types.{record.biz_type}], then replay"
        )
        raise LookbackMessageError("topic_not_allowed", "$.topic", fault)
    if record.check is not None and record.check != terms.check:
        fault = f"the configured check of {record.biz_type} is {terms.check or 'none'}"
        raise LookbackMessageError("unknown_check", "$.check", fault)
