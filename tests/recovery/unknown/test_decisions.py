"""What follows for a delivery in doubt, case by case."""

from typing import Any

import msgspec
import pytest

from channels.channel import Resolution, ResolveResult
from idempotency.recovery.contract import QUEUED, Transition, UnknownDelivery
from message.states import Event
from policy.schema import Guarantee, InDoubt, LanePolicy, RetryPolicy
from recovery.unknown.decisions import AskLater, Evidence, conclude, together
from tests.idempotency.making import delivery

NOW = 1_790_000_000_000
RETRY = RetryPolicy(attempts=4, base_ms=1_000, factor=2, jitter=0)
AT_LEAST_ONCE = LanePolicy(timeout_ms=3_000, retry=RETRY)
AT_MOST_ONCE = LanePolicy(timeout_ms=3_000, retry=RETRY, guarantee=Guarantee.AT_MOST_ONCE)
SENT, NOT_SENT = ResolveResult(Resolution.SENT), ResolveResult(Resolution.NOT_SENT)
LATER = ResolveResult(Resolution.ASK_LATER)


def doubt(
    *, age_ms: int = 10_000, left_ms: int = 100_000, attempt: int = 1, since_ms: int = 5_000
) -> UnknownDelivery:
    one = delivery()
    one.expires_at, one.attempt = NOW + left_ms, attempt
    return UnknownDelivery(one, NOW - age_ms, "", 7, "timeout", NOW - since_ms, NOW)


def moved(found: Transition | AskLater) -> tuple[Event, str | None, int]:
    assert isinstance(found, Transition)
    assert found.version == 7
    return found.event, found.reason, found.delay_ms


def test_what_the_provider_has_is_sent_under_its_name() -> None:
    found = conclude(doubt(), Evidence(ResolveResult(Resolution.SENT, "p-1"), 0), AT_LEAST_ONCE)
    assert moved(found) == (Event.RESOLVED_SENT, None, 0)
    assert isinstance(found, Transition)
    assert found.provider_id == "p-1"


def test_what_was_sent_under_a_name_that_nobody_knows_loses_the_name_of_another_call() -> None:
    found = conclude(task(), Evidence(SENT, 0, NOW), AT_LEAST_ONCE)
    assert isinstance(found, Transition)
    assert (found.event, found.provider_id) == (Event.RESOLVED_SENT, "")


def test_even_past_its_ttl_what_was_sent_is_sent() -> None:
    assert (
        moved(conclude(doubt(left_ms=-1), Evidence(SENT, 0), AT_MOST_ONCE))[0]
        is Event.RESOLVED_SENT
    )


@pytest.mark.parametrize("policy", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_what_was_surely_not_sent_is_tried_again_at_once(policy: LanePolicy) -> None:
    assert moved(conclude(doubt(), Evidence(NOT_SENT, 0), policy)) == (
        Event.RESOLVED_NOT_SENT,
        "resolved_not_sent",
        0,
    )


def test_not_sent_is_not_believed_while_a_call_given_up_may_still_arrive() -> None:
    assert conclude(doubt(since_ms=1_000), Evidence(NOT_SENT, 0), AT_LEAST_ONCE) == AskLater(2_000)


def test_a_provider_that_cannot_say_is_asked_again_ever_more_rarely() -> None:
    assert conclude(doubt(age_ms=4_000), Evidence(LATER, 0), AT_MOST_ONCE) == AskLater(2_000)
    assert conclude(doubt(age_ms=100), Evidence(LATER, 0), AT_MOST_ONCE) == AskLater(1_000)


def test_patience_and_pauses_count_from_the_last_call() -> None:
    once = doubt(age_ms=60_000, left_ms=40_000)
    again = once._replace(last_called_at=NOW - 10_000)
    assert moved(conclude(once, Evidence(LATER, 0), AT_MOST_ONCE))[0] is Event.PARK_UNPROVEN
    assert conclude(again, Evidence(LATER, 0), AT_MOST_ONCE) == AskLater(5_000)


def test_a_query_that_will_never_say_more_leaves_it_to_the_policy_at_once() -> None:
    never = ResolveResult(Resolution.ASK_LATER, final=True)
    assert moved(conclude(doubt(), Evidence(never, 0), AT_MOST_ONCE))[0] is Event.PARK_UNPROVEN
    assert moved(conclude(doubt(), Evidence(never, 0), AT_LEAST_ONCE))[0] is Event.RESEND_UNPROVEN
    assert together([never, LATER]) == together([LATER, never]) == LATER
    assert together([never, NOT_SENT]) == never


def test_no_pause_reaches_past_the_moment_from_which_the_policy_decides() -> None:
    late = doubt(age_ms=49_000, left_ms=51_000)
    assert conclude(late, Evidence(LATER, 0), AT_MOST_ONCE) == AskLater(1_000)


@pytest.mark.parametrize(
    ("policy", "event"),
    [(AT_LEAST_ONCE, Event.RESEND_UNPROVEN), (AT_MOST_ONCE, Event.PARK_UNPROVEN)],
)
def test_half_of_its_time_gone_without_an_answer_the_policy_decides(
    policy: LanePolicy, event: Event
) -> None:
    late = doubt(age_ms=60_000, left_ms=40_000)
    assert moved(conclude(late, Evidence(LATER, 0), policy))[:2] == (event, "unproven")


def test_without_proof_it_is_resent_after_the_lanes_wait_and_before_half_of_what_is_left() -> None:
    facts = Evidence(None, 0)
    assert moved(conclude(doubt(attempt=2), facts, AT_LEAST_ONCE))[2] == 2_000
    assert moved(conclude(doubt(left_ms=600), facts, AT_LEAST_ONCE))[2] == 300


@pytest.mark.parametrize("policy", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_inside_the_dedup_window_the_same_call_is_made_again(policy: LanePolicy) -> None:
    found = conclude(doubt(), Evidence(None, NOW + 500), policy)
    assert moved(found) == (Event.REPLAY, "replay", 250)


def test_the_end_of_the_window_is_outside_of_it() -> None:
    assert moved(conclude(doubt(), Evidence(None, NOW), AT_MOST_ONCE))[0] is Event.PARK_UNPROVEN


@pytest.mark.parametrize(
    "facts", [Evidence(None, 0), Evidence(LATER, 0), Evidence(None, NOW + 9_999)]
)
@pytest.mark.parametrize("policy", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_past_its_ttl_a_person_decides(policy: LanePolicy, facts: Evidence) -> None:
    found = moved(conclude(doubt(left_ms=0), facts, policy))
    assert found == (Event.TTL, "ttl_in_doubt", 0)


@pytest.mark.parametrize("until", [0, NOW + 9_999])
def test_with_its_attempts_spent_a_person_decides(until: int) -> None:
    found = moved(conclude(doubt(attempt=4), Evidence(None, until), AT_LEAST_ONCE))
    assert found == (Event.PARK_UNPROVEN, "attempts_spent", 0)


@pytest.mark.parametrize(
    ("until", "left_ms", "moves"),
    [
        (0, 1_001, (Event.RESEND_UNPROVEN, "unproven", 1_000)),
        (0, 1_000, (Event.PARK_UNPROVEN, "horizon_over", 0)),
        (NOW + 500, 251, (Event.REPLAY, "replay", 250)),
        (NOW + 500, 250, (Event.PARK_UNPROVEN, "horizon_over", 0)),
        (NOW + 500, -9_999, (Event.PARK_UNPROVEN, "horizon_over", 0)),
    ],
)
def test_another_call_later_than_its_horizon_is_left_to_a_person(
    until: int, left_ms: int, moves: tuple[Event, str, int]
) -> None:
    late = doubt()
    made_at = NOW - RETRY.horizon_ms + left_ms
    asked = late.delivery.notification
    late.delivery.notification = msgspec.structs.replace(asked, created_at=made_at)
    assert moved(conclude(late, Evidence(None, until), AT_LEAST_ONCE)) == moves


@pytest.mark.parametrize(
    ("answers", "word"),
    [
        ([SENT], SENT),
        ([NOT_SENT, SENT], SENT),
        ([None, SENT], SENT),
        ([NOT_SENT, NOT_SENT], NOT_SENT),
        ([NOT_SENT, LATER], LATER),
        ([NOT_SENT, None], None),
        ([None], None),
        ([], None),
    ],
)
def test_several_accounts_say_one_word(answers: Any, word: ResolveResult | None) -> None:
    assert together(answers) == word


def test_what_nobody_can_prove_is_parked_where_the_policy_says_park() -> None:
    parking = LanePolicy(timeout_ms=3_000, retry=RETRY, unknown=InDoubt.PARK)
    assert moved(conclude(doubt(), Evidence(None, 0), parking))[0] is Event.PARK_UNPROVEN
    assert moved(conclude(doubt(), Evidence(None, 0), AT_LEAST_ONCE))[0] is Event.RESEND_UNPROVEN


HOUR_MS = 3_600_000


def task(*, age_ms: int = 10_000, left_ms: int = 100_000) -> UnknownDelivery:
    return doubt(age_ms=age_ms, left_ms=left_ms, since_ms=age_ms)._replace(
        reason=QUEUED, task="256"
    )


@pytest.mark.parametrize("policy", [AT_LEAST_ONCE, AT_MOST_ONCE])
def test_a_task_is_asked_about_beyond_half_its_time_and_its_ttl(policy: LanePolicy) -> None:
    until = NOW + HOUR_MS
    for left_ms in (1, -1_000):
        found = conclude(task(left_ms=left_ms), Evidence(LATER, 0, until), policy)
        assert found == AskLater(5_000)


@pytest.mark.parametrize("policy", [AT_LEAST_ONCE, AT_MOST_ONCE])
@pytest.mark.parametrize("answer", [LATER, None])
def test_a_task_without_a_result_is_never_sent_again(
    policy: LanePolicy, answer: ResolveResult | None
) -> None:
    assert moved(conclude(task(), Evidence(answer, NOW + HOUR_MS, NOW), policy)) == (
        Event.PARK_UNPROVEN,
        "unconfirmed",
        0,
    )


def test_a_task_of_which_the_provider_never_will_say_more_is_parked_at_once() -> None:
    never = ResolveResult(Resolution.ASK_LATER, detail="143105", final=True)
    assert moved(conclude(task(), Evidence(never, 0, NOW + HOUR_MS), AT_LEAST_ONCE)) == (
        Event.PARK_UNPROVEN,
        "unconfirmed",
        0,
    )


def test_whom_a_task_did_not_reach_is_sent_it_when_the_provider_wants() -> None:
    late = ResolveResult(Resolution.NOT_SENT, "256", "143105", delay_ms=7_000)
    assert moved(conclude(task(age_ms=0), Evidence(late, 0, NOW), AT_MOST_ONCE)) == (
        Event.RESOLVED_NOT_SENT,
        "resolved_not_sent",
        7_000,
    )


def test_whom_a_task_will_never_reach_is_rejected_with_the_providers_code() -> None:
    never = ResolveResult(Resolution.REFUSED, "256", "invalid_user: no such member")
    assert moved(conclude(task(), Evidence(never, 0, NOW), AT_LEAST_ONCE)) == (
        Event.RESOLVED_REFUSED,
        "invalid_user",
        0,
    )
