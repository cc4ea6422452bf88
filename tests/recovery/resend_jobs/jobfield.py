"""A ledger with a resend job before it: rows, a person, recovery's looks, and the ends of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from idempotency.ledger import Settlement
from idempotency.recovery.contract import DueQuery
from idempotency.resend_jobs.contract import (
    ItemFate,
    JobFilter,
    JobLimits,
    JobState,
    ResendJob,
    ResendMode,
)
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery, deliveries_of
from message.envelope import decode
from message.ids import new_token
from message.states import Event
from policy.schema import Policy
from recovery.resend_jobs.actions import ResendJobActions
from recovery.resend_jobs.handover import HandoverStores, ItemHandover
from recovery.resend_jobs.runner import ResendJobRunner
from recovery.resend_jobs.telemetry import JobTelemetry
from tests.idempotency.making import World, claimed, delivery, settle, worker
from tracing.events import NoRecorder

LANE = "sms.notice"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LIMITS = JobLimits(canary=3, rate_per_s=80.0, error_rate=0.5, approve_above=1_000, preview_s=900)


class Broker:
    """Kafka, as far as copies need it."""

    def __init__(self) -> None:
        self.produced: list[dict[str, Any]] = []
        self.away: Exception | None = None
        """Raised for each copy."""
        self.loses_reply = False

    def produce(self, copies: Sequence[dict[str, Any]]) -> set[str]:
        if self.away is not None:
            raise self.away
        self.produced += copies
        return set() if self.loses_reply else {one["id"] for one in copies}


class JobField:
    """One ledger, one person, and as many recoveries as a test wants."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger: SqlLedger = world.open()
        self.ledger.register(worker("w1"))
        self.jobs, self.items = self.ledger.resend_jobs(), self.ledger.job_items()
        self.actions = ResendJobActions(self.jobs, self.items)
        self.broker = Broker()
        self.registry = CollectorRegistry()
        self.runner = self.recovery("r1", self.registry)

    def recovery(self, name: str, registry: CollectorRegistry | None = None) -> ResendJobRunner:
        """Another recovery, which has the duty whenever it asks: the worst case."""
        report = JobTelemetry(registry or CollectorRegistry())
        stores = HandoverStores(
            self.ledger.recovering(),
            self.items,
            self.ledger.picks(),
            self.ledger.queries(),
            self.ledger.now_ms,
        )
        handover = ItemHandover(stores, Policy(), NoRecorder(), report, self.broker.produce)
        return ResendJobRunner(
            self.jobs,
            self.items,
            self.ledger.job_freezing(),
            handover,
            report=report,
            hold=lambda _duty, _lease_ms: True,
            stopping=lambda: False,
            monotonic=lambda: 0.0,
        )

    # -- rows --

    def parked(self, count: int = 1, **fields: Any) -> list[Delivery]:
        made = claimed(self.ledger, *(delivery(**fields) for _ in range(count)))
        for one in made:
            assert settle(self.ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
        return made

    def ended(self, event: Event, **fields: Any) -> Delivery:
        (one,) = claimed(self.ledger, delivery(**fields))
        if event is not Event.CLAIM:
            assert settle(self.ledger, one, event, reason="x")
        return one

    def send(
        self, event: Event = Event.ACCEPTED, limit: int = 1_000, attempts: int = 99
    ) -> list[str]:
        """What recovery does with due rows: one call each, which ends so."""
        rows = self.ledger.recovering()
        # A worker's lease in these tests never lapses.
        taken = rows.take(DueQuery(LANE, attempts, limit=limit), "w1", new_token()).taken
        for one in taken:
            assert self.ledger.settle([Settlement(one.delivery, event, "x")])[0]
        return [one.delivery.key for one in taken]

    def copies(self) -> list[Delivery]:
        """The deliveries that a worker reads in Kafka, each once."""
        bodies = {one["id"]: msgspec.json.encode(one) for one in self.broker.produced}
        end = self.world.now + HOUR_MS
        return [
            one
            for body in bodies.values()
            for one in deliveries_of(decode(body), body, expires_at=end)
        ]

    def accepted(self, *copies: Delivery) -> None:
        """A worker sends these copies."""
        for one in claimed(self.ledger, *copies):
            assert settle(self.ledger, one, Event.ACCEPTED, provider_id="p")

    def row(self, item: Delivery) -> str:
        found = self.ledger.queries().by_key(item.key)
        assert found is not None
        return found.state

    # -- the job --

    def make(
        self, mode: ResendMode = ResendMode.AGAIN, limits: JobLimits = LIMITS, **wanted: Any
    ) -> ResendJob:
        names = wanted.pop("names", ())
        selected = {} if names else {"states": ("PARKED", "REJECTED"), "lanes": (LANE,)}
        chosen: dict[str, Any] = selected | wanted
        return self.actions.make(
            mode,
            JobFilter(**chosen),
            limits,
            who="li@ops",
            reason="provider was down",
            names=names,
            job_id=f"rj-{len(self.jobs.newest(100))}",
        )

    def frozen(self, **options: Any) -> ResendJob:
        job = self.make(**options)
        return self.work(job, JobState.PREVIEW)

    def work(self, job: ResendJob, until: JobState, rounds: int = 60) -> ResendJob:
        """Has recovery look until the job is in that state; a second passes each time."""
        for _ in range(rounds):
            now = self.actions.get(job.id)
            if now.state is until:
                return now
            self.runner.run_once()
            self.world.advance(1_000)
        raise AssertionError(f"{self.actions.get(job.id)}")

    def started(self, job: ResendJob, who: str = "li@ops") -> ResendJob:
        preview = self.actions.preview(job.id)
        return self.actions.start(
            job.id, preview.signature, typed=preview.job.eligible, who=who, reason="go"
        )

    def state(self, job: ResendJob) -> JobState:
        return self.actions.get(job.id).state

    def fates(self, job: ResendJob) -> dict[str, int]:
        """By the counts, which must agree with the items."""
        by_counts: Counter[str] = Counter()
        for one in self.items.counts(job.id):
            by_counts[f"{one.fate.value}:{one.why}".rstrip(":")] += one.items
        items = self.items.page(job.id, limit=100_000)
        by_items = Counter(f"{one.fate.value}:{one.why}".rstrip(":") for one in items)
        assert by_counts == by_items
        return dict(by_items)

    def keys(self, job: ResendJob, *fates: ItemFate) -> set[str]:
        return {one.delivery_key for one in self.items.page(job.id, "", 100_000, *fates)}
