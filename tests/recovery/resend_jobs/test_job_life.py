"""Any order of looks, orders, moved rows and ends: a job run twice, by two recoveries, runs once."""

import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from idempotency.recalls import Kind
from idempotency.resend_jobs.contract import ItemFate, JobLimits, JobState, ResendJob
from message.delivery import Delivery
from message.states import Event
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.rules import same_person
from tests.idempotency.making import World
from tests.recovery.resend_jobs.jobfield import DAY_MS, JobField

ROWS = 7
ABOVE = 4
"""Eligible items above which a second person must approve."""
STEP_MS = 200
JOBS = 3
PEOPLE = ("li@ops", "mei@ops")
HANDED_OVER = (ItemFate.APPLYING, ItemFate.APPLIED, ItemFate.SENT, ItemFate.FAILED)
NOT_BEGUN = (
    *(JobState.FREEZING, JobState.PREVIEW, JobState.WAITING, JobState.CHECKING),
    *(JobState.REFUSED, JobState.LAPSED),
)
jobs = st.integers(0, JOBS - 1)
rows = st.integers(0, ROWS - 1)
people = st.sampled_from(PEOPLE)


class JobLife(RuleBasedStateMachine):
    """A ledger with jobs, two recoveries and two persons, beside what was really sent."""

    @initialize(begun=st.booleans())
    def begin(self, begun: bool) -> None:
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.world = World(f"sqlite:///{Path(folder) / 'ledger.db'}")
        self.stack.callback(self.world.close)
        self.field = JobField(self.world)
        self.second = self.field.recovery("r2")
        self.rows: list[Delivery] = [self.field.parked(id=f"m-{n}")[0] for n in range(ROWS)]
        self.jobs: list[ResendJob] = []
        self.sent: Counter[str] = Counter()
        self.stale: set[tuple[str, str]] = set()
        """Job and key of items whose row moved while they waited."""
        self.make()
        self.look(2, second=False)
        if begun:  # its canary is under way
            self.start(0, PEOPLE[0])
            self.look(2, second=True)

    def teardown(self) -> None:
        if not hasattr(self, "stack"):
            return
        self._to_the_end()
        self.stack.close()

    # -- persons --

    @rule()
    def make(self) -> None:
        if len(self.jobs) < JOBS:
            above = ABOVE if len(self.jobs) % 2 else 1_000
            limits = JobLimits(canary=2, rate_per_s=80.0, error_rate=0.9, approve_above=above)
            self.jobs.append(self.field.make(limits=limits))

    @rule(number=jobs, who=people)
    def start(self, number: int, who: str) -> None:
        for job in self.jobs[number % len(self.jobs) :][:1]:
            with suppress(ResendJobRefused):
                self.field.started(job, who)

    @rule(number=jobs, who=people)
    def approve(self, number: int, who: str) -> None:
        for job in self.jobs[number % len(self.jobs) :][:1]:
            signed = self.field.actions.preview(job.id).signature
            with suppress(ResendJobRefused):
                self.field.actions.approve(job.id, signed, who=who)

    @rule(number=jobs, order=st.sampled_from(("pause", "resume", "resume", "cancel")))
    def order(self, number: int, order: str) -> None:
        for job in self.jobs[number % len(self.jobs) :][:1]:
            give = getattr(self.field.actions, order)
            with suppress(ResendJobRefused):
                give(job.id, who="li@ops", reason="so")

    # -- recoveries and the provider --

    @rule(times=st.integers(1, 4), second=st.booleans())
    def look(self, times: int, second: bool) -> None:
        for _ in range(times):
            (self.second if second else self.field.runner).run_once()
            self.world.advance(STEP_MS)

    @rule(event=st.sampled_from((Event.ACCEPTED, Event.ACCEPTED, Event.REJECTED)))
    def send(self, event: Event) -> None:
        self.sent.update(self.field.send(event, limit=2))

    # -- others --

    @rule(number=rows)
    def somebody_moves_a_row(self, number: int) -> None:
        key = self.rows[number].key
        self._moved(key)
        self.world.rows_changed(
            "UPDATE deliveries SET version = version + 1"
            f" WHERE delivery_key = '{key}' AND state = 'PARKED'"
        )

    @rule(number=rows)
    def somebody_recalls_a_row(self, number: int) -> None:
        row = self.rows[number]
        self._moved(row.key)
        self.field.ledger.recalls().announce(Kind.MESSAGE, row.notification.id, DAY_MS)

    # -- what holds --

    @invariant()
    def nothing_goes_but_what_a_begun_job_handed_over(self) -> None:
        if not hasattr(self, "jobs"):
            return
        handed: Counter[str] = Counter()
        for job in self.jobs:
            self.field.fates(job)  # the counts agree with the items
            given = self.field.keys(job, *HANDED_OVER)
            handed.update(given)
            assert not {(job.id, key) for key in given} & self.stale, "a moved row was sent"
            now = self.field.actions.get(job.id)
            if now.state in NOT_BEGUN:
                assert not given, now
            if given and now.needs_approval:
                assert now.approved_by
                assert not same_person(now.approved_by, now.author)
        assert all(count <= handed[key] for key, count in self.sent.items()), "sent twice"

    # -- parts --

    def _moved(self, key: str) -> None:
        """Notes the items that wait with this row; recovery must not send them any more."""
        for job in self.jobs:
            if (
                key in self.field.keys(job, ItemFate.PENDING)
                and self.field.row(self._row(key)) == "PARKED"
            ):
                self.stale.add((job.id, key))

    def _row(self, key: str) -> Delivery:
        return next(row for row in self.rows if row.key == key)

    def _to_the_end(self) -> None:
        """Every job that has begun comes to its end, and each of its items to one fate."""
        for job in self.jobs:
            with suppress(ResendJobRefused):
                self.field.actions.resume(job.id, who="li@ops", reason="end")
        for _ in range(60):
            self.field.runner.run_once()
            self.second.run_once()
            self.sent.update(self.field.send(Event.ACCEPTED))
            self.world.advance(STEP_MS)
            self.nothing_goes_but_what_a_begun_job_handed_over()
        for job in self.jobs:
            now = self.field.actions.get(job.id)
            if now.state is JobState.DONE:
                assert not self.field.keys(job, ItemFate.PENDING, ItemFate.APPLIED)


@pytest.mark.soak(
    small="tests/recovery/resend_jobs/test_job.py::test_pause_resume_and_cancel_are_obeyed"
)
def test_a_job_keeps_to_its_life_in_any_order() -> None:
    run_state_machine_as_test(
        JobLife,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
