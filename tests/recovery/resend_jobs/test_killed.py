"""A real recovery is killed in the middle of a job; another one ends it."""

from idempotency.ledger import Settlement
from idempotency.recalls import Kind
from idempotency.resend_jobs.contract import ItemFate, JobFilter, JobLimits, JobState, ResendMode
from message.states import Event
from recovery.resend_jobs.factory import actions_on
from recovery.resend_jobs.runner import DUTY
from simulator import Faults
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, until

LIMITS = JobLimits(canary=3, rate_per_s=400.0, error_rate=1.0, approve_above=1_000)


def test_killed_in_the_middle_of_a_job_each_eligible_delivery_goes_once(
    ground: MakeGround,
) -> None:
    one = ground(timeout_ms=5_000)
    rows = one.claimed(36, ttl_ms=600_000)
    parked, sent = rows[:33], rows[33:]
    one.ledger.settle([Settlement(row, Event.BUDGET_SPENT, "attempts_spent") for row in parked])
    one.ledger.settle([Settlement(row, Event.ACCEPTED, "p") for row in sent])
    eligible, recalled = parked[:30], parked[30:]
    for row in recalled:
        one.ledger.recalls().announce(Kind.MESSAGE, row.notification.id, 600_000)
    actions = actions_on(one.ledger)
    wanted = JobFilter(states=["PARKED"], lanes=[LANE])
    job = actions.make(ResendMode.AGAIN, wanted, LIMITS, who="li", reason="outage").id
    first = one.process("r1")
    until(lambda: actions.get(job).state is JobState.PREVIEW)
    preview = actions.preview(job)
    actions.start(job, preview.signature, typed=30, who="li", reason="it is back")
    until(lambda: actions.get(job).state is JobState.RUNNING)
    one.provider.control(rules=[Faults(hang=1.0)])  # accepts, and keeps its answer back
    until(lambda: len(one.accepted()) >= 8)
    first.kill()
    first.wait()
    assert not actions.get(job).is_over
    one.provider.control(rules=[])
    with one.ledger.database.begin() as connection:  # in place of a wait for the end of its lease
        connection.exec_driver_sql(f"UPDATE duties SET until = 0 WHERE name = '{DUTY}'")
    one.process("r2")
    until(lambda: actions.get(job).state is JobState.DONE)
    assert one.accepted() == {row.key: 1 for row in eligible}
    items = one.ledger.job_items()
    assert {i.delivery_key for i in items.page(job, "", 100, ItemFate.SENT)} == {
        row.key for row in eligible
    }
    assert {i.why for i in items.page(job, "", 100, ItemFate.INELIGIBLE)} == {"recalled"}
