"""Forwards committed messages to their topics, and marks them once the broker acknowledged them.

A message is leased, produced outside of any transaction, and marked under the lease's token. After a crash
between the acknowledgement and the mark it goes again once the lease is over, with the same id, key and
partition: the ledger absorbs the repeat. Nothing is produced under a lease that is over half its time.

A topic that does not answer holds up its own messages alone, and a claim ends at its bytes
(docs/decisions/324-a-silent-topic-holds-up-its-own-messages.md).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from backends.kafka.clients import KafkaException
from idempotency.ledger import LedgerError
from idempotency.payload_cipher import PayloadUnreadable
from lookback.metrics import LookbackMetrics
from lookback.store import CLAIM_BYTES, Forwarded
from lookback.transaction import TxRow, prepared
from message.kafka_errors import is_fatal
from message.lookback import TX_HEADER
from message.producer_properties import request_timeout_ms

log = structlog.get_logger(__name__)
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 60_000
_MS: Final = 1_000
_WORK_S: Final = 0.05
"""Longest wait for reports of the producer while messages are under way."""
_AWAY_S: Final = 1.0
_LATE_S: Final = 1.0
"""A message that waits for Kafka for longer takes no more room of other topics."""
_LATE_BYTES: Final = CLAIM_BYTES // 2
"""Bytes of late messages with which a topic gets no more."""
_MOST_BATCHES: Final = 5
"""Most messages under way, late ones too, in batches."""
_MOST_BYTES: Final = 3 * CLAIM_BYTES
"""Most bytes under way, late ones too: below the buffer of Kafka's client."""


def delivery_timeout_ms(lease_s: float) -> int:
    """Returns the producer's limit for one message: every report comes before its lease is over."""
    return max(1_000, int(lease_s * _MS / 2) - 500)


def forward_properties(lease_s: float) -> dict[str, Any]:
    """Returns the producer's properties that follow from the lease."""
    delivery_ms = delivery_timeout_ms(lease_s)
    return {
        "delivery.timeout.ms": delivery_ms,
        "request.timeout.ms": request_timeout_ms(delivery_ms),
    }


class ForwardQueue(Protocol):
    """The store (`lookback.store.LookbackStore`). Every method raises LedgerError."""

    def claim_forwards(
        self, limit: int, lease_ms: int, most_bytes: int, without: Collection[str]
    ) -> list[TxRow]:
        """Leases committed messages up to so many bytes, none to the topics of `without`."""
        ...

    def opened(self, row: TxRow) -> TxRow:
        """Opens the body. Raises PayloadUnreadable."""
        ...

    def mark_forwarded(self, done: Sequence[Forwarded]) -> int:
        """Marks acknowledged messages. Returns how many this holder could mark."""
        ...

    def damaged(self, row: TxRow) -> str:
        """Parks a message with another body."""
        ...

    def not_forwarded(self, row: TxRow, error: str, pause_ms: int) -> str:
        """Puts a message back."""
        ...


class ForwardTerms(NamedTuple):
    """Limits of one process."""

    batch: int
    """Most messages under way that are not late."""
    lease_s: float
    poll_s: float
    drain_s: float


class _Failed(NamedTuple):
    row: TxRow
    error: str


class _UnderWay(NamedTuple):
    """A message that Kafka's client has."""

    row: TxRow
    since: float

    @property
    def size(self) -> int:
        """Bytes of its body."""
        return len(self.row.body or b"")


class _Room(NamedTuple):
    """Limits of the next claim."""

    messages: int
    bytes: int
    silent: Collection[str]
    """Topics that get no more."""


class ProducerFailed(RuntimeError):
    """The producer cannot go on; the text is the client's."""


class Forwarder:
    """`run` is one thread's, and the producer's reports run in its polls. Any thread may call `wake` and
    `stop`."""

    def __init__(
        self,
        store: ForwardQueue,
        producer: Any,
        metrics: LookbackMetrics,
        terms: ForwardTerms,
        *,
        on_acknowledged: Callable[[TxRow, Any], None] = lambda _row, _message: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_acknowledged` gets each message that the broker has, and its record."""
        self._store = store
        self._producer = producer
        self._metrics = metrics
        self._batch, self._lease_s, self._poll_s, self._drain_s = terms
        self._on_acknowledged = on_acknowledged
        self._monotonic = monotonic
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._under_way: dict[str, _UnderWay] = {}  # this and the three below: the thread of `run`
        self._done: list[Forwarded] = []
        self._failed: list[_Failed] = []
        self._fatal = ""
        self.beat = monotonic()
        """Time of the last round; `run` writes it, the health page reads it."""

    def wake(self) -> None:
        """Lets `run` look at once."""
        self._wake.set()

    def stop(self) -> None:
        """Ends `run` after the messages under way, or after the drain's time; idempotent."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Forwards until `stop`; then waits for the messages under way. Raises ProducerFailed after a fatal
        error of the producer."""
        while not self._stop.is_set() and not self._fatal:
            self.run_once()
        deadline = self._monotonic() + self._drain_s
        while not self._drained() and self._monotonic() < deadline:
            self._producer.poll(_WORK_S)
        if self._under_way or self._done:
            log.warning("forwards_left", messages=len(self._under_way) + len(self._done))
        if self._fatal:
            raise ProducerFailed(f"the Kafka producer cannot go on: {self._fatal}")

    def _drained(self) -> bool:
        """Writes what became of the messages. Returns True once none is left."""
        try:
            self._settle()
        except LedgerError as exc:
            log.debug("forwards_not_written", cause=str(exc))
        return not (self._under_way or self._done or self._failed)

    def run_once(self) -> int:
        """Marks what was acknowledged, and produces what is due. Returns the number produced."""
        self.beat = self._monotonic()
        self._wake.clear()
        self._producer.poll(0)
        try:
            self._settle()
            produced = self._produce_due()
        except LedgerError as exc:
            log.debug("forwards_not_read", cause=str(exc))
            self._stop.wait(_AWAY_S)
            return 0
        if not produced:
            self._wait()
        return produced

    def _wait(self) -> None:
        if self._under_way:
            self._producer.poll(_WORK_S)
        elif not self._done and not self._failed:
            self._wake.wait(self._poll_s)

    def _produce_due(self) -> int:
        claimed_at = self._monotonic()
        room = self._room(claimed_at)
        if room.messages <= 0 or room.bytes <= 0:
            return 0
        rows = self._store.claim_forwards(
            room.messages, int(self._lease_s * _MS), room.bytes, room.silent
        )
        for row in rows:
            self._start(row, claimed_at)
        return len(rows)

    def _room(self, now: float) -> _Room:
        """Returns the room of the next claim. Late messages take none of other topics, until all of them
        together are too many; their topic gets no more once its own are."""
        everything = list(self._under_way.values())
        late = [one for one in everything if now - one.since > _LATE_S]
        counts, sizes = Counter[str](), Counter[str]()
        for one in late:
            counts[one.row.topic or ""] += 1
            sizes[one.row.topic or ""] += one.size
        total, late_total = sum(one.size for one in everything), sizes.total()
        return _Room(
            min(self._batch + len(late), _MOST_BATCHES * self._batch) - len(everything),
            min(CLAIM_BYTES + late_total, _MOST_BYTES) - total,
            {name for name in counts if counts[name] >= self._batch or sizes[name] >= _LATE_BYTES},
        )

    def _start(self, row: TxRow, claimed_at: float) -> None:
        """Produces one message, if its lease is young and its body is the prepared one."""
        if self._monotonic() - claimed_at > self._lease_s / 2:
            self._failed.append(_Failed(row, "the process was held up past half its lease"))
            return
        try:
            opened = self._store.opened(row)
        except PayloadUnreadable as exc:
            self._failed.append(_Failed(row, str(exc)))
            return
        if not opened.body_is_whole:
            log.error("body_damaged", tx_id=row.tx_id, biz_type=row.biz_type)
            self._store.damaged(row)
            return
        self._under_way[row.tx_id] = _UnderWay(opened, self._monotonic())
        try:
            self._produce(opened)
        except KafkaException as exc:
            self._report(opened, exc.args[0], None)
        except Exception as exc:  # BufferError: certainly not sent
            del self._under_way[row.tx_id]
            self._failed.append(_Failed(opened, str(exc)))

    def _produce(self, row: TxRow) -> None:
        message = prepared(row)
        headers = [(name, value.encode()) for name, value in message.headers.items()]
        self._producer.produce(
            message.topic,
            message.payload,
            message.forward_key.encode(),
            headers=[*headers, (TX_HEADER, row.tx_id.encode())],
            on_delivery=lambda error, sent: self._report(row, error, sent),
        )

    def _report(self, row: TxRow, error: Any, sent: Any) -> None:
        """Notes what became of a message; without an `error` the broker has it."""
        if self._under_way.pop(row.tx_id, None) is None:
            return
        if error is not None:
            if is_fatal(error):
                self._fatal = error.str()
            self._failed.append(_Failed(row, error.str()))
        else:
            place = f"{sent.topic()}/{sent.partition()}/{sent.offset()}"
            self._done.append(Forwarded(row, place))
            self._on_acknowledged(row, sent)

    def _settle(self) -> None:
        """Writes what became of the messages. Raises LedgerError; then the next call writes it."""
        if self._done:
            marked = self._store.mark_forwarded(self._done)
            self._metrics.forwarded.inc(marked)
            self._metrics.late.labels("forward").inc(len(self._done) - marked)
            self._done = []
        while self._failed:
            row, error = self._failed[-1]
            log.warning("not_forwarded", tx_id=row.tx_id, topic=row.topic, cause=error)
            self._store.not_forwarded(row, error, _pause_ms(row.tries))
            self._metrics.not_forwarded.inc()
            self._failed.pop()


def _pause_ms(tries: int) -> int:
    return int(min(_FIRST_PAUSE_MS * 2 ** min(tries, 16), _LONGEST_PAUSE_MS))
