"""What a lane's thread calls again at once through the same account, and what it never does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from channels.channel import Call
from dispatcher.pipeline.settle import settlement_of
from dispatcher.pipeline.work import Work
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import BreakerPolicy, Guarantee, RetryPolicy
from tests.dispatcher.pipeline.test_lanes import NO_BALANCE, Bench, accepted, told

__all__ = ["told"]

REFUSED = NotSent("connect", "nobody listens there")


def in_turn(*outcomes: AnyOutcome) -> Callable[[Call], list[AnyOutcome]]:
    """Each call gets the next, for all its deliveries; those after the last are accepted."""
    left = list(outcomes)

    def answer(call: Call) -> list[AnyOutcome]:
        return [left.pop(0)] * len(call.deliveries) if left else accepted(call)

    return answer


def bench_of(*outcomes: AnyOutcome, immediate: int = 2, **policy: Any) -> Bench:
    attempts = policy.pop("attempts", 10)
    retry = RetryPolicy(immediate=immediate, attempts=attempts)
    return Bench(in_turn(*outcomes), {"a": 1}, retry=retry, **policy)


def test_what_did_not_work_goes_well_a_moment_later() -> None:
    bench = bench_of(REFUSED)
    (work,) = bench.serve("u1")
    assert bench.calls == [("a", ["u1"]), ("a", ["u1"])]
    assert bench.rerouted == [("u1", "a")]
    assert isinstance(work.end, Accepted)
    assert (work.delivery.attempt, bench.pool.repeated) == (2, 1)


def test_the_calls_before_the_last_stand_on_the_work() -> None:
    bench = bench_of(REFUSED, NotSent("http_502"))
    (work,) = bench.serve("u1")
    assert [(tried.attempt, tried.account, tried.code, tried.detail) for tried in work.tries] == [
        (1, "a", "connect", "nobody listens there"),
        (2, "a", "http_502", ""),
    ]


def test_each_call_has_a_name_of_its_own() -> None:
    names = []

    def answer(call: Call) -> list[AnyOutcome]:
        names.append(call.key)
        return [REFUSED]

    bench = Bench(answer, {"a": 1}, retry=RetryPolicy(immediate=2))
    (work,) = bench.serve("u1")
    assert names[0] == work.delivery.key
    assert len(set(names)) == 3


def test_it_ends_with_the_last_answer_when_its_calls_are_spent() -> None:
    bench = bench_of(*[REFUSED] * 9, NotSent("never asked"))
    (work,) = bench.serve("u1")
    assert len(bench.calls) == 3
    assert work.end == REFUSED


def test_it_is_no_more_than_the_attempts() -> None:
    bench = bench_of(*[REFUSED] * 9, immediate=5, attempts=2)
    bench.serve("u1")
    assert len(bench.calls) == 2


@pytest.mark.parametrize(
    "outcome",
    [
        Unknown("timeout"),
        Rejected("bad_number"),
        NO_BALANCE,
        NotSent("too_fast", retry_after_ms=100),
        NotSent("http_429", limit=Limit.ACCOUNT),
    ],
    ids=repr,
)
def test_nothing_else_is_called_again(outcome: AnyOutcome) -> None:
    bench = bench_of(outcome)
    (work,) = bench.serve("u1")
    assert (len(bench.calls), bench.rerouted) == (1, [])
    assert work.end == outcome


def test_what_is_in_doubt_after_the_second_call_is_not_called_a_third_time() -> None:
    bench = bench_of(REFUSED, Unknown("timeout"))
    (work,) = bench.serve("u1")
    assert len(bench.calls) == 2
    assert work.end == Unknown("timeout")


def test_of_a_joint_call_only_the_refused_go_again() -> None:
    first: list[AnyOutcome] = [Accepted("x"), REFUSED, Rejected("bad_number")]

    def answer(call: Call) -> list[AnyOutcome]:
        return first if len(call.deliveries) == 3 else accepted(call)

    bench = Bench(answer, {"a": 1}, retry=RetryPolicy(immediate=1))
    works = bench.serve("u1", "u2", "u3")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("a", ["u2"])]
    assert [type(work.end) for work in works] == [Accepted, Accepted, Rejected]


def test_no_more_of_a_joint_call_go_again_than_the_rate_has_room_for() -> None:
    retry = RetryPolicy(immediate=1)
    bench = Bench(in_turn(REFUSED), {"a": 1}, bursts={"a": 5}, retry=retry)
    works = bench.serve("u1", "u2", "u3")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("a", ["u1", "u2"])]
    assert (works[2].end, bench.pool.repeated) == (REFUSED, 2)


def test_a_receiver_at_its_limit_is_not_called_again() -> None:
    bench = bench_of(REFUSED)
    bench.held["a", "u1"] = 30_000
    works = bench.serve("u1", "u2")
    assert bench.calls == [("a", ["u1", "u2"]), ("a", ["u2"])]
    assert (works[0].end, works[0].delivery.attempt) == (REFUSED, 1)


def test_none_is_called_again_by_default() -> None:
    bench = bench_of(REFUSED, immediate=RetryPolicy().immediate)
    bench.serve("u1")
    assert len(bench.calls) == 1


def test_a_thread_that_another_delivery_waits_for_goes_on_to_it() -> None:
    receivers = [f"u{number}" for number in range(8)]
    bench = bench_of(*[REFUSED] * 99)
    bench.serve(*receivers)
    alone = bench.calls[-1][1]
    again = [call for number, call in enumerate(bench.calls) if call in bench.calls[:number]]
    assert all(call == ("a", alone) for call in again), "only the last has nobody behind it"


def test_no_thread_is_held_for_more_than_a_second() -> None:
    bench = bench_of()

    def slow(call: Call) -> list[AnyOutcome]:
        bench.ms += 700
        return [REFUSED]

    bench._answer = slow
    bench.serve("u1")
    assert len(bench.calls) == 1


def test_an_open_breaker_is_not_called_again() -> None:
    bench = bench_of(*[REFUSED] * 9, breaker=BreakerPolicy(min_calls=1, share=0.1))
    bench.serve("u1")
    assert len(bench.calls) == 1


def test_what_lost_its_claim_is_not_called_again() -> None:
    bench = bench_of(REFUSED)
    bench.stale = True
    (work,) = bench.serve("u1")
    assert (len(bench.calls), work.end, work.tries) == (1, REFUSED, ())


def test_one_past_its_ttl_by_then_is_not_called_again() -> None:
    bench = bench_of()

    def last(call: Call) -> list[AnyOutcome]:
        bench.ms += 550
        return [REFUSED]

    bench._answer = last
    kept = bench._reroute

    def late(deliveries: Sequence[Any]) -> list[bool]:
        bench.ms += 550
        return kept(deliveries)

    bench.pool._again._reroute = late
    (work,) = bench.serve("u1")
    assert (len(bench.calls), work.end) == (1, REFUSED)
    assert work.delivery.attempt == 1, "the call on record was not made"


def test_a_call_that_was_put_on_record_as_the_worker_stopped_costs_no_attempt() -> None:
    bench = Bench(in_turn(NO_BALANCE), {"a": 1, "b": 0}, retry=RetryPolicy(attempts=2))
    kept = bench._reroute

    def stopping(deliveries: Sequence[Any]) -> list[bool]:
        bench.pool.stop()
        return kept(deliveries)

    bench.pool._again._reroute = stopping
    (work,) = bench.serve("u1")
    settlement = settlement_of(work, bench.pool.policy)
    assert settlement is not None
    assert (len(bench.calls), settlement.event) == (1, Event.NOT_SENT)
    assert (work.delivery.attempt, work.delivery.unmade) == (1, 1)


def test_one_past_its_horizon_by_then_is_not_called_again() -> None:
    for accounts, refusal in (({"a": 1}, REFUSED), ({"a": 1, "b": 0}, NO_BALANCE)):
        retry = RetryPolicy(immediate=2, horizon_ms=500)
        bench = Bench(in_turn(refusal), accounts, retry=retry)
        answer = bench._answer

        def late(call: Call, bench: Bench = bench, answer: Any = answer) -> list[AnyOutcome]:
            bench.ms += 550
            return list(answer(call))

        bench._answer = late
        (work,) = bench.serve("u1")
        assert (len(bench.calls), work.end) == (1, refusal)


def test_a_worker_that_stops_calls_nothing_again() -> None:
    bench = bench_of()
    stopped_at = []

    def stopping(_: Call) -> list[AnyOutcome]:
        threading.Timer(0.01, bench.pool.stop).start()
        stopped_at.append(time.monotonic())
        return [REFUSED]

    bench._answer = stopping
    (work,) = bench.serve("u1")
    assert (len(bench.calls), work.end) == (1, REFUSED)


def test_where_no_ledger_keeps_the_lane_the_attempts_are_counted_all_the_same() -> None:
    bench = bench_of(*[REFUSED] * 9, attempts=2, guarantee=Guarantee.BEST_EFFORT)
    works: list[Work] = bench.serve("u1")
    assert (len(bench.calls), bench.rerouted) == (2, [])
    assert works[0].delivery.attempt == 2
