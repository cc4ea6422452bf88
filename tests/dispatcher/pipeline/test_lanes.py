"""A lane's calls: what shares one, what goes elsewhere after a definite non-send, what never does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import msgspec
import pytest

from channels.channel import Account, Call
from channels.engine import TokenRejected
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import Assignment, Finished, KafkaRecord, Work
from message.delivery import Delivery, deliveries_of
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from message.states import Event
from policy.schema import BreakerPolicy, Guarantee, LanePolicy, RetryPolicy
from sending.accounts.circuit_breaker import BreakerState
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.endings import NotStarted
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, Later, notification, routed
from tests.idempotency.making import wait_until


class Batching:
    """A channel that takes three deliveries a call, and refuses receivers named `nobody`."""

    max_batch = 3
    takes_anything = False
    dedup_window_ms = 0

    def batch_key(self, delivery: Delivery) -> Hashable:
        return None

    def batch_limit(self, delivery: Delivery) -> int:
        return self.max_batch

    def refusal(self, account: Account, delivery: Delivery) -> str:
        return "no_such_receiver: there is none" if "nobody" in delivery.receiver else ""


@pytest.fixture(params=["at_once", "later"], autouse=True)
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come to the thread that asked, or are told by another."""
    monkeypatch.setattr(Bench, "told_later", request.param == "later")


class Bench(Later):
    """One thread; `answer` says what each call gets."""

    def __init__(
        self,
        answer: Callable[[Call], list[AnyOutcome]],
        weights: dict[str, int],
        endpoint: str = "http://127.0.0.1:9",
        bursts: dict[str, int] | None = None,
        **policy: Any,
    ) -> None:
        """`bursts`: deliveries that may go through an account, by name, before its rate holds all others
        back; none: any number."""
        bursts = bursts or {}
        self.timeouts: list[float] = []
        self.lease_ends = inf
        self.calls: list[tuple[str, list[str]]] = []
        self.rerouted: list[tuple[str, str]] = []
        self.stale = False
        self.held: dict[tuple[str, str], int] = {}
        """Account and receiver to the milliseconds for which its limit holds a delivery."""
        self.ms = NOW_MS
        self._answer = answer
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        clock = Clock(lambda: self.ms / 1_000, lambda: self.ms / 1_000)
        lane_policy = LanePolicy(**{"threads": 1, "accounts": weights, **policy})
        accounts = [
            Account(
                name,
                "p",
                endpoint,
                rate_per_s=0.01 if name in bursts else None,
                burst=bursts.get(name),
            )
            for name in weights
        ]
        adapter: Any = Batching()
        routes: dict[str, Route] = {account.name: Route(account, adapter) for account in accounts}
        chooser = AccountSelector(
            LANE, lane_policy, accounts, RateLimiter(accounts, None, workers=lambda _: 1)
        )
        self.pool = LanePool(
            LANE,
            LaneConfig("", lane_policy, routes, chooser),
            self,
            permit=self,
            clock=clock,
            finished=self.finished,
            reroute=self._reroute,
            delays=lambda pairs: [self.held.get(pair, 0) for pair in pairs],
        )

    def send(self, _channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        self.timeouts.append(timeout_s)
        self.calls.append((call.account.name, [d.receiver for d in call.deliveries]))
        return self._answer(call)

    def ends_at(self, _term: int) -> float:
        return self.lease_ends

    def wait_valid(self, _term: int, _until: Callable[[], bool]) -> bool:
        return True

    def _reroute(self, deliveries: Sequence[Delivery]) -> list[bool]:
        self.rerouted += [(d.receiver, d.account) for d in deliveries]
        for delivery in deliveries:
            delivery.attempt += not self.stale
        return [not self.stale] * len(deliveries)

    def works(self, *receivers: str) -> list[Work]:
        works = []
        for number, receiver in enumerate(receivers):
            one = msgspec.structs.replace(notification(number), receivers=[receiver])
            record = KafkaRecord(
                Assignment(TOPIC, 0, LANE, Offsets()), number, one, b"{}", NOW_MS, None
            )
            (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + 1_000)
            delivery.attempt = 1
            works.append(Work(delivery, record))
            works[-1].route = routed(works[-1], self.pool)
        return works

    def serve(self, *receivers: str) -> list[Work]:
        return self.run(self.works(*receivers))

    def run(self, works: list[Work]) -> list[Work]:
        self.pool.start()
        for call in calls_of(works, {LANE.name: self.pool}):
            self.pool.put(call)
        ended = [self.finished.get(timeout=10) for _ in works]
        self.pool.close()
        assert {id(work) for work in ended} == {id(work) for work in works}
        return works


def accepted(call: Call) -> list[AnyOutcome]:
    return [Accepted(d.key) for d in call.deliveries]


def only(account: str, refusal: AnyOutcome) -> Callable[[Call], list[AnyOutcome]]:
    """This account accepts; every other one answers with the refusal."""
    return lambda call: (
        accepted(call) if call.account.name == account else [refusal] * len(call.deliveries)
    )


class Dialogue:
    """A mail server of three steps: what comes between `greeted` and the dot may take its time."""

    def __init__(self) -> None:
        self.bench: Bench | None = None
        self.between: Callable[[], None] = lambda: None
        self.sent: list[str] = []

    def __call__(self, call: Call) -> list[AnyOutcome]:
        assert call.withdrawn is not None
        self.between()
        why = call.withdrawn()
        if why:
            return [NotSent("withdrawn", why)] * len(call.deliveries)
        self.sent += [d.receiver for d in call.deliveries]
        return accepted(call)


def mail_bench(**policy: Any) -> tuple[Bench, Dialogue]:
    dialogue = Dialogue()
    bench = Bench(dialogue, {"a": 1}, endpoint="smtp://127.0.0.1:25", **policy)
    return bench, dialogue


def pass_time(bench: Bench, send_with_new_token: bool) -> None:
    """Longer than the lease was to last."""
    bench.ms += 500
    if send_with_new_token:
        bench.lease_ends = bench.ms / 1_000 + 30


def test_a_mail_is_called_for_under_the_protocols_limits() -> None:
    bench, dialogue = mail_bench()
    seen: list[Call] = []

    def answer(call: Call) -> list[AnyOutcome]:
        seen.append(call)
        return dialogue(call)

    bench._answer = answer
    bench.serve("u1")
    assert (seen[0].steps or {})["final"] == 600
    assert bench.timeouts == [1_200.0]


def test_a_mail_past_its_ttl_is_taken_back_before_the_dot() -> None:
    bench, dialogue = mail_bench()
    dialogue.between = lambda: setattr(bench, "ms", bench.ms + 2_000)
    (work,) = bench.serve("u1")
    assert (work.end, dialogue.sent) == (NotStarted(Event.TTL, "ttl_in_queue"), [])


def test_a_mail_under_way_as_the_worker_stops_is_given_back_before_the_dot() -> None:
    bench, dialogue = mail_bench()
    dialogue.between = bench.pool.stop
    (work,) = bench.serve("u1")
    assert (work.end, dialogue.sent) == (NotStarted(Event.GIVEN_BACK, "given_back"), [])


def test_a_mail_goes_under_a_lease_that_was_renewed_and_not_under_one_that_lapsed() -> None:
    for send_with_new_token, sent in ((True, ["u1"]), (False, [])):
        bench, dialogue = mail_bench()
        bench.lease_ends = bench.ms / 1_000 + 0.1
        dialogue.between = partial(pass_time, bench, send_with_new_token)
        (work,) = bench.serve("u1")
        assert dialogue.sent == sent
        lapsed = NotSent("withdrawn", "lease_lapsed")
        assert work.end == (Accepted(work.delivery.key) if send_with_new_token else lapsed)


NO_BALANCE = NotSent("no_balance", account=True)


def test_several_deliveries_share_one_call() -> None:
    bench = Bench(accepted, {"a": 1})
    works = bench.serve("u1", "u2", "u3", "u4")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("a", ["u4"])]
    assert all(isinstance(work.end, Accepted) for work in works)


def test_a_receiver_that_cannot_exist_is_rejected_and_the_others_go() -> None:
    bench = Bench(accepted, {"a": 1})
    works = bench.serve("u1", "nobody", "u3")
    assert bench.calls == [("a", ["u1", "u3"])]
    assert works[1].end == Rejected("no_such_receiver", "there is none", before_call=True)


def test_one_past_its_ttl_leaves_the_call_and_the_others_go() -> None:
    bench = Bench(accepted, {"a": 1})
    assert bench.pool.terms.batch == 3
    works = bench.serve("u1")
    assert works[0].end == Accepted(works[0].delivery.key)
    bench = Bench(accepted, {"a": 1})
    bench.ms = NOW_MS + 2_000
    works = bench.serve("u1", "u2")
    assert [work.end for work in works] == [NotStarted(Event.TTL, "ttl_in_queue")] * 2
    assert bench.calls == []


def test_a_definite_non_send_goes_through_another_account_once_that_is_on_record() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    works = bench.serve("u1", "u2")
    assert bench.calls == [("a", ["u1", "u2"]), ("b", ["u1", "u2"])]
    assert bench.rerouted == [("u1", "b"), ("u2", "b")]
    assert [work.delivery.account for work in works] == ["b", "b"]
    assert all(isinstance(work.end, Accepted) for work in works)


@pytest.mark.parametrize(
    "outcome", [Unknown("timeout"), Rejected("bad_number"), NotSent("too_fast")], ids=repr
)
def test_nothing_else_goes_through_another_account(outcome: AnyOutcome) -> None:
    bench = Bench(only("b", outcome), {"a": 1, "b": 0})
    (work,) = bench.serve("u1")
    assert (bench.calls, bench.rerouted) == ([("a", ["u1"])], [])
    assert work.end == outcome


def test_no_more_of_a_joint_call_go_through_another_account_than_its_rate_has_room_for() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, bursts={"b": 2})
    works = bench.serve("u1", "u2", "u3")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("b", ["u1", "u2"])]
    assert bench.rerouted == [("u1", "b"), ("u2", "b")]
    assert (works[2].end, works[2].delivery.account) == (NO_BALANCE, "a")


def test_no_more_of_a_joint_call_are_probes_of_another_account_than_its_breaker_lets_pass() -> None:
    breaker = BreakerPolicy(open_ms=1, probes=2)
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, breaker=breaker)
    accounts = bench.pool.terms.accounts
    accounts.record(bench.pool.terms.routes["b"].account, [NO_BALANCE])
    wait_until(lambda: accounts.states()["b"] is BreakerState.HALF_OPEN)
    bench.serve("u1", "u2", "u3")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("b", ["u1", "u2"])]


def test_a_receiver_at_its_limit_of_the_other_account_keeps_its_outcome() -> None:
    """The other account's provider would drop it without a word."""
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, bursts={"b": 3})
    bench.held["b", "u1"] = 30_000
    works = bench.serve("u1", "u2", "u3")
    assert bench.calls == [("a", ["u1", "u2", "u3"]), ("b", ["u2", "u3"])]
    assert (works[0].end, works[0].delivery.account) == (NO_BALANCE, "a")
    account = bench.pool.terms.routes["b"].account
    assert bench.pool.terms.accounts.reacquire(account, 3) == 1, "its token is another's"


def test_what_did_not_go_elsewhere_after_all_leaves_its_tokens_to_others() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, bursts={"b": 2})
    bench.stale = True
    bench.serve("u1", "u2", "u3")
    account = bench.pool.terms.routes["b"].account
    assert bench.pool.terms.accounts.reacquire(account, 3) == 2


@pytest.mark.parametrize("named", ["u1", "u2"])
def test_what_names_its_account_leaves_a_joint_call_to_no_other_and_holds_no_other_back(
    named: str,
) -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    works = bench.works("u1", "u2")
    (ours,) = (work for work in works if work.delivery.receiver == named)
    (other,) = (work for work in works if work is not ours)
    asked = ours.delivery.notification
    ours.delivery.notification = msgspec.structs.replace(asked, account="a")
    bench.run(works)
    assert bench.calls == [("a", ["u1", "u2"]), ("b", [other.delivery.receiver])]
    assert (ours.end, ours.delivery.account) == (NO_BALANCE, "a")
    assert isinstance(other.end, Accepted)


def test_what_lost_its_claim_is_not_called_again() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    bench.stale = True
    (work,) = bench.serve("u1")
    assert bench.calls == [("a", ["u1"])]
    assert work.end == NO_BALANCE


def test_what_did_not_go_elsewhere_after_all_still_names_its_own_account() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    bench.stale = True
    works = bench.serve("u1", "u2")
    assert bench.rerouted == [("u1", "b"), ("u2", "b")]
    assert [work.chosen[0].name for work in works] == ["a", "a"]
    first, second = (work.delivery for work in works)
    assert (first.account, second.account) == ("a", "a")
    assert first.call_key == second.call_key == first.key


def test_what_the_other_account_could_never_send_costs_no_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    _, adapter = bench.pool.terms.routes["b"]

    def refusal(account: Account, _: Delivery) -> str:
        return "bad_number: not from here" if account.name == "b" else ""

    monkeypatch.setattr(adapter, "refusal", refusal)
    (work,) = bench.serve("u1")
    assert (bench.calls, bench.rerouted) == ([("a", ["u1"])], [])
    assert (work.end, work.delivery.attempt) == (NO_BALANCE, 1)


def test_an_adapter_that_fails_over_it_leaves_the_outcome_and_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0})
    _, adapter = bench.pool.terms.routes["b"]

    def refusal(account: Account, _: Delivery) -> str:
        return {"a": ""}[account.name]

    monkeypatch.setattr(adapter, "refusal", refusal)
    (work,) = bench.serve("u1")
    assert (bench.calls, bench.rerouted) == ([("a", ["u1"])], [])
    assert work.end == NO_BALANCE


def test_each_account_is_tried_once() -> None:
    bench = Bench(lambda call: [NO_BALANCE] * len(call.deliveries), {"a": 1, "b": 0})
    (work,) = bench.serve("u1")
    assert bench.calls == [("a", ["u1"]), ("b", ["u1"])]
    assert work.end == NO_BALANCE


def test_another_account_is_an_attempt_like_any_other() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, retry=RetryPolicy(attempts=1))
    (work,) = bench.serve("u1")
    assert bench.calls == [("a", ["u1"])]
    assert work.end == NO_BALANCE


class Killed(BaseException):
    """What no handler of errors catches."""


def test_a_thread_that_dies_of_the_second_call_leaves_it_in_doubt() -> None:
    """What the first was answered says nothing of it."""

    def answer(call: Call) -> list[AnyOutcome]:
        if call.account.name == "b":
            raise Killed
        return [NO_BALANCE]

    bench = Bench(answer, {"a": 1, "b": 0})
    (work,) = bench.serve("u1")
    assert isinstance(work.end, Unknown)
    assert bench.pool.replaced == 1
    assert (bench.pool.busy, work.delivery.account) == (0, "b")


# ---- answers that are told later -----------------------------------------------------------------


class Asked(NamedTuple):
    """A call that was begun, and whom to tell of its answer."""

    call: Call
    tell: Callable[[Any], None]


class Pending(Bench):
    """Its calls are answered when the test says so."""

    def __init__(self, threads: int, **policy: Any) -> None:
        super().__init__(accepted, {"a": 1}, threads=threads, **{"batch": 1, **policy})
        self.under_way: SimpleQueue[Asked] = SimpleQueue()
        self.renewing: Callable[[], None] = lambda: None
        """A change while a token is renewed."""

    def begin(self, channel: Any, call: Call, timeout_s: float, done: Any) -> None:
        self.under_way.put(Asked(call, done))

    def asked(self) -> Asked:
        return self.under_way.get(timeout=10)

    def with_new_token(self, channel: Any, call: Call) -> Call:
        assert call.token == "old"
        self.renewing()
        return msgspec.structs.replace(call, token="new")

    def send_renewed(self, channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        assert call.token == "new"
        return self.send(channel, call, timeout_s)

    def put(self, *receivers: str) -> list[Work]:
        works = self.works(*receivers)
        self.pool.start()
        for call in calls_of(works, {LANE.name: self.pool}):
            self.pool.put(call)
        return works


def test_a_thread_goes_on_and_no_more_calls_are_under_way_than_the_policy_has_threads() -> None:
    bench = Pending(threads=3)
    bench.put(*map(str, range(5)))
    first = [bench.asked() for _ in range(3)]
    with pytest.raises(Empty):
        bench.under_way.get(timeout=0.1)
    assert bench.pool.busy == 3
    first[1].tell([Accepted("p")])
    fourth = bench.asked()
    ended = bench.finished.get(timeout=10)
    assert isinstance(ended, Work)
    assert ended.delivery is first[1].call.deliveries[0]
    assert bench.pool.busy == 3
    for asked in (first[0], first[2], fourth):
        asked.tell([Accepted("p")])
    bench.asked().tell([Accepted("p")])
    assert len([bench.finished.get(timeout=10) for _ in range(4)]) == 4
    bench.pool.close()


def test_fewer_threads_are_fewer_calls_as_those_under_way_end() -> None:
    bench = Pending(threads=2)
    bench.put(*map(str, range(4)))
    first = [bench.asked() for _ in range(2)]
    terms = bench.pool.terms
    fewer = msgspec.structs.replace(terms.policy, threads=1)
    bench.pool.adopt(LaneConfig("v2", fewer, terms.routes, terms.accounts))
    first[0].tell([Accepted("p")])
    with pytest.raises(Empty):
        bench.under_way.get(timeout=0.1)
    first[1].tell([Accepted("p")])
    bench.asked().tell([Accepted("p")])
    bench.asked().tell([Accepted("p")])
    assert len([bench.finished.get(timeout=10) for _ in range(4)]) == 4
    bench.pool.close()


def test_a_refused_token_is_renewed_by_a_thread_that_may_wait() -> None:
    bench = Pending(threads=1)
    (work,) = bench.put("u1")
    asked = bench.asked()
    asked.tell(TokenRejected(msgspec.structs.replace(asked.call, token="old")))
    assert bench.finished.get(timeout=10) is work
    assert work.end == Accepted(work.delivery.key)
    assert bench.pool.busy == 0
    bench.pool.close()


def token_refused(bench: Pending) -> None:
    asked = bench.asked()
    asked.tell(TokenRejected(msgspec.structs.replace(asked.call, token="old")))


@pytest.mark.parametrize("waits", [False, True], ids=["in_the_queue", "for_the_token"])
@pytest.mark.parametrize(
    ("meanwhile", "end"),
    [
        (
            lambda bench: setattr(bench, "ms", bench.ms + 61_000),
            NotStarted(Event.TTL, "ttl_in_queue"),
        ),
        (lambda bench: bench.pool.pause(True), NotStarted(Event.SHUT, "lane_paused")),
        (lambda bench: bench.pool.stop(), NotStarted(Event.GIVEN_BACK, "given_back")),
    ],
    ids=["past_its_ttl", "paused", "stopping"],
)
def test_a_call_whose_token_was_refused_is_repeated_only_while_its_delivery_may_start(
    meanwhile: Callable[[Bench], None], end: NotStarted, waits: bool
) -> None:
    bench = Pending(threads=1)
    (work,) = bench.put("u1")
    if waits:
        bench.renewing = partial(meanwhile, bench)
        token_refused(bench)
    else:
        asked = bench.asked()
        meanwhile(bench)
        asked.tell(TokenRejected(msgspec.structs.replace(asked.call, token="old")))
    assert bench.finished.get(timeout=10) is work
    assert (work.end, bench.calls, bench.pool.busy) == (end, [], 0)
    bench.pool.close()


def test_one_past_its_ttl_leaves_a_call_whose_token_was_refused_and_the_others_go() -> None:
    bench = Pending(threads=1, batch=3)
    first, second = bench.put("u1", "u2")
    bench.renewing = lambda: setattr(first.delivery, "expires_at", NOW_MS)
    token_refused(bench)
    assert [bench.finished.get(timeout=10) for _ in range(2)] == [first, second]
    assert first.end == NotStarted(Event.TTL, "ttl_in_queue")
    assert second.end == Accepted(second.delivery.key)
    assert bench.calls == [("a", ["u2"])]
    bench.pool.close()


def test_an_answer_that_nobody_can_note_leaves_its_call_in_doubt_and_the_lane_at_work() -> None:
    bench = Pending(threads=1)
    first, second = bench.put("u1", "u2")
    bench.asked().tell([])  # one delivery, and no outcome for it
    assert bench.finished.get(timeout=10) is first
    assert isinstance(first.end, Unknown)
    bench.asked().tell([Accepted("p")])
    assert bench.finished.get(timeout=10) is second
    assert second.end == Accepted("p")
    bench.pool.close()


def test_the_thread_that_reads_answers_makes_no_call() -> None:
    """It would hold up everybody's: what goes elsewhere is a lane's thread's to begin."""
    bench = Pending(threads=1)
    (work,) = bench.put("u1")
    callers: list[str] = []

    def elsewhere(works: Sequence[Work], begun_at: float) -> None:
        callers.append(threading.current_thread().name)

    bench.pool._again.follow = elsewhere  # type: ignore[method-assign]
    bench.asked().tell([NO_BALANCE])
    assert bench.finished.get(timeout=10) is work
    assert callers == [f"{LANE.name}-0"]
    bench.pool.close()


def test_what_cannot_be_called_again_costs_no_other_thread() -> None:
    bench = Pending(threads=1)
    (work,) = bench.put("u1")
    bench.pool._again.follow = None  # type: ignore[method-assign, assignment]
    bench.asked().tell([Unknown("timeout")])
    assert bench.finished.get_nowait() is work, "noted by whoever told it"
    bench.pool.close()


# -- refusals that only pace, and accounts that are shut --

SLOWER = NotSent("http_429", retry_after_ms=1_000, limit=Limit.ACCOUNT)


def test_what_waits_in_the_queue_of_an_account_that_is_shut_goes_back_without_a_call() -> None:
    bench = Bench(lambda call: [SLOWER], {"a": 1}, batch=1)
    first, *behind = bench.serve("x", "y", "z")
    assert (first.end, first.delivery.refusals) == (SLOWER, 1)
    ends = [work.end for work in behind if isinstance(work.end, NotStarted)]
    assert [(end.event, end.reason) for end in ends] == [(Event.SHUT, "account_shut")] * 2
    assert all(end.delay_ms > 0 for end in ends)
    assert len(bench.calls) == 1


def test_what_waits_for_an_account_whose_breaker_opened_is_due_at_once_for_another() -> None:
    bench = Bench(only("b", NO_BALANCE), {"a": 1, "b": 0}, batch=1)
    first, second = bench.serve("x", "y")
    assert isinstance(first.end, Accepted)
    assert second.end == NotStarted(Event.SHUT, "account_shut")
    assert bench.calls == [("a", ["x"]), ("b", ["x"])]


def test_what_waits_in_the_queue_of_a_paused_lane_goes_back_without_a_call() -> None:
    bench = Bench(accepted, {"a": 1}, batch=1)
    bench.pool.pause(True)
    works = bench.serve("x", "y")
    assert [work.end for work in works] == [NotStarted(Event.SHUT, "lane_paused")] * 2
    assert bench.calls == []


def test_no_call_follows_at_once_in_a_lane_that_was_paused_meanwhile() -> None:
    def refuse(call: Call) -> list[AnyOutcome]:
        bench.pool.pause(True)
        return [NotSent("busy")]

    bench = Bench(refuse, {"a": 1, "b": 1}, batch=1, retry=RetryPolicy(immediate=3))
    (work,) = bench.serve("x")
    assert (work.end, len(bench.calls)) == (NotSent("busy"), 1)


def test_a_mail_under_way_as_its_lane_is_paused_is_taken_back_before_the_dot() -> None:
    bench, dialogue = mail_bench()
    dialogue.between = lambda: bench.pool.pause(True)
    (work,) = bench.serve("u1")
    assert (work.end, dialogue.sent) == (NotStarted(Event.SHUT, "lane_paused"), [])


def test_without_a_ledger_a_claimed_delivery_waits_out_the_pause() -> None:
    bench = Bench(accepted, {"a": 1}, batch=1, guarantee=Guarantee.BEST_EFFORT)
    bench.pool.pause(True)
    (work,) = bench.works("x")
    bench.pool.start()
    bench.pool.put([work])
    with pytest.raises(Empty):
        bench.finished.get(timeout=0.3)
    assert bench.calls == []
    bench.pool.pause(False)
    assert bench.finished.get(timeout=10) is work
    bench.pool.close()
    assert isinstance(work.end, Accepted)


def test_without_a_ledger_a_worker_that_ends_in_a_pause_sends_nothing() -> None:
    bench = Bench(accepted, {"a": 1}, batch=1, guarantee=Guarantee.BEST_EFFORT)
    bench.pool.pause(True)
    (work,) = bench.works("x")
    bench.pool.start()
    bench.pool.put([work])
    bench.pool.stop()
    assert bench.finished.get(timeout=10) is work
    bench.pool.close()
    assert (work.end, bench.calls) == (NotStarted(Event.NOT_SENT, "lane_paused"), [])


def test_a_call_that_follows_at_once_counts_as_a_repeat() -> None:
    bench = Bench(lambda call: [NotSent("busy")], {"a": 1}, batch=1, retry=RetryPolicy(immediate=1))
    (work,) = bench.serve("x")
    assert (work.delivery.attempt, work.delivery.repeats, work.delivery.waits) == (2, 1, 1)


def test_what_waits_in_the_queue_of_an_account_that_a_person_paused_goes_back_without_a_call() -> (
    None
):
    bench = Bench(accepted, {"a": 1}, batch=1)
    works = bench.works("x", "y")
    bench.pool.terms.accounts._held.hold(frozenset({"a"}))
    for call in calls_of(works, {LANE.name: bench.pool}):
        bench.pool.put(call)
    bench.pool.start()
    for _ in works:
        bench.finished.get(timeout=10)
    bench.pool.close()
    ends = [work.end for work in works if isinstance(work.end, NotStarted)]
    assert [(end.event, end.reason) for end in ends] == [(Event.SHUT, "account_shut")] * 2
    assert all(end.delay_ms > 0 for end in ends), "no other account may send it now"
    assert bench.calls == []
