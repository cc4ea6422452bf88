"""Dead letters: poison records, kept as they came, acknowledged before their offset passes.

A thread of its own produces them and waits for the broker's word. While the topic cannot be written
the record simply stays open: its offset holds, the lane goes on, and the source's bound on records in
flight stops an avalanche. While the permits of its lane and reason are spent (dispatcher/permits.py) it
stays open too, and the lane is paused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import structlog

from dispatcher.clock import Clock
from dispatcher.permits import Permits
from dispatcher.work import Assignment
from message.vocabulary import Lane
from tracing.events import Recorder, Stage, TraceEvent

log = structlog.get_logger(__name__)

REASON: Final = "hongyan-dead-reason"
DETAIL: Final = "hongyan-dead-detail"
ORIGIN: Final = "hongyan-dead-origin"
TRUNCATED: Final = "hongyan-dead-truncated"
"""Original size in bytes, where the topic would not take the whole value."""
PRODUCER: Final = {"delivery.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 5_000}
"""Every try has its answer before the flush below gives up: what is still under way must not be
produced once more, and a topic that is not there must be told of soon."""
_KEEP_OF_OVERSIZED = 512 * 1024
_IDLE_S = 0.5
_LEAST_PAUSE_S = 0.02
_RETRY_S = 1.0
_TOO_LARGE = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")

Headers = list[tuple[str, bytes | None]]


class Poison:
    """One record that is no notification we could send."""

    __slots__ = ("assignment", "code", "detail", "headers", "key", "offset", "payload", "size")

    def __init__(
        self,
        assignment: Assignment,
        offset: int,
        *,
        key: bytes | None,
        payload: bytes | None,
        headers: Headers,
        code: str,
        detail: str,
    ) -> None:
        self.assignment = assignment
        self.offset = offset
        self.key = key
        self.payload = payload
        self.headers = headers
        self.code = code
        self.detail = detail
        self.size = len(payload or b"")

    @property
    def origin(self) -> str:
        """topic/partition/offset."""
        return f"{self.assignment.topic}/{self.assignment.partition}/{self.offset}"

    def marked_headers(self) -> Headers:
        """The headers as they came, and ours behind them."""
        ours = ((REASON, self.code), (DETAIL, self.detail), (ORIGIN, self.origin))
        return [*self.headers, *((name, text.encode()) for name, text in ours)]


class DeadLetters:
    """Its thread produces; the source puts poison in and gets it back once acknowledged.

    `producer` is `backends.kafka.producer`'s; this class has it alone.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        *,
        on_done: Callable[[Sequence[Poison]], None],
        on_count: Callable[[str], None],
        permits: Permits,
        recorder: Recorder,
        clock: Clock,
        worker: str,
    ) -> None:
        self.held: dict[tuple[Lane, str], int] = {}
        """Lane and reason to the poison that waits for a permit; written whole by this stage's thread,
        read by the source's and by metrics."""
        self._producer = producer
        self._topic = topic
        self._on_done = on_done
        self._on_count = on_count
        self._permits = permits
        self._recorder = recorder
        self._clock = clock
        self._worker = worker
        self._queue: SimpleQueue[Poison] = SimpleQueue()
        self._waiting: list[Poison] = []
        """Without a permit, in the order in which it came."""
        self._stop = threading.Event()
        self._failing = False

    @property
    def spent(self) -> frozenset[Lane]:
        """Lanes that are paused until they earn a permit."""
        return frozenset(lane for lane, _ in self.held)

    def put(self, poison: Poison) -> None:
        """Hand over one poison record."""
        self._queue.put(poison)

    def stop(self) -> None:
        """End after the batch in hand; idempotent. What is not acknowledged keeps its offset."""
        self._stop.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stop.is_set():
            self._waiting += self._gather()
            permitted = self._permitted()
            while permitted and not self._stop.is_set():
                permitted = self._write(permitted)
                if permitted:
                    self._stop.wait(_RETRY_S)

    def _gather(self) -> list[Poison]:
        batch: list[Poison] = []
        try:
            batch.append(self._queue.get(timeout=self._pause_s()))
            while True:
                batch.append(self._queue.get_nowait())
        except Empty:
            return batch

    def _pause_s(self) -> float:
        """Until the first permit that somebody waits for, at most."""
        waits = (self._permits.wait_s(lane.name, reason) for lane, reason in self.held)
        return min(_IDLE_S, max(_LEAST_PAUSE_S, min(waits, default=_IDLE_S)))

    def _permitted(self) -> list[Poison]:
        """Those of the waiting that have a permit; says so when a lane runs out, and when it goes on."""
        permitted: list[Poison] = []
        waiting: list[Poison] = []
        for poison in self._waiting:
            permit = self._permits.take(poison.assignment.lane.name, poison.code)
            (permitted if permit else waiting).append(poison)
        self._waiting = waiting
        held = dict(Counter((poison.assignment.lane, poison.code) for poison in waiting))
        for lane, reason in set(held) - set(self.held):
            log.error(
                "dead_letter_permits_spent",
                lane=lane.name,
                reason=reason,
                held=held[lane, reason],
                what="the lane is paused until permits are earned: look at its producer",
            )
        for lane, reason in set(self.held) - set(held):
            log.info("dead_letter_permits_earned", lane=lane.name, reason=reason)
        self.held = held
        return permitted

    def _write(self, batch: Sequence[Poison]) -> list[Poison]:
        """Produce the batch and wait; returns what was not acknowledged."""
        done: list[Poison] = []
        failed: dict[int, str] = {}
        for index, poison in enumerate(batch):
            self._produce(index, poison, done, failed)
        self._producer.flush(_flush_s(len(batch)))
        self._tell(done, failed)
        acknowledged = set(map(id, done))
        return [poison for poison in batch if id(poison) not in acknowledged]

    def _produce(
        self, index: int, poison: Poison, done: list[Poison], failed: dict[int, str]
    ) -> None:
        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                done.append(poison)
            else:
                self._failed(index, poison, error.name(), failed)

        try:
            self._producer.produce(
                self._topic,
                key=poison.key,
                value=poison.payload,
                headers=poison.marked_headers(),
                on_delivery=delivered,
            )
        except BufferError:
            failed[index] = "the producer's buffer is full"
        except Exception as exc:  # confluent_kafka.KafkaException: its home is backends/
            name = exc.args[0].name() if exc.args and hasattr(exc.args[0], "name") else repr(exc)
            self._failed(index, poison, name, failed)

    def _failed(self, index: int, poison: Poison, name: str, failed: dict[int, str]) -> None:
        failed[index] = name
        if name in _TOO_LARGE and poison.payload and len(poison.payload) > _KEEP_OF_OVERSIZED:
            poison.headers.append((TRUNCATED, str(len(poison.payload)).encode()))
            poison.payload = poison.payload[:_KEEP_OF_OVERSIZED]

    def _tell(self, done: Sequence[Poison], failed: dict[int, str]) -> None:
        if failed and not self._failing:
            log.error("dead_letters_held", topic=self._topic, cause=next(iter(failed.values())))
        elif done and self._failing and not failed:
            log.info("dead_letters_flow_again", topic=self._topic)
        self._failing = bool(failed)
        if done:
            self._recorder.record([self._event(poison) for poison in done])
            for poison in done:
                self._on_count(poison.code)
            self._on_done(done)

    def _event(self, poison: Poison) -> TraceEvent:
        return TraceEvent(
            at=self._clock.now_ms(),
            stage=Stage.DEAD_LETTER,
            message_id=_id_in(poison.headers),
            lane=poison.assignment.lane.name,
            worker=self._worker,
            reason=poison.code,
            detail=poison.detail,
            origin=poison.origin,
        )


def _id_in(headers: Headers) -> str:
    """The producer's `hongyan-id` header: the value itself could not be read."""
    for name, value in headers:
        if name == "hongyan-id" and value:
            return value.decode("ascii", "replace")[:64]
    return ""


def _flush_s(count: int) -> float:
    return 10.0 + count / 1_000
