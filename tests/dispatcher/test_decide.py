"""What an outcome means for the row: when it is tried again, and when no more."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.decide import MAX_RETRY_AFTER_MS, backoff_ms, settlement_of
from dispatcher.work import Work
from idempotency.ledger import Settlement
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import LanePolicy, RetryPolicy
from tests.dispatcher.fakes import NOW_MS
from tests.idempotency.making import delivery

RETRY = RetryPolicy(attempts=4, base_ms=1_000, factor=3.0, cap_ms=5_000, jitter=0.0)


def settled(
    outcome: AnyOutcome,
    *,
    attempt: int = 1,
    left_ms: int = 3_600_000 * 5,
    age_ms: int = 0,
    retry: RetryPolicy = RETRY,
) -> Settlement:
    one = delivery()
    one.notification = msgspec.structs.replace(one.notification, created_at=NOW_MS - age_ms)
    one.expires_at, one.attempt = NOW_MS + left_ms, attempt
    work = Work(one, None, outcome=outcome, answered_at=NOW_MS)  # type: ignore[arg-type]
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
    assert settled(Unknown("timeout"), attempt=9).event is Event.UNKNOWN


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True), st.floats(1, 100))
def test_every_wait_lies_between_its_jitter_and_the_cap(
    attempt: int, luck: float, factor: float
) -> None:
    retry = RetryPolicy(base_ms=1_000, cap_ms=60_000, factor=factor, jitter=0.5)
    assert 500 <= backoff_ms(retry, attempt, luck) <= 60_000
