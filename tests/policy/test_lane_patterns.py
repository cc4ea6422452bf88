"""`[lanes."sms.*"]`: patterns of lanes in the policy file."""

from __future__ import annotations

import pytest

from message.vocabulary import LANES, Lane
from policy.diff import changes
from policy.loading import PolicyError, parse
from policy.resets import dropped_tables, resets
from policy.schema import DEFAULTS_BY_KIND, Policy

NOTICE, CODE = Lane("sms", "notice"), Lane("sms", "verification")


def policy(text: str) -> Policy:
    return parse("policy.toml", text.encode(), version="v1:x")


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        policy(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_pattern_sets_the_lanes_that_fit_and_no_other() -> None:
    found = policy('[lanes."sms.*"]\nthreads = 33\n')
    for lane in LANES:
        usual = DEFAULTS_BY_KIND[lane.kind].threads
        assert found.of(lane).threads == (33 if lane.channel == "sms" else usual)


def test_the_nearer_table_wins() -> None:
    text = (
        '[lanes."sms.notice"]\nthreads = 4\n[lanes."sms.*"]\nthreads = 3\nqueue = 9\n'
        "[defaults.notice]\nthreads = 2\nqueue = 2\n[defaults]\nthreads = 1\nqueue = 1\n"
    )
    found = policy(text).of(NOTICE)
    assert (found.threads, found.queue) == (4, 9)


def test_fields_of_inner_tables_are_merged() -> None:
    found = policy(
        '[lanes."*.notice".retry]\nattempts = 3\n[lanes."sms.*".retry]\nbase_ms = 7\n'
    ).of(NOTICE)
    assert (found.retry.attempts, found.retry.base_ms) == (3, 7)


def test_two_patterns_that_set_one_field_are_refused_once_with_the_line() -> None:
    text = '[lanes."sms.*"]\nthreads = 3\n[lanes."s*.*"]\nthreads = 4\n'
    assert problems(text) == [
        (
            'policy.toml:4: lanes."s*.*".threads: is set for sms.verification by [lanes."sms.*"], too; set'
            ' it in one of the two, or in [lanes."sms.verification"]'
        )
    ]


def test_the_lanes_own_table_decides_between_two_patterns() -> None:
    text = '[lanes."sms.*"]\nthreads = 3\n[lanes."*.notice"]\nthreads = 4\n'
    assert policy(f'{text}[lanes."sms.notice"]\nthreads = 5\n').of(NOTICE).threads == 5


def test_a_pattern_that_fits_no_lane_is_refused() -> None:
    (problem,) = problems('[lanes."fax.*"]\nthreads = 3\n')
    assert problem.startswith('policy.toml:1: lanes."fax.*": no such lane; ')


def test_a_gate_of_a_pattern_leaves_exempt_kinds_alone() -> None:
    found = policy(
        '[lanes."sms.*".quiet_hours]\nwindows = ["22:00-08:00"]\n'
        '[lanes."*.verification".frequency]\nscope = "channel"\n'
    )
    assert found.of(NOTICE).quiet_hours.holds
    assert not found.of(CODE).quiet_hours.holds


def test_a_dropped_pattern_resets_the_lanes_it_applied_to() -> None:
    before, after = '[lanes."sms.*"]\nthreads = 33\n', "[defaults]\nqueue = 5\n"
    dropped = dropped_tables(before, after)
    assert dropped == ['[lanes."sms.*"]']
    reset = resets(changes(policy(before), policy(after)), dropped)
    assert {one.lane.channel for one in reset} == {"sms"}
