"""Publishes outcome events: one recovery of the fleet at a time for each target, by a duty.

A batch is deleted after every event of it was acknowledged, never before. A crash in between repeats it,
and its events have the same ids. A batch that fails is tried again later and hides no others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import structlog
from prometheus_client import CollectorRegistry

from backends.metrics import recovery_families as of_recovery
from backends.metrics.instruments import counter_of
from idempotency.ledger import LedgerError
from idempotency.outcomes.outbox import OutcomeBatch, OutcomeOutbox
from recovery.outcomes.events import ReadyEvent

log = structlog.get_logger(__name__)
BATCHES: Final = 100
"""Batches read at once."""
LOOK_S: Final = 0.25
"""Interval between two looks while lanes are announced."""
RARE_LOOK_S: Final = 10.0
"""The same without such a lane: batches of an earlier policy may be left."""
LEASE_S: Final = 10.0
"""Of the duty. A post may last longer: then another recovery may repeat it, with the same ids."""
_RENEW_S: Final = LEASE_S / 3
_ASK_S: Final = LEASE_S / 2
"""Interval at which the others ask for the duty."""
_AWAY_S: Final = 1.0
_FORGET_EVERY_S: Final = 600.0
_FIRST_PAUSE_S: Final = 1.0
_MS: Final = 1_000


class Publication(Protocol):
    """A target of events."""

    def publish(self, events: Sequence[ReadyEvent]) -> set[int]:
        """Returns the batches of which every event is acknowledged. Raises nothing."""
        ...


class HeldDuties(NamedTuple):
    """The duties of this process (idempotency/fleet/duties.py). Both raise LedgerError."""

    hold: Callable[[str, int], bool]
    """Takes or renews a duty for some milliseconds. Returns False if another process has it."""
    drop: Callable[[str], None]


class PublisherMetrics:
    """Counters of all publishers of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published = counter_of(of_recovery.OUTCOMES_PUBLISHED, registry)
        self.failures = counter_of(of_recovery.OUTCOMES_FAILURES, registry)
        self.given_up = counter_of(of_recovery.OUTCOMES_GIVEN_UP, registry)


class PublisherTerms(NamedTuple):
    """Differences between the targets."""

    target: str
    longest_pause_s: float
    """After failures that follow each other; the first pause is a second."""
    keep_days: int
    """Days after which an event is deleted unpublished."""


class OutcomePublisher:
    """`run` is one thread's; any thread may call `stop`."""

    def __init__(
        self,
        terms: PublisherTerms,
        outbox: OutcomeOutbox,
        publication: Publication,
        *,
        ready: Callable[[Sequence[OutcomeBatch]], list[ReadyEvent]],
        duties: HeldDuties,
        announced: Callable[[], bool],
        metrics: PublisherMetrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ready` makes the events of batches. `announced` returns whether the policy in force announces a
        lane to this target."""
        self._terms = terms
        self._outbox = outbox
        self._publication = publication
        self._ready = ready
        self._duties = duties
        self._announced = announced
        self._metrics = metrics
        self._monotonic = monotonic
        self._held_until = self._forget_at = float("-inf")
        self._failures = 0
        """Looks in a row in which no batch was taken."""
        self._stop = threading.Event()

    @property
    def duty(self) -> str:
        """The duty of publishing to this target."""
        return f"outcomes-{self._terms.target}"

    def run(self) -> None:
        """Looks again and again until `stop`."""
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = self.run_once()
        with suppress(LedgerError):  # else it lapses
            self._duties.drop(self.duty)

    def stop(self) -> None:
        """Ends `run` after the events under way; idempotent."""
        self._stop.set()

    def run_once(self) -> float:
        """Publishes the due batches, if this process has the duty. Returns the pause in seconds."""
        try:
            if not self._has_duty():
                return _ASK_S
            self._forget()
            return self._publish()
        except LedgerError as exc:
            log.debug("outcomes_not_read", target=self._terms.target, cause=str(exc))
            return _AWAY_S

    def _publish(self) -> float:
        batches = self._outbox.due(self._terms.target, BATCHES)
        if not batches:
            self._failures = 0
            return LOOK_S if self._announced() else RARE_LOOK_S
        done = self._publication.publish(self._ready(batches))
        self._outbox.remove(sorted(done))
        self._count(batches, done)
        self._postpone([batch for batch in batches if batch.id not in done])
        if done:
            self._failures = 0
            return 0.0
        self._failures += 1
        return self._pause_s(self._failures - 1)

    def _postpone(self, left: Sequence[OutcomeBatch]) -> None:
        """Has each of these tried again after the pause that its own failures ask for."""
        by_tries: dict[int, list[int]] = {}
        for batch in left:
            by_tries.setdefault(batch.tries, []).append(batch.id)
        for tries, ids in by_tries.items():
            self._outbox.postpone(ids, int(self._pause_s(tries) * _MS))

    def _pause_s(self, failures: int) -> float:
        return min(_FIRST_PAUSE_S * 2.0 ** min(failures, 16), self._terms.longest_pause_s)

    def _count(self, batches: Sequence[OutcomeBatch], done: set[int]) -> None:
        target = self._terms.target
        published = sum(len(batch.ends) for batch in batches if batch.id in done)
        self._metrics.published.labels(target).inc(published)
        self._metrics.failures.labels(target).inc(len(batches) - len(done))

    def _has_duty(self) -> bool:
        now = self._monotonic()
        if now < self._held_until - LEASE_S + _RENEW_S:
            return True
        held = self._duties.hold(self.duty, int(LEASE_S * _MS))
        self._held_until = now + LEASE_S if held else float("-inf")
        return held

    def _forget(self) -> None:
        """Deletes events that are too old to be of use; they are counted, and named in the log."""
        now = self._monotonic()
        if now < self._forget_at:
            return
        self._forget_at = now + _FORGET_EVERY_S
        gone = self._outbox.forget(self._terms.target, self._terms.keep_days)
        if gone:
            self._metrics.given_up.labels(self._terms.target).inc(gone)
            log.error(
                "outcomes_given_up",
                target=self._terms.target,
                events=gone,
                what=f"they are older than outcomes.keep_days ({self._terms.keep_days})",
            )
