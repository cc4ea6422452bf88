"""Outcome events into Kafka: one record each, acknowledged by every replica in sync.

key      ordering_key, else the notification's id, as on the dispatch topics
value    the event as JSON
headers  hongyan-event-id
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import structlog

from backends.kafka import clients as kafka
from backends.settings import SettingsError
from recovery.outcomes.events import ReadyEvent

log = structlog.get_logger(__name__)
EVENT_ID: Final = "hongyan-event-id"
PRODUCER: Final = {"delivery.timeout.ms": 8_000, "topic.metadata.propagation.max.ms": 5_000}
"""Every record ends before the flush below gives up. A missing topic is reported within seconds."""
_FLUSH_S: Final = 10.0
_FULL_POLL_S: Final = 0.1
_encoder = msgspec.json.Encoder()


class OutcomeTopic:
    """One thread calls `publish`."""

    def __init__(
        self,
        make: Callable[[], Any],
        topic: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`make` returns a producer; the first events need one."""
        self._make = make
        self._topic = topic
        self._monotonic = monotonic
        self._producer: Any = None
        self._cause = ""
        """The last error, as it was logged."""

    def publish(self, events: Sequence[ReadyEvent]) -> set[int]:
        """Returns the batches of which every event is acknowledged."""
        try:
            producer = self._opened()
        except SettingsError as exc:  # a certificate is being replaced, say
            self._note([str(exc)], failed=True)
            return set()
        failed = {one.batch for one in events}
        open_events = dict.fromkeys(failed, 0)
        for one in events:
            open_events[one.batch] += 1
        errors: list[str] = []

        def acknowledge(batch: int, error: Any) -> None:
            if error is not None:
                errors.append(error.name().lstrip("_"))
                return
            open_events[batch] -= 1
            if open_events[batch] == 0:
                failed.discard(batch)

        deadline = self._monotonic() + _FLUSH_S
        for one in events:
            if not self._produce(producer, one, acknowledge, deadline):
                errors.append("QUEUE_FULL")
                break
        producer.flush(max(0.0, deadline - self._monotonic()))
        self._note(errors, failed=bool(failed))
        return open_events.keys() - failed

    def _produce(
        self,
        producer: Any,
        one: ReadyEvent,
        acknowledge: Callable[[int, Any], None],
        deadline: float,
    ) -> bool:
        """Hands one record to the producer; waits while that is full. Returns False after the deadline."""
        while True:
            try:
                producer.produce(
                    self._topic,
                    key=one.key.encode(errors="replace"),
                    value=_encoder.encode(one.event),
                    headers=[(EVENT_ID, one.event.event_id.encode())],
                    on_delivery=lambda error, _record: acknowledge(one.batch, error),
                )
                return True
            except BufferError:
                if self._monotonic() >= deadline:
                    return False
            except (
                kafka.KafkaException
            ) as exc:  # it is too large, or the producer has ended for good
                acknowledge(one.batch, exc.args[0])
                return True
            producer.poll(_FULL_POLL_S)

    def _opened(self) -> Any:
        if self._producer is None:
            self._producer = self._make()
        return self._producer

    def _note(self, errors: Sequence[str], *, failed: bool) -> None:
        """Logs a new cause of failures once, and their end. After a failure the next call has a producer of
        its own: an idempotent one may have ended for good."""
        if failed:
            self._producer = None
            cause = errors[0] if errors else "NOT_ACKNOWLEDGED"
            if cause != self._cause:
                log.error("outcomes_held", topic=self._topic, cause=cause, what=_REMEDY)
            self._cause = cause
        elif self._cause:
            self._cause = ""
            log.info("outcomes_go_on", topic=self._topic)


_REMEDY: Final = "deliveries go on; events wait in the ledger: see `hongyan topics apply`"


def topic_producer(settings: Any, name: str) -> Callable[[], Any]:
    """Returns a maker of producers for the topic; `settings` are Kafka's."""
    return lambda: kafka.producer(settings, client_id=f"{name}-outcomes", changes=PRODUCER)
