"""What a policy changes, what that means for what waits, and what is refused."""

from __future__ import annotations

from message.vocabulary import Lane
from policy.diff import Change, Effect, Waiting, changes, effects, grouped, refusals
from policy.loading import parse
from policy.schema import Policy

SMS, EMAIL = Lane("sms", "notice"), Lane("email", "notice")


def policy(lane_lines: str = "", rest: str = "") -> Policy:
    text = f'{rest}\n[lanes."sms.notice"]\n{lane_lines}\n'
    return parse("policy.toml", text.encode(), version="v")


def told(before: Policy, after: Policy, *waiting: Waiting) -> list[Effect]:
    return effects(before, after, changes(before, after), waiting)


def test_fields_that_differ_are_told_lane_by_lane_and_equal_ones_once() -> None:
    before = policy("threads = 3")
    after = policy(
        "threads = 4\nretry = { attempts = 2 }", rest='[lanes."email.notice"]\nretry.attempts = 2'
    )
    found = changes(before, after)
    assert set(found) == {
        Change(SMS, "threads", 3, 4),
        Change(SMS, "retry.attempts", 10, 2),
        Change(EMAIL, "retry.attempts", 10, 2),
    }
    assert ("retry.attempts", 10, 2, [SMS, EMAIL]) in grouped(found)
    assert changes(after, after) == []


def test_weights_are_one_value() -> None:
    before, after = policy("accounts = { a = 1, b = 2 }"), policy("accounts = { a = 3, b = 2 }")
    assert changes(before, after) == [
        Change(SMS, "accounts", {"a": 1, "b": 2}, {"a": 3, "b": 2}),
    ]


def test_guarantee_and_ordering_are_refused_while_the_lane_is_at_work() -> None:
    found = changes(policy(), policy('ordering = "key"\nthreads = 3'))
    idle: list[frozenset[str]] = [frozenset({"email.notice"})]
    assert refusals(found, [], idle) == []
    alive = refusals(found, [], [*idle, frozenset({"sms.notice"})])
    assert len(alive) == 1
    assert "lane sms.notice: ordering cannot go from none to key" in alive[0]
    assert "1 process of it alive, 0 deliveries open" in alive[0]
    (open_,) = refusals(found, [Waiting("sms.notice", "RETRY", "", 1, 5)], [])
    assert "0 processes of it alive, 5 deliveries open" in open_


def test_guarantee_and_ordering_are_refused_while_nobody_knows_what_is_open() -> None:
    found = changes(policy(), policy('ordering = "key"\nthreads = 3'))
    (unknown,) = refusals(found, None, [])
    assert (
        "ordering cannot go from none to key while its open deliveries cannot be counted" in unknown
    )
    assert refusals(changes(policy(), policy("threads = 3")), None, []) == []


def test_retries_that_the_new_attempts_end_are_counted() -> None:
    rows = [Waiting("sms.notice", "RETRY", "a", n, 10) for n in (1, 2, 3, 12)]
    assert told(policy(), policy("retry.attempts = 2"), *rows) == [
        Effect("sms.notice", 20, "are parked when they are due: 2 attempts are spent")
    ]


def test_what_is_in_doubt_is_told_when_its_fate_changes() -> None:
    doubt = Waiting("sms.notice", "UNKNOWN", "a", 1, 7)
    assert told(policy(), policy('unknown = "park"'), doubt) == [
        Effect("sms.notice", 7, "in doubt, are parked where nothing can be proved")
    ]
    assert told(policy(), policy('accounts = ["a"]'), doubt) == []
    gone = told(policy('accounts = ["a", "b"]'), policy('accounts = ["b"]'), doubt)
    assert gone == [
        Effect("sms.notice", 7, "in doubt at account a, which cannot be asked any more")
    ]


def test_an_account_is_gone_also_if_the_policy_before_named_none() -> None:
    every, only = policy(), policy('accounts = ["b"]')
    rows = [Waiting("sms.notice", "UNKNOWN", "a", 1, 7), Waiting("sms.notice", "RETRY", "a", 1, 4)]
    assert told(every, only, *rows) == [
        Effect("sms.notice", 7, "in doubt at account a, which cannot be asked any more"),
        Effect("sms.notice", 4, "last tried through a, go through another account"),
    ]
    assert told(only, every, *rows) == []
    never_called = Waiting("sms.notice", "RETRY", "", 0, 5)
    assert told(every, only, never_called) == []
    added = policy('accounts = ["b", "c"]')
    assert told(only, added, *rows) == [], "it was none of the lane's before either"


def test_lanes_that_nothing_changes_for_are_left_out() -> None:
    other = Waiting("email.notice", "RETRY", "a", 5, 7)
    assert told(policy(), policy("retry.attempts = 2"), other) == []


def test_ttl_and_quiet_hours_say_what_waits() -> None:
    waits = Waiting("sms.notice", "RETRY", "", 1, 3)
    after = policy('ttl_ms = 60_000\nquiet_hours = { windows = ["22:00-08:00"] }')
    assert [(e.rows, e.text) for e in told(policy(), after, waits)] == [
        (3, "keep the end of life they were entered with"),
        (3, "wait for the end of quiet hours where they fall due in them"),
    ]
