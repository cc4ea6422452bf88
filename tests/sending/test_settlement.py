"""What an outcome means for the row: when it is tried again, and when no more."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.judging.retry_after import MAX_MS as MAX_PACED_MS
from dispatcher.pipeline.settle import settlement_of
from dispatcher.pipeline.work import Work
from idempotency.ledger import Settlement
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import LanePolicy, RetryPolicy
from sending.accounts.paces import LOGIN_MS
from sending.settlement import MAX_RETRY_AFTER_MS, backoff_ms, spread_ms
from tests.dispatcher.fakes import NOW_MS
from tests.idempotency.making import delivery

RETRY = RetryPolicy(attempts=4, base_ms=1_000, factor=3.0, cap_ms=5_000, jitter=0.0)


def settled(
    outcome: AnyOutcome,
    *,
    attempt: int = 1,
    refusals: int = 0,
    repeats: int = 0,
    left_ms: int = 3_600_000 * 5,
    age_ms: int = 0,
    retry: RetryPolicy = RETRY,
) -> Settlement:
    one = delivery()
    one.notification = msgspec.structs.replace(one.notification, created_at=NOW_MS - age_ms)
    one.expires_at, one.attempt = NOW_MS + left_ms, attempt
    one.refusals, one.repeats = refusals, repeats
    work = Work(one, None, end=outcome, answered_at=NOW_MS)  # type: ignore[arg-type]
    found = settlement_of(work, LanePolicy(retry=retry))
    assert found is not None
    return found


def test_each_wait_is_longer_than_the_one_before_up_to_the_cap() -> None:
    waits = [settled(NotSent("x"), attempt=n).delay_ms for n in (1, 2, 3)]
    assert waits == [1_000, 3_000, 5_000]


def test_a_definite_non_send_waits_with_its_code() -> None:
    found = settled(NotSent("http_429"))
    assert (found.event, found.reason) == (Event.NOT_SENT, "http_429")


def test_with_the_attempts_spent_it_is_parked() -> None:
    found = settled(NotSent("http_429"), attempt=4)
    assert (found.event, found.reason) == (Event.BUDGET_SPENT, "attempts_spent:http_429")


def test_a_joint_refusal_over_one_delivery_parks_none_of_them() -> None:
    """Only one of the call is at fault: each has a call of its own yet to come."""
    joint, once = NotSent("one_bad", retry_after_ms=0, joint=True), RetryPolicy(attempts=1)
    found = settled(joint, retry=once)
    assert (found.event, found.reason) == (Event.NOT_SENT, "joint_refusal:one_bad")
    found = settled(joint, retry=RETRY)
    assert (found.event, found.reason) == (Event.NOT_SENT, "one_bad")
    found = settled(NotSent("one_bad"), attempt=2, retry=once)
    assert (found.event, found.reason) == (Event.BUDGET_SPENT, "attempts_spent:one_bad")
    late = msgspec.structs.replace(once, horizon_ms=10_000)
    assert settled(joint, age_ms=11_000, retry=late).event is Event.BUDGET_SPENT


def test_past_the_horizon_it_is_parked() -> None:
    retry = msgspec.structs.replace(RETRY, horizon_ms=10_000)
    assert settled(NotSent("x"), age_ms=8_000, retry=retry).event is Event.NOT_SENT
    found = settled(NotSent("x"), age_ms=9_000, retry=retry)
    assert (found.event, found.reason) == (Event.BUDGET_SPENT, "horizon_over:x")


@pytest.mark.parametrize(
    ("wish", "delay"), [(0, 0), (250, 250), (90_000, 90_000), (10**9, MAX_RETRY_AFTER_MS)]
)
def test_a_providers_wish_is_kept_to_within_an_hour(wish: int, delay: int) -> None:
    assert settled(NotSent("x", retry_after_ms=wish)).delay_ms == delay


@pytest.mark.parametrize("wish", [None, 60_000])
def test_no_retry_is_set_later_than_its_time_is_over(wish: int | None) -> None:
    assert settled(NotSent("x", retry_after_ms=wish), left_ms=400).delay_ms == 400
    assert settled(NotSent("x", retry_after_ms=wish), left_ms=-5).delay_ms == 0


def test_other_outcomes_settle_as_they_are() -> None:
    assert settled(Accepted("p-1")).provider_id == "p-1"
    assert settled(Rejected("bad"), attempt=9).event is Event.REJECTED
    assert settled(Rejected("bad_number", before_call=True)).event is Event.REFUSED
    assert settled(Unknown("timeout"), attempt=9).event is Event.UNKNOWN


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.floats(1, 100))
def test_every_wait_lies_between_its_jitter_and_the_cap(
    attempt: int, luck: float, factor: float
) -> None:
    retry = RetryPolicy(base_ms=1_000, cap_ms=60_000, factor=factor, jitter=0.5)
    assert 500 <= backoff_ms(retry, attempt, luck) <= 60_000


# -- refusals that only pace --

DAY_MS = 24 * 3_600_000


def paced(wish: int | None = None) -> NotSent:
    return NotSent("slower", retry_after_ms=wish, limit=Limit.ACCOUNT)


def test_refused_for_pace_it_waits_on_however_often_it_was_called() -> None:
    found = settled(paced(1_000), attempt=90, refusals=90)
    assert (found.event, found.reason) == (Event.NOT_SENT, "slower")


def test_a_refusal_for_pace_leaves_the_other_attempts_as_they_were() -> None:
    assert settled(NotSent("x"), attempt=12, refusals=9).event is Event.NOT_SENT
    assert settled(NotSent("x"), attempt=13, refusals=9).event is Event.BUDGET_SPENT


@pytest.mark.parametrize("refusals", [1, 2, 3, 50])
def test_it_never_waits_for_less_than_the_provider_asked(refusals: int) -> None:
    waits = [settled(paced(60_000), refusals=refusals).delay_ms for _ in range(200)]
    assert min(waits) > 60_000
    assert len(set(waits)) > 100, "what was refused together returns together"


def test_the_spread_grows_with_each_refusal_up_to_the_cap() -> None:
    assert [spread_ms(RETRY, n, 0.999999) for n in (1, 2, 3)] == [999, 2_999, 4_999]


def test_a_limit_of_a_day_is_kept_to() -> None:
    found = settled(paced(DAY_MS), left_ms=7 * DAY_MS)
    assert found.event is Event.NOT_SENT
    assert DAY_MS < found.delay_ms < DAY_MS + RETRY.cap_ms


def test_a_wish_that_no_limit_of_a_day_explains_is_cut() -> None:
    found = settled(paced(10 * DAY_MS), left_ms=7 * DAY_MS)
    assert MAX_PACED_MS < found.delay_ms < MAX_PACED_MS + RETRY.cap_ms


def test_a_refused_login_is_tried_once_a_minute_and_parks_no_code_of_five_minutes() -> None:
    told = NotSent(
        "SignatureDoesNotMatch", retry_after_ms=3_600_000, account=True, limit=Limit.LOGIN
    )
    found = settled(told, left_ms=300_000)
    assert found.event is Event.NOT_SENT
    assert LOGIN_MS <= found.delay_ms <= LOGIN_MS + RETRY.cap_ms


def test_it_is_parked_when_the_patience_would_be_gone_before_the_next_try() -> None:
    """The lane's TTL is a day here, and a tenth of it is kept."""
    kept = DAY_MS // 10
    found = settled(paced(60_000), left_ms=kept + 60_000, age_ms=DAY_MS - kept - 60_000)
    assert (found.event, found.reason) == (Event.BUDGET_SPENT, "paced:slower")
    found = settled(paced(60_000), left_ms=kept + 60_400, age_ms=DAY_MS - kept - 60_400)
    assert found.event is Event.NOT_SENT
    assert 60_000 < found.delay_ms <= 60_400, "the last try falls within the patience"


def test_past_the_horizon_patience_is_over_too() -> None:
    retry = msgspec.structs.replace(RETRY, horizon_ms=10_000)
    assert settled(paced(), age_ms=10_000, retry=retry).reason == "paced:slower"


def test_calls_that_followed_at_once_do_not_make_later_waits_longer() -> None:
    assert settled(NotSent("x"), attempt=3, repeats=2).delay_ms == 1_000
    assert settled(NotSent("x"), attempt=3, refusals=1, repeats=1).delay_ms == 1_000


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_every_spread_lies_below_the_cap(refusals: int, luck: float) -> None:
    assert 1 <= spread_ms(RetryPolicy(base_ms=1_000, cap_ms=60_000), refusals, luck) <= 60_000
