"""The breaker: what opens it, what may try again, and for how long it leaves an account alone."""

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sending.accounts.circuit_breaker as breaker_module
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from policy.schema import BreakerPolicy
from sending.accounts.circuit_breaker import BreakerState, CallVerdict, CircuitBreaker, judgement_of

POLICY = BreakerPolicy(
    window_ms=10_000, share=0.5, min_calls=4, open_ms=5_000, max_open_ms=20_000, probes=2
)
WELL, FAILED, HALTED = CallVerdict.WELL, CallVerdict.FAILED, CallVerdict.HALTED


def opened(now: float = 0.0) -> CircuitBreaker:
    breaker = CircuitBreaker(POLICY)
    assert breaker.record(now, HALTED) is BreakerState.OPEN
    return breaker


def probe(breaker: CircuitBreaker, now: float, judgement: CallVerdict) -> BreakerState | None:
    assert breaker.take(now)
    return breaker.record(now, judgement, begun_at=now)


# -- what a call says of its account --


@pytest.mark.parametrize(
    ("outcomes", "judgement"),
    [
        ([Accepted("1")], WELL),
        ([Rejected("bad_number")], WELL),
        ([Rejected("no_balance", account=True)], HALTED),
        ([NotSent("quota", account=True)], HALTED),
        ([NotSent("login_refused", account=True, limit=Limit.LOGIN)], HALTED),
        ([NotSent("connect")], FAILED),
        ([NotSent("busy", retry_after_ms=None)], FAILED),
        ([NotSent("one_a_minute", retry_after_ms=60_000)], WELL),
        ([NotSent("http_429", retry_after_ms=1_000)], WELL),
        ([NotSent("http_503", retry_after_ms=1_000)], FAILED),
        ([NotSent("http_503", retry_after_ms=1_000, limit=Limit.ACCOUNT)], FAILED),
        ([NotSent("http_429", limit=Limit.ACCOUNT)], WELL),
        ([NotSent("day_limit", limit=Limit.ACCOUNT, account=True)], WELL),
        ([Unknown("timeout")], FAILED),
        ([Unknown("timeout"), Accepted("1")], WELL),
        ([Accepted("1"), Rejected("no_balance", account=True)], HALTED),
        ([Unknown("timeout"), NotSent("connect")], FAILED),
    ],
)
def test_a_call_is_judged_by_what_became_of_its_deliveries(
    outcomes: list[AnyOutcome], judgement: CallVerdict
) -> None:
    assert judgement_of(outcomes) is judgement


# -- opening --


def test_it_opens_once_the_share_of_failures_is_reached_and_not_before() -> None:
    breaker = CircuitBreaker(POLICY)
    judgements = [WELL, FAILED, WELL]
    assert [breaker.record(n, j) for n, j in enumerate(judgements)] == [None] * 3
    assert breaker.record(3.0, FAILED) is BreakerState.OPEN
    assert (breaker.state(3.0), breaker.room(3.0), breaker.take(3.0)) == (
        BreakerState.OPEN,
        0,
        False,
    )


def test_few_calls_say_nothing() -> None:
    breaker = CircuitBreaker(POLICY)
    assert [breaker.record(0.0, FAILED) for _ in range(3)] == [None] * 3
    assert breaker.room(0.0) is None


def test_failures_older_than_the_window_are_forgotten() -> None:
    breaker = CircuitBreaker(POLICY)
    for _ in range(3):
        breaker.record(0.0, FAILED)
    assert breaker.record(10.0, FAILED) is None
    assert breaker.state(10.0) is BreakerState.CLOSED


def test_messages_refused_for_their_own_fault_never_open_it() -> None:
    breaker = CircuitBreaker(POLICY)
    judgement = judgement_of([Rejected("bad_number")])
    assert {breaker.record(0.0, judgement) for _ in range(100)} == {None}


def test_an_outcome_about_the_account_opens_it_at_once() -> None:
    breaker = CircuitBreaker(POLICY)
    for _ in range(100):
        breaker.record(0.0, WELL)
    assert breaker.record(0.0, HALTED) is BreakerState.OPEN


# -- trying again --


def test_after_its_time_a_bounded_number_may_try() -> None:
    breaker = opened()
    assert not breaker.take(4.99)
    assert breaker.wait_s(4.0) == pytest.approx(1.0)
    assert (breaker.state(5.0), breaker.room(5.0), breaker.wait_s(5.0)) == (
        BreakerState.HALF_OPEN,
        2,
        0,
    )
    assert [breaker.take(5.0) for _ in range(3)] == [True, True, False]
    assert breaker.room(5.0) == 0


def test_it_closes_when_as_many_went_well_as_may_try() -> None:
    breaker = opened()
    assert probe(breaker, 5.0, WELL) is None
    assert breaker.state(5.0) is BreakerState.HALF_OPEN
    assert probe(breaker, 5.1, WELL) is BreakerState.CLOSED
    assert breaker.room(5.1) is None


def test_probes_that_joined_one_call_count_each() -> None:
    breaker = opened()
    assert breaker.take(5.0)
    assert breaker.take(5.0)
    assert breaker.record(5.1, WELL, deliveries=2, begun_at=5.0) is BreakerState.CLOSED


def test_one_failed_probe_opens_it_for_twice_as_long_up_to_the_cap() -> None:
    breaker, now, pauses = opened(), 0.0, []
    for _ in range(5):
        pauses.append(breaker.wait_s(now))
        now += pauses[-1]
        assert probe(breaker, now, FAILED) is BreakerState.OPEN
    assert pauses == pytest.approx([5.0, 10.0, 20.0, 20.0, 20.0])
    assert breaker.opened == 6


def test_once_it_was_well_for_as_long_as_it_had_been_ill_the_pause_starts_anew() -> None:
    breaker = opened()
    probe(breaker, 5.0, FAILED)
    for _ in range(2):
        probe(breaker, 15.0, WELL)
    assert breaker.record(25.0, HALTED) is BreakerState.OPEN
    assert breaker.wait_s(25.0) == pytest.approx(5.0)


def test_an_account_that_flaps_is_left_alone_ever_longer() -> None:
    breaker = opened()
    probe(breaker, 5.0, WELL)
    probe(breaker, 5.0, WELL)
    breaker.record(6.0, HALTED)
    assert breaker.wait_s(6.0) == pytest.approx(10.0)


def test_a_probe_that_never_comes_back_makes_place_for_another() -> None:
    breaker = opened()
    assert breaker.take(5.0)
    assert breaker.take(5.5)
    assert breaker.wait_s(6.0) == pytest.approx(4.0)
    assert not breaker.take(9.9)
    assert breaker.take(10.0)


def test_a_probe_that_is_not_sent_after_all_makes_place_at_once() -> None:
    breaker = opened()
    assert [breaker.take(5.0), breaker.take(5.0)] == [True, True]
    breaker.give_back()
    assert breaker.room(5.0) == 1


# -- late answers --


def test_calls_begun_before_the_outage_do_not_fail_the_probes_after_it() -> None:
    breaker = opened(now=10.0)
    assert breaker.record(16.0, FAILED, begun_at=9.0) is None
    assert breaker.state(16.0) is BreakerState.HALF_OPEN


def test_calls_begun_before_it_closed_do_not_open_it_again() -> None:
    breaker = opened()
    probe(breaker, 5.0, WELL)
    probe(breaker, 5.5, WELL)
    assert [breaker.record(6.0, FAILED, begun_at=4.0) for _ in range(50)] == [None] * 50
    assert breaker.state(6.0) is BreakerState.CLOSED


def test_what_comes_while_it_is_open_changes_nothing() -> None:
    breaker = opened()
    assert breaker.record(1.0, WELL) is None
    assert breaker.record(2.0, HALTED) is None
    assert breaker.wait_s(2.0) == pytest.approx(3.0)
    assert breaker.opened == 1


def test_failures_before_the_outage_do_not_count_after_it() -> None:
    breaker = CircuitBreaker(BreakerPolicy(window_ms=600_000, min_calls=4, open_ms=10, probes=1))
    for _ in range(4):
        breaker.record(0.0, FAILED)
    probe(breaker, 1.0, WELL)
    assert [breaker.record(1.0, FAILED) for _ in range(3)] == [None] * 3


# -- always --


def test_the_documented_states_are_these() -> None:
    page = (Path(__file__).parents[3] / "docs" / "accounts.md").read_text("utf-8")
    diagram = [line for line in (breaker_module.__doc__ or "").splitlines() if "──▶" in line]
    assert len(diagram) == 3
    for line in diagram:
        assert line in page, f"docs/accounts.md does not show {line.strip()}"


@given(
    st.lists(
        st.tuples(
            st.floats(0, 30),
            st.sampled_from([*CallVerdict, "take", "give back"]),
            st.integers(1, 5),
        ),
        max_size=60,
    )
)
def test_no_more_ever_try_than_the_policy_allows(steps: list[tuple[float, object, int]]) -> None:
    breaker, now = opened(), 0.0
    for pause, step, count in steps:
        now += pause
        if isinstance(step, CallVerdict):
            breaker.record(now, step, deliveries=count)
        elif step == "take":
            breaker.take(now)
        else:
            breaker.give_back()
        room = breaker.room(now)
        assert room is None or 0 <= room <= POLICY.probes
        assert 0 <= breaker.wait_s(now) <= POLICY.max_open_ms / 1_000 + 1e-9
        assert (breaker.wait_s(now) == 0) is (room != 0)


def test_of_many_threads_at_once_only_so_many_may_try() -> None:
    breaker = opened()
    start = threading.Barrier(8)
    taken: list[bool] = []

    def run() -> None:
        start.wait()
        taken.extend(breaker.take(5.0) for _ in range(100))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(taken), sum(taken)) == (800, POLICY.probes)
