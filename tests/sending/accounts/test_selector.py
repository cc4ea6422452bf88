"""Through which account a delivery goes: weights, names, reserves, breakers, rates and failover."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from channels.channel import Account
from message.delivery import Delivery, deliveries_of
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from policy.schema import BreakerPolicy, LanePolicy
from sending.accounts.held import HELD_LOOK_S, HeldAccounts
from sending.accounts.rate_limiter import UNBOUNDED, RateLimiter
from sending.accounts.selector import AccountSelector, may_fail_over
from tests.dispatcher.fakes import LANE, notification

HALTED = [NotSent("no_balance", account=True)]
WELL = [Accepted("1")]
BREAKER = BreakerPolicy(min_calls=2, open_ms=5_000, probes=2)


def account(name: str, rate_per_s: float | None = None, burst: int | None = None) -> Account:
    return Account(name, "webhook", "http://a", rate_per_s=rate_per_s, burst=burst)


def delivery(named: str | None = None) -> Delivery:
    return deliveries_of(notification(account=named), b"", expires_at=0)[0]


class Bench:
    """A lane's accounts whose time is moved by hand."""

    def __init__(self, weights: dict[str, int] | list[str], *accounts: Account) -> None:
        self.time = 100.0
        of_lane = accounts or [account(name) for name in weights]
        self.of = {a.name: a for a in of_lane}
        self.rates = RateLimiter(of_lane, None, workers=lambda _: 1, monotonic=lambda: self.time)
        policy = LanePolicy(accounts=weights, breaker=BREAKER)
        self.held = HeldAccounts()
        self.accounts = AccountSelector(
            LANE, policy, of_lane, self.rates, monotonic=lambda: self.time, held=self.held
        )

    def choose(self, named: str | None = None) -> str | None:
        chosen = self.accounts.choose(delivery(named))
        return chosen.name if chosen else None

    def other(self, outcome: AnyOutcome, *tried: str, named: str | None = None) -> str | None:
        chosen = self.accounts.failover(delivery(named), outcome, tried)
        return chosen.name if chosen else None

    def record(
        self, name: str, outcomes: Sequence[AnyOutcome], begun_at: float | None = None
    ) -> None:
        self.accounts.record(self.of[name], outcomes, begun_at)

    def shown(self) -> dict[tuple[str, str], float]:
        found = self.accounts.readings()
        return {(r.family.name, r.labels.get("account", "")): r.value for r in found}


# -- weights --


def test_accounts_take_turns_by_their_weights() -> None:
    bench = Bench({"a": 3, "b": 1})
    turns = [bench.choose() for _ in range(400)]
    assert Counter(turns) == {"a": 300, "b": 100}
    assert Counter(turns[:4]) == {"a": 3, "b": 1}, "a burst is mixed too"


def test_accounts_of_a_list_weigh_the_same() -> None:
    bench = Bench(["a", "b", "c"])
    assert Counter(bench.choose() for _ in range(300)) == {"a": 100, "b": 100, "c": 100}


def test_a_single_account_is_always_chosen() -> None:
    assert {Bench(["a"]).choose() for _ in range(5)} == {"a"}


def test_a_named_account_wins_whatever_the_weights() -> None:
    bench = Bench({"a": 1_000, "b": 1, "c": 0})
    assert {bench.choose("b") for _ in range(20)} == {"b"}
    assert bench.choose("c") == "c"
    with pytest.raises(KeyError):
        bench.choose("unheard of")


def test_a_reserve_is_chosen_only_when_no_other_may_send() -> None:
    bench = Bench({"a": 1, "b": 1, "r": 0})
    assert Counter(bench.choose() for _ in range(10)) == {"a": 5, "b": 5}
    bench.record("a", HALTED)
    assert {bench.choose() for _ in range(10)} == {"b"}
    bench.record("b", HALTED)
    assert {bench.choose() for _ in range(10)} == {"r"}
    assert bench.accounts.room() == UNBOUNDED


def test_an_account_that_was_away_is_not_owed_what_others_sent_meanwhile() -> None:
    bench = Bench({"a": 1, "b": 1})
    bench.record("b", HALTED)
    for _ in range(100):
        bench.choose()
    bench.time += 5.0
    for _ in range(2):
        assert bench.choose("b") == "b"
        bench.record("b", WELL)
    assert 9 <= Counter(bench.choose() for _ in range(20))["b"] <= 11


# -- breakers --


def test_while_its_breaker_is_open_an_account_is_passed_over() -> None:
    bench = Bench(["a", "b"])
    bench.record("a", HALTED)
    assert {bench.choose() for _ in range(10)} == {"b"}
    assert not bench.accounts.still_allowed(bench.of["a"])
    assert bench.accounts.still_allowed(bench.of["b"])


def test_a_named_account_with_an_open_breaker_is_waited_for() -> None:
    bench = Bench(["a", "b"])
    bench.record("a", HALTED)
    assert bench.choose("a") is None
    assert bench.accounts.seconds_until_room("a") == pytest.approx(5.0)
    assert bench.accounts.seconds_until_room() == 0.0


def test_when_no_breaker_lets_pass_there_is_no_room_until_the_first_may_be_tried() -> None:
    bench = Bench(["a", "b"])
    bench.record("a", HALTED)
    bench.time += 2.0
    bench.record("b", HALTED)
    assert bench.choose() is None
    assert bench.accounts.room() == 0
    assert bench.accounts.seconds_until_room() == pytest.approx(3.0)
    bench.time += 3.0
    assert bench.accounts.room() == BREAKER.probes


def test_only_the_probes_go_through_a_half_open_account() -> None:
    bench = Bench(["a"])
    bench.record("a", HALTED)
    bench.time += 5.0
    assert [bench.choose() for _ in range(4)] == ["a", "a", None, None]
    assert bench.accounts.room() == 0
    bench.record("a", [Accepted("1"), Accepted("2")])
    assert bench.accounts.room() == UNBOUNDED


def test_a_probe_that_turns_out_a_duplicate_makes_place_for_another() -> None:
    bench = Bench(["a"])
    bench.record("a", HALTED)
    bench.time += 5.0
    assert [bench.choose(), bench.choose(), bench.choose()] == ["a", "a", None]
    bench.accounts.release(bench.of["a"])
    assert [bench.choose(), bench.choose()] == ["a", None]


def test_messages_at_fault_themselves_leave_the_account_open_to_others() -> None:
    bench = Bench(["a"])
    for _ in range(50):
        bench.record("a", [Rejected("bad_number")])
    assert bench.choose() == "a"


def test_an_empty_call_says_nothing() -> None:
    bench = Bench(["a"])
    bench.record("a", [])
    bench.record("a", [])
    assert bench.choose() == "a"


@pytest.mark.parametrize("code", ["withdrawn", "too_late"])
def test_calls_that_we_took_back_ourselves_open_no_breaker(code: str) -> None:
    bench = Bench(["a"])
    for _ in range(50):
        bench.record("a", [NotSent(code)])
    assert bench.choose() == "a"


def test_a_probe_that_was_taken_back_makes_place_for_another() -> None:
    bench = Bench(["a"])
    bench.record("a", HALTED)
    bench.time += 5.0
    assert [bench.choose(), bench.choose(), bench.choose()] == ["a", "a", None]
    bench.record("a", [NotSent("withdrawn")])
    assert [bench.choose(), bench.choose()] == ["a", None]
    bench.record("a", [Accepted("1"), Accepted("2")])
    assert bench.accounts.room() == UNBOUNDED


def test_a_call_begun_before_the_breaker_opened_fails_no_probe() -> None:
    bench = Bench(["a"])
    begun = bench.time
    bench.time += 1.0
    bench.record("a", HALTED)
    bench.time += 5.0
    bench.record("a", [Unknown("timeout")], begun_at=begun)
    assert bench.accounts.room() == BREAKER.probes


# -- rates --


def test_an_account_without_tokens_is_passed_over() -> None:
    bench = Bench({"a": 9, "b": 1}, account("a", 1.0, burst=3), account("b"))
    chosen = Counter(bench.choose() for _ in range(20))
    assert chosen == {"a": 3, "b": 17}


def test_when_no_account_has_tokens_there_is_no_room_until_the_first_has() -> None:
    bench = Bench(["a", "b"], account("a", 0.5, burst=2), account("b", 0.25, burst=1))
    assert Counter(bench.choose() for _ in range(5)) == {"a": 2, "b": 1, None: 2}
    assert bench.accounts.room() == 0
    assert bench.accounts.seconds_until_room() == pytest.approx(2.0)
    assert bench.accounts.seconds_until_room("b") == pytest.approx(4.0)
    bench.time += 2.0
    assert bench.accounts.room() == 1
    assert [bench.choose(), bench.choose()] == ["a", None]


def test_the_room_is_what_all_accounts_together_may_send() -> None:
    bench = Bench(["a", "b"], account("a", 30.0, burst=30), account("b", 20.0, burst=20))
    assert bench.accounts.room() == 3 + 2, "a chunk of each"
    bench.record("a", HALTED)
    assert bench.accounts.room() == 2


def test_tokens_of_what_is_not_sent_are_there_for_the_next() -> None:
    bench = Bench(["a"], account("a", 0.01, burst=1))
    assert [bench.choose(), bench.choose()] == ["a", None]
    bench.accounts.release(bench.of["a"])
    assert bench.choose() == "a"


def test_a_breaker_that_lets_nothing_pass_costs_no_token() -> None:
    bench = Bench(["a"], account("a", 0.01, burst=4))
    bench.record("a", HALTED)
    assert [bench.choose() for _ in range(50)] == [None] * 50
    bench.time += 5.0
    assert [bench.choose() for _ in range(3)] == ["a", "a", None]


def test_of_many_threads_at_once_no_more_choose_than_there_are_tokens() -> None:
    bench = Bench(["a", "b"], account("a", 0.01, burst=30), account("b", 0.01, burst=20))
    start, chosen = threading.Barrier(8), list[str | None]()

    def run() -> None:
        start.wait()
        chosen.extend(bench.choose() for _ in range(50))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(chosen) == {"a": 30, "b": 20, None: 350}


# -- failover --


@pytest.mark.parametrize(
    ("outcome", "may"),
    [
        (NotSent("no_balance", account=True), True),
        (Rejected("bad_key", account=True), True),
        (NotSent("connect"), True),
        (NotSent("dns"), True),
        (NotSent("tls"), True),
        (NotSent("timeout"), True),
        (NotSent("token_unavailable"), True),
        (NotSent("one_a_minute", retry_after_ms=60_000), False),
        (NotSent("http_429"), False),
        (NotSent("http_429", limit=Limit.ACCOUNT), False),
        (NotSent("day_limit", limit=Limit.ACCOUNT, account=True), True),
        (Rejected("bad_number"), False),
        (Unknown("timeout"), False),
        (Unknown("connect"), False),
        (Accepted("1"), False),
    ],
)
def test_another_account_is_tried_only_when_nothing_was_sent_and_the_account_is_why(
    outcome: AnyOutcome, may: bool
) -> None:
    assert may_fail_over(delivery(), outcome) is may
    assert not may_fail_over(delivery(named="a"), outcome)
    bench = Bench(["a", "b"])
    assert bench.other(outcome, "a") == ("b" if may else None)
    assert bench.accounts.failovers == may


def test_no_account_is_tried_twice_and_the_reserve_comes_last() -> None:
    bench = Bench({"r": 0, "a": 1, "b": 1})
    lost = NotSent("connect")
    assert bench.other(lost, "a") == "b"
    assert bench.other(lost, "a", "b") == "r"
    assert bench.other(lost, "a", "b", "r") is None


def test_a_notification_that_names_its_account_never_goes_through_another() -> None:
    assert Bench(["a", "b"]).other(NotSent("connect"), "a", named="a") is None


def test_another_account_must_have_room_too() -> None:
    bench = Bench(["a", "b"], account("a"), account("b", 0.01, burst=1))
    lost = NotSent("connect")
    assert [bench.other(lost, "a"), bench.other(lost, "a")] == ["b", None]
    bench = Bench(["a", "b"])
    bench.record("b", HALTED)
    assert bench.other(lost, "a") is None


# -- what is told --


def test_opening_and_closing_are_logged_with_lane_account_and_cause() -> None:
    bench = Bench(["a"])
    with capture_logs() as logs:
        bench.record("a", [NotSent("no_balance", "secret detail", account=True)])
        bench.time += 5.0
        bench.choose()
        bench.choose()
        bench.record("a", [Accepted("1"), Accepted("2")])
    opened, closed = logs
    assert (opened["event"], closed["event"]) == ("breaker_opened", "breaker_closed")
    assert opened["lane"] == LANE.name
    assert (opened["account"], opened["codes"], opened["for_s"]) == ("a", ["no_balance"], 5.0)
    assert "secret detail" not in str(logs)


def test_states_and_counts_are_shown() -> None:
    bench = Bench(["a", "b"])
    bench.record("a", HALTED)
    bench.other(NotSent("connect"), "a")
    assert bench.shown() == {
        ("hongyan_breaker_state", "a"): 2,
        ("hongyan_breaker_state", "b"): 0,
        ("hongyan_breaker_opened_total", "a"): 1,
        ("hongyan_breaker_opened_total", "b"): 0,
        ("hongyan_failovers_total", ""): 1,
    }
    bench.time += 5.0
    assert bench.shown()["hongyan_breaker_state", "a"] == 1


# -- refusals that only pace --

SLOWER = NotSent("http_429", retry_after_ms=2_000, limit=Limit.ACCOUNT)


def test_a_provider_that_asks_to_be_left_alone_is_not_called_until_then() -> None:
    bench = Bench(["a"])
    bench.record("a", [SLOWER], begun_at=bench.time)
    assert bench.choose() is None
    assert (bench.accounts.room(), bench.accounts.still_allowed(bench.of["a"])) == (0, False)
    assert bench.accounts.seconds_until_room() == pytest.approx(2.0)
    assert bench.shown()["hongyan_breaker_state", "a"] == 0, "a healthy account's breaker opened"
    bench.time += 2.01
    assert bench.choose() == "a"
    assert bench.choose() is None, "it begins slowly"


def test_meanwhile_another_account_takes_what_names_none() -> None:
    bench = Bench(["a", "b"])
    bench.record("a", [SLOWER], begun_at=bench.time)
    assert {bench.choose() for _ in range(5)} == {"b"}
    assert bench.accounts.opens_in_s(delivery(), bench.of["a"]) == 0.0
    assert bench.accounts.opens_in_s(delivery("a"), bench.of["a"]) == pytest.approx(2.0)


@pytest.mark.parametrize("limit", [Limit.RECEIVER, Limit.PART])
def test_a_limit_of_one_receiver_or_of_a_part_slows_nobody_else(limit: Limit) -> None:
    bench = Bench(["a"])
    refusal = NotSent("one_a_minute", retry_after_ms=60_000, limit=limit)
    bench.record("a", [refusal, Accepted("1")], begun_at=bench.time)
    assert {bench.choose() for _ in range(50)} == {"a"}


def test_an_account_that_is_refused_no_more_is_free_again() -> None:
    bench = Bench(["a"])
    bench.record("a", [SLOWER], begun_at=bench.time)
    bench.time += 65.0
    bench.rates.tidy()
    assert bench.accounts.room() == UNBOUNDED
    assert {bench.choose() for _ in range(500)} == {"a"}


# -- accounts that a person paused --


def test_a_paused_account_is_not_chosen_and_the_others_take_over() -> None:
    bench = Bench({"a": 3, "b": 1, "reserve": 0})
    bench.held.hold(frozenset({"a"}))
    assert {bench.choose() for _ in range(10)} == {"b"}
    bench.held.hold(frozenset({"a", "b"}))
    assert bench.choose() == "reserve"
    bench.held.hold(frozenset())
    assert Counter(bench.choose() for _ in range(8)) == {"a": 6, "b": 2}


@pytest.mark.parametrize("rate_per_s", [None, 100.0])
def test_a_lane_whose_only_account_is_paused_has_no_room_and_says_when_to_look_again(
    rate_per_s: float | None,
) -> None:
    bench = Bench(["a"], account("a", rate_per_s))
    assert bench.accounts.room() > 0
    bench.held.hold(frozenset({"a"}))
    assert bench.choose() is None
    assert bench.choose("a") is None
    assert bench.accounts.any_account() is None
    assert bench.accounts.room() == 0
    assert bench.accounts.seconds_until_room() == HELD_LOOK_S
    assert bench.accounts.opens_in_s(delivery(), bench.of["a"]) == HELD_LOOK_S
    assert bench.accounts.held() == ["a"]
    bench.held.hold(frozenset())
    assert bench.choose() == "a"


def test_a_call_chosen_before_the_pause_is_not_made_nor_repeated_nor_moved_there() -> None:
    bench = Bench(["a", "b"])
    assert bench.accounts.still_allowed(bench.of["a"])
    bench.held.hold(frozenset({"a"}))
    assert not bench.accounts.still_allowed(bench.of["a"])
    assert bench.accounts.reacquire(bench.of["a"], 1) == 0
    assert bench.other(HALTED[0], "b") is None
    assert bench.accounts.opens_in_s(delivery(), bench.of["a"]) == 0, "b may take it now"
    assert bench.accounts.opens_in_s(delivery("a"), bench.of["a"]) == HELD_LOOK_S


def test_a_delivery_that_names_a_paused_account_waits_for_it() -> None:
    bench = Bench(["a", "b"])
    bench.held.hold(frozenset({"a"}))
    assert bench.choose("a") is None
    assert bench.choose("b") == "b"


def test_a_pause_opens_no_breaker_and_uses_no_token() -> None:
    bench = Bench(["a"], account("a", rate_per_s=1, burst=1))
    bench.held.hold(frozenset({"a"}))
    assert [bench.choose() for _ in range(3)] == [None] * 3
    assert bench.accounts.open_breakers() == []
    bench.held.hold(frozenset())
    assert bench.choose() == "a"
