"""Dead letters: poison records, kept unchanged, acknowledged before their offset passes.

A thread of its own produces them and waits for the broker's acknowledgement. While the topic cannot be
written a record stays open: its offset holds, and its lane goes on up to the source's bound on records in
flight. While the permits of its lane and reason are spent (dispatcher/dead_letters/quota.py) it stays open
too, and the lane is paused.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import structlog

from dispatcher.dead_letters.quota import DeadLetterQuota
from dispatcher.pipeline.work import Assignment
from message.vocabulary import Lane
from sending.dead_letters.forms import (
    TOO_LARGE,
    LetterForm,
    LetterParts,
    ProducedLetter,
    letter_in,
    message_id_in,
    next_form,
)
from sending.dead_letters.headers import Headers
from sending.runtime.clock import Clock
from tracing.events import Recorder, Stage, TraceEvent

log = structlog.get_logger(__name__)

PRODUCER: Final = {"delivery.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 5_000}
"""Every attempt ends before the flush below gives up: a record under way must not be produced again. A
missing topic is reported within seconds."""
_IDLE_S = 0.5
_LEAST_PAUSE_S = 0.02
_RETRY_S = 1.0


class Poison:
    """One record that cannot become a notification."""

    __slots__ = (
        "alone",
        "assignment",
        "code",
        "detail",
        "form",
        "headers",
        "key",
        "offset",
        "payload",
        "size",
        "weight",
    )

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
        self.weight = self.size + len(key or b"") + _bytes_of(headers)
        """Bytes that it holds while it is not done."""
        self.form = LetterForm.WHOLE
        self.alone = False
        """Whether it is produced by itself: a batch with it was too large."""

    def shrink(self) -> None:
        """Chooses the next smaller form after the topic refused this one."""
        self.form = next_form(self.form, self.size)

    def letter(self) -> ProducedLetter:
        """Returns the dead letter in its form."""
        parts = LetterParts(
            self.key, self.payload, self.headers, self.code, self.detail, self.origin
        )
        return letter_in(self.form, parts)

    @property
    def origin(self) -> str:
        """topic/partition/offset."""
        return f"{self.assignment.topic}/{self.assignment.partition}/{self.offset}"


class DeadLetterWriter:
    """Its thread produces; the source calls `put` and gets the poison back once acknowledged.

    `producer` is `backends.kafka.clients.producer`'s; nothing else uses it.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        *,
        on_done: Callable[[Sequence[Poison]], None],
        on_count: Callable[[str], None],
        permits: DeadLetterQuota,
        recorder: Recorder,
        clock: Clock,
        worker: str,
    ) -> None:
        self.held: dict[tuple[Lane, str], int] = {}
        """Lane and reason to the number of poison records without a permit; replaced by `_permitted`, read
        by the source's thread and by metrics."""
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
        """Poison without a permit, in order of arrival."""
        self._stop = threading.Event()
        self._failing = False

    @property
    def spent(self) -> frozenset[Lane]:
        """The lanes that are paused until they earn a permit."""
        return frozenset(lane for lane, _ in self.held)

    def put(self, poison: Poison) -> None:
        """Takes one poison record."""
        self._queue.put(poison)

    def stop(self) -> None:
        """Ends `run` after the current batch; idempotent. An unacknowledged record's offset holds."""
        self._stop.set()

    def run(self) -> None:
        """Produces until `stop`."""
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
        """Returns the seconds until the first awaited permit, at most _IDLE_S."""
        waits = (self._permits.wait_s(lane.name, reason) for lane, reason in self.held)
        return min(_IDLE_S, max(_LEAST_PAUSE_S, min(waits, default=_IDLE_S)))

    def _permitted(self) -> list[Poison]:
        """Returns the waiting records that got a permit. Logs when a lane runs out, and when it goes on."""
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
        """Produces the batch and waits. Returns the records that were not acknowledged. A broker refuses a
        whole batch, so the records of a too large one go by themselves the next time."""
        alone = [poison for poison in batch if poison.alone]
        done, failed = self._written([poison for poison in batch if not poison.alone])
        for poison in alone:
            if self._stop.is_set():
                break
            more, causes = self._written([poison])
            done += more
            failed += causes
        self._tell(done, failed)
        acknowledged = set(map(id, done))
        return [poison for poison in batch if id(poison) not in acknowledged]

    def _written(self, batch: Sequence[Poison]) -> tuple[list[Poison], list[str]]:
        """Returns the acknowledged records, and the causes for the others."""
        done: list[Poison] = []
        failed: dict[int, str] = {}
        for index, poison in enumerate(batch):
            self._produce(index, poison, done, failed)
        if batch:
            self._producer.flush(_flush_s(len(batch)))
        for index, name in failed.items():
            if name in TOO_LARGE:
                self._too_large(batch[index], by_itself=len(batch) == 1)
        return done, list(failed.values())

    def _produce(
        self, index: int, poison: Poison, done: list[Poison], failed: dict[int, str]
    ) -> None:
        def delivered(error: Any, _message: Any) -> None:
            if error is None:
                done.append(poison)
            else:
                failed[index] = error.name()

        key, value, headers = poison.letter()
        try:
            self._producer.produce(
                self._topic, key=key, value=value, headers=headers, on_delivery=delivered
            )
        except BufferError:
            failed[index] = "the producer's buffer is full"
        except Exception as exc:  # confluent_kafka.KafkaException, which only backends/ imports
            name = exc.args[0].name() if exc.args and hasattr(exc.args[0], "name") else repr(exc)
            failed[index] = name

    def _too_large(self, poison: Poison, *, by_itself: bool) -> None:
        if by_itself:
            poison.shrink()
        poison.alone = True

    def _tell(self, done: Sequence[Poison], failed: Sequence[str]) -> None:
        if failed and not self._failing:
            log.error("dead_letters_held", topic=self._topic, cause=failed[0])
        elif done and self._failing and not failed:
            log.info("dead_letters_flow_again", topic=self._topic)
        self._failing = bool(failed)
        if done:
            self._recorder.record([self._event(poison) for poison in done])
            for poison in done:
                self._on_count(poison.code)
                if poison.form is LetterForm.STUB:
                    _say_stub(poison)
            self._on_done(done)

    def _event(self, poison: Poison) -> TraceEvent:
        return TraceEvent(
            at=self._clock.now_ms(),
            stage=Stage.DEAD_LETTER,
            message_id=message_id_in(poison.headers),
            lane=poison.assignment.lane.name,
            worker=self._worker,
            reason=poison.code,
            detail=poison.detail,
            origin=poison.origin,
        )


def _bytes_of(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


def _say_stub(poison: Poison) -> None:
    log.warning(
        "dead_letter_is_a_stub",
        origin=poison.origin,
        bytes=poison.size,
        what="the dead letters' topic takes no more of it: raise its max.message.bytes",
    )


def _flush_s(count: int) -> float:
    return 10.0 + count / 1_000
