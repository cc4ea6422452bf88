"""Terms exchanged under a lane at work: what acts under which, and threads that come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import msgspec

from backends.settings import Settings
from channels.channel import Account, Call
from channels.providers.null import NullChannel
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.binding import bind, choose
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import SEND, Assignment, Finished, KafkaRecord, Park, Work
from message.delivery import deliveries_of
from message.outcomes import Accepted, AnyOutcome, NotSent
from policy.schema import BreakerPolicy, LanePolicy, Ordering, Policy
from sending.accounts.circuit_breaker import BreakerState
from sending.accounts.limits import SendLimits, open_quotas
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.policy_reload import followed
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, AtOnce, no_limits, notification, routed


def terms(version: str, policy: LanePolicy, *names: str) -> LaneConfig:
    accounts = [Account(name, "null", "") for name in names or ("a",)]
    routes: dict[str, Route] = {account.name: Route(account, NullChannel()) for account in accounts}
    chooser = AccountSelector(
        LANE, policy, accounts, RateLimiter(accounts, None, workers=lambda _: 1)
    )
    return LaneConfig(version, policy, routes, chooser)


def work(under: LaneConfig | None = None, **changes: Any) -> Work:
    one = msgspec.structs.replace(notification(), **changes)
    record = KafkaRecord(Assignment(TOPIC, 0, LANE, Offsets()), 0, one, b"{}", NOW_MS, None)
    (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 1_000, policy_version="v1")
    return Work(delivery, record, terms=under)


class Lane(AtOnce):
    """A pool whose calls wait until they are let go."""

    def __init__(self, threads: int) -> None:
        self.going = threading.Semaphore(0)
        self.begun: SimpleQueue[str] = SimpleQueue()
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        self.terms = terms("v1", LanePolicy(threads=threads))
        self.pool = LanePool(
            LANE,
            self.terms,
            self,
            permit=self,
            clock=Clock(lambda: NOW_MS / 1_000, lambda: NOW_MS / 1_000),
            finished=self.finished,
            reroute=lambda deliveries: [True] * len(deliveries),
            delays=no_limits,
        )

    def send(self, _channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        self.begun.put(f"{timeout_s:g}")
        assert self.going.acquire(timeout=10)
        return [Accepted(d.key) for d in call.deliveries]

    def wait_valid(self, _term: int, _until: Callable[[], bool]) -> bool:
        return True

    def ends_at(self, _term: int) -> float:
        return float("inf")

    def put(self, count: int) -> None:
        for _ in range(count):
            one = work(self.pool.terms)
            one.route = routed(one, self.pool)
            self.pool.put([one])

    def resize(self, threads: int, **fields: Any) -> None:
        policy = LanePolicy(threads=threads, **fields)
        self.pool.adopt(LaneConfig("v2", policy, self.terms.routes, self.terms.accounts))

    def ended(self, count: int) -> list[Finished]:
        return [self.finished.get(timeout=10) for _ in range(count)]


def living() -> int:
    return sum(t.name.startswith(f"{LANE.name}-") and t.is_alive() for t in threading.enumerate())


def threads_end(count: int) -> bool:
    """Until so many of the lane's threads live."""
    for thread in threading.enumerate():
        if thread.name.startswith(f"{LANE.name}-") and living() > count:
            thread.join(0.5)
    return living() == count


def test_a_lane_that_grows_makes_more_calls_at_once() -> None:
    lane = Lane(1)
    lane.pool.start()
    lane.put(3)
    assert lane.begun.get(timeout=10)
    lane.resize(3)
    assert [lane.begun.get(timeout=10) for _ in range(2)]
    lane.going.release(3)
    assert len(lane.ended(3)) == 3
    lane.pool.close()
    assert threads_end(0)


def test_a_lane_that_shrinks_loses_no_call_and_ends_its_threads() -> None:
    lane = Lane(4)
    lane.pool.start()
    lane.put(10)
    lane.resize(1)
    lane.put(5)
    lane.going.release(15)
    ended = lane.ended(15)
    assert all(isinstance(w, Work) and isinstance(w.end, Accepted) for w in ended)
    assert threads_end(1)
    lane.pool.close()
    assert threads_end(0)
    lane.resize(7)
    assert living() == 0, "a lane that is closed stays closed"


def test_what_was_claimed_ends_under_the_terms_of_its_claim() -> None:
    lane = Lane(1)
    lane.pool.start()
    lane.put(1)
    lane.resize(1, timeout_ms=1_000)
    lane.put(1)
    lane.going.release(2)
    first, second = lane.ended(2)
    assert [lane.begun.get(), lane.begun.get()] == ["5", "1"]
    assert isinstance(first, Work)
    assert isinstance(second, Work)
    assert (first.bound.version, second.bound.version) == ("v1", "v2")
    lane.pool.close()


def test_what_waits_unclaimed_acts_under_the_new_version_with_its_ttl() -> None:
    one = work(terms("v1", LanePolicy(ttl_ms=1_000, timeout_ms=10)))
    bind(one, terms("v2", LanePolicy(ttl_ms=5_000, timeout_ms=10)))
    assert (one.delivery.policy_version, one.delivery.expires_at) == ("v2", NOW_MS + 5_000)
    assert one.intent is SEND


def test_one_that_names_an_account_which_is_gone_ends_and_says_so() -> None:
    one = work(terms("v1", LanePolicy(), "a", "b"), account="b")
    new = terms("v2", LanePolicy(), "a")
    bind(one, new)
    assert one.intent == Park("unknown_account: the lane has no account b any more")
    route = choose(one, new)
    assert route is not None, "it needs a place at the claim, though it will not be sent"
    assert route[0].name == "a"


def test_a_lane_with_calls_of_several_has_room_for_whole_ones() -> None:
    one = terms("v1", LanePolicy(threads=2, queue=3, batch=1))
    assert (one.most, one.batch, one.capacity) == (1, 1, 5)
    assert terms("v1", LanePolicy(ordering=Ordering.KEY)).most == 1


# -- accounts --


def send_limits(held: ExitStack, policy: Policy, routes: Any) -> SendLimits:
    ledger: Any = type("Ledger", (), {"sending_lanes": lambda _: []})()
    return open_quotas(Settings(), policy, routes, ledger, "ledger", Clock(), held)


def test_a_breaker_keeps_what_it_learnt_where_its_own_settings_stay() -> None:
    breaker = BreakerPolicy(min_calls=1, open_ms=60_000)
    before = Policy("v1", {LANE.name: LanePolicy(breaker=breaker, accounts={"a": 1, "b": 1})})
    a, b = (Account(name, "null", "", rate_per_s=5.0) for name in "ab")
    routes = {LANE: {account.name: Route(account, NullChannel()) for account in (a, b)}}
    with ExitStack() as held:
        mine = send_limits(held, before, routes)
        old = mine.accounts[LANE.name]
        old.record(a, [NotSent("closed")])
        mine.follow(Policy("v2", before.lanes), routes)
        assert mine.accounts[LANE.name] is old, "nothing changes for its accounts"
        weighed = LanePolicy(breaker=breaker, accounts={"a": 5})
        mine.follow(Policy("v3", {LANE.name: weighed}), {LANE: {"a": routes[LANE]["a"]}})
        new = mine.accounts[LANE.name]
        assert new is not old
        assert not new.still_allowed(a), "the breaker is open still"
        other = LanePolicy(breaker=BreakerPolicy(min_calls=2), accounts={"a": 5})
        mine.follow(Policy("v4", {LANE.name: other}), {LANE: {"a": routes[LANE]["a"]}})
        assert mine.accounts[LANE.name].still_allowed(a)
        new.release(b)
        assert new.record(b, [Accepted("1")]), "one that the lane has no more"
        assert BreakerState.OPEN in {BreakerState(int(v)) for *_, v in old.readings() if v == 2}


def test_an_account_that_a_policy_adds_keeps_to_its_rate() -> None:
    a, b = (Account(name, "null", "", rate_per_s=1.0, burst=1) for name in "ab")
    with ExitStack() as held:
        mine = send_limits(held, Policy(), {LANE: {"a": Route(a, NullChannel())}})
        both = {LANE: {"a": Route(a, NullChannel()), "b": Route(b, NullChannel())}}
        mine.follow(Policy("v2"), both)
        chosen = [mine.accounts[LANE.name].choose(work().delivery) for _ in range(4)]
        assert sorted(c.name for c in chosen if c is not None) == ["a", "b"]


def test_a_lane_that_cannot_follow_is_kept_whole_and_the_others_follow() -> None:
    old, new = LanePolicy(threads=2), LanePolicy(threads=9, ordering=Ordering.KEY)
    policy = Policy("v2", {LANE.name: new})
    mixed, kept = followed(policy, {LANE: ("v1", old)})
    assert (mixed.of(LANE), kept) == (old, frozenset({LANE.name}))
    assert followed(policy, {LANE: ("v1", new)}).kept == frozenset()
