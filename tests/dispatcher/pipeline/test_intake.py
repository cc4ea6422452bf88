"""The screen and intake: what is looked up ahead, what is claimed when, what is given up."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from channels.channel import Account
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.expand import ExpandStage
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.work import (
    GIVEN_UP,
    Assignment,
    Drop,
    Finished,
    KafkaRecord,
    Park,
    PartitionState,
    Send,
    Work,
)
from message.delivery import Delivery, Rendered
from message.envelope import Notification, Template
from policy.schema import LanePolicy
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.template_renderer import TemplateRejected
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, no_limits, notification


class Batching:
    """A channel that takes ten deliveries a call."""

    provider = "batching"
    max_batch = 10
    takes_anything = False
    dedup_window_ms = 0

    def batch_key(self, delivery: Delivery) -> Hashable:
        return None

    def batch_limit(self, delivery: Delivery) -> int:
        return self.max_batch

    def refusal(self, account: Account, delivery: Delivery) -> str:
        return ""


class Bench:
    """A screen and an intake with all around them faked; `time` is moved by hand."""

    def __init__(self, policy: LanePolicy, accounts: Sequence[Account], render: Any = None) -> None:
        self.time = NOW_MS / 1_000
        self.screened: list[int] = []
        self.admitted: list[int] = []
        self.known: set[str] = set()
        self.dropped: list[KafkaRecord] = []
        self.assignment = Assignment(TOPIC, 0, LANE, Offsets())
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        clock = Clock(lambda: self.time, lambda: self.time)
        adapter: Any = Batching()
        routes: dict[str, Route] = {account.name: Route(account, adapter) for account in accounts}
        chooser = AccountSelector(
            LANE,
            policy,
            accounts,
            RateLimiter(accounts, None, workers=lambda _: 1, monotonic=lambda: self.time),
            monotonic=lambda: self.time,
        )
        contract: Any = None
        gate: Any = SimpleNamespace(screen=self.screen_, admit=self.admit)
        self.pool = LanePool(
            LANE,
            LaneConfig("v1", policy, routes, chooser),
            contract,
            permit=contract,
            clock=clock,
            finished=self.finished,
            reroute=lambda deliveries: [True] * len(deliveries),
            delays=no_limits,
        )
        self.calls: list[list[Work]] = []
        self.pool.put = lambda call: self.calls.append(list(call))  # type: ignore[method-assign]
        report: Any = SimpleNamespace(claimed=lambda _: None)
        pools = {LANE.name: self.pool}
        self.intake = Intake(pools, gate, report=report, clock=clock, finished=self.finished)
        self.screen = ExpandStage(
            pools,
            gate,
            self.intake,
            clock=clock,
            finished=self.finished,
            on_dropped=self.dropped.extend,
            render=render or (lambda _: None),
        )

    # -- the gate --

    def screen_(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        self.screened.append(len(works))
        known = [work for work in works if work.delivery.receiver in self.known]
        return [work for work in works if work not in known], known

    def admit(self, works: Sequence[Work]) -> tuple[list[Work], list[Work]]:
        self.admitted.append(len(works))
        dropped = [work for work in works if isinstance(work.intent, Drop | Park)]
        return [work for work in works if work not in dropped], dropped

    # -- driving --

    def records(self, count: int, **changes: Any) -> list[KafkaRecord]:
        made = []
        for number in range(count):
            one = msgspec.structs.replace(
                notification(number), receivers=[f"user-{number}"], **changes
            )
            made.append(KafkaRecord(self.assignment, number, one, b"{}", NOW_MS, None))
        return made

    def turn(self, records: Sequence[KafkaRecord] = ()) -> None:
        """Hand records over and let both stages go round once."""
        if records:
            self.screen.put(list(records))
        else:
            self.screen.wanted()
        self.screen.run_once()
        self.intake.room_made()
        self.intake.run_once()

    @property
    def given_up(self) -> list[Work]:
        found = []
        try:
            while True:
                item = self.finished.get_nowait()
                if isinstance(item, Work) and item.end == GIVEN_UP:
                    found.append(item)
        except Empty:
            return found


def bench(*accounts: Account, render: Any = None, **policy: Any) -> Bench:
    return Bench(LanePolicy(**{"threads": 2, "linger_ms": 0} | policy), accounts, render)


ONE = Account("a", "p", "http://127.0.0.1:9")


def test_what_is_screened_is_at_most_two_lane_fulls_ahead() -> None:
    one = bench(ONE, batch=1)
    one.screen.put(one.records(100))
    one.screen.run_once()
    assert sum(one.screened) == 2 * one.pool.capacity == 8
    assert one.intake.waiting(LANE.name) == 8


def test_the_screen_is_called_when_one_lane_full_is_left() -> None:
    one = bench(ONE, batch=1)
    called: list[int] = []
    one.intake.on_taken = lambda: called.append(one.intake.waiting(LANE.name))
    one.screen.put(one.records(100))
    one.screen.run_once()
    one.pool.claimed_count = one.pool.capacity - 1
    assert len(one.intake.take()) == 1
    assert called == []
    one.pool.settled_count = one.pool.claimed_count
    assert len(one.intake.take()) == 4
    assert called == [3]


def test_no_more_is_claimed_than_the_lane_has_room_for() -> None:
    one = bench(ONE, batch=1)
    one.turn(one.records(100))
    one.turn()
    assert one.pool.unsettled == sum(one.admitted) == 4


def test_a_claim_ends_at_its_bytes_and_the_rest_follows() -> None:
    one = bench(ONE, batch=1, threads=20)
    records = one.records(20)
    for record in records:
        record.payload = bytes(1 << 20)
    one.turn(records)
    assert one.admitted == [8, 8, 4]
    assert one.pool.unsettled == 20


def test_the_receivers_of_one_notification_count_its_bytes_once() -> None:
    one = bench(ONE, batch=1, threads=20)
    (record,) = one.records(1)
    record.payload = bytes(1 << 20)
    names = [f"user-{number}" for number in range(20)]
    record.notification = msgspec.structs.replace(record.notification, receivers=names)
    one.turn([record])
    assert one.admitted == [20]


def test_one_envelope_above_the_bytes_of_a_claim_is_claimed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dispatcher.pipeline.intake.CLAIM_BYTES", 1)
    one = bench(ONE, batch=1)
    one.turn(one.records(3))
    assert one.admitted == [1, 1, 1]


def test_a_paused_lane_claims_nothing_and_goes_on_where_it_was() -> None:
    one = bench(ONE, batch=1)
    one.pool.pause(True)
    one.turn(one.records(3))
    one.turn()
    assert (one.admitted, one.intake.take({LANE.name: 5})) == ([], [])
    assert one.intake.waiting(LANE.name) == 3
    one.pool.pause(False)
    one.turn()
    assert one.admitted == [3]


def test_deliveries_that_come_together_share_a_call() -> None:
    one = bench(ONE)
    one.turn(one.records(25))
    assert [len(call) for call in one.calls] == [10, 10, 5]
    assert {work.delivery.account for call in one.calls for work in call} == {"a"}


def test_a_lane_waits_a_moment_to_fill_its_call_and_not_longer() -> None:
    one = bench(ONE, linger_ms=20)
    one.turn(one.records(3))
    assert one.calls == []
    one.time += 0.021
    one.turn()
    assert [len(call) for call in one.calls] == [3]


def test_a_full_call_does_not_wait() -> None:
    one = bench(ONE, linger_ms=1_000)
    one.turn(one.records(10))
    assert [len(call) for call in one.calls] == [10]


def test_what_redis_knows_is_not_claimed() -> None:
    one = bench(ONE)
    one.known = {"user-1"}
    one.turn(one.records(3))
    assert [[work.delivery.receiver for work in call] for call in one.calls] == [
        ["user-0", "user-2"]
    ]


def test_what_was_screened_of_a_leaving_partition_is_given_up_without_room() -> None:
    one = bench(ONE, batch=1)
    one.turn(one.records(20))
    one.turn()
    assert one.intake.waiting(LANE.name) == 8
    one.assignment.state = PartitionState.REVOKING
    one.screen.leaving()
    one.intake.run_once()
    assert len(one.given_up) == 8
    assert one.intake.waiting(LANE.name) == 0


def test_a_begun_record_of_a_leaving_partition_is_given_up_whole_without_room() -> None:
    one = bench(ONE, batch=1)
    stays = Assignment(TOPIC, 1, LANE, Offsets())
    others = one.records(7)
    for record in others:
        record.assignment = stays
    (long,) = one.records(1)
    names = [f"user-{number}" for number in range(100)]
    long.notification = msgspec.structs.replace(long.notification, receivers=names)
    one.pool.claimed_count = one.pool.capacity  # its provider is slow
    one.turn([*others, long])
    assert one.intake.waiting(LANE.name) == 8
    one.assignment.state = PartitionState.REVOKING
    one.screen.leaving()
    one.screen.run_once()
    one.intake.run_once()
    given_up = one.given_up
    assert {work.record for work in given_up} == {long}
    assert len(given_up) == 100, "the revoke waits for them"
    assert one.intake.waiting(LANE.name) == 7


def test_one_that_names_an_account_without_room_holds_up_nobody_else() -> None:
    slow = Account("slow", "p", "http://127.0.0.1:9", rate_per_s=0.001, burst=1)
    one = bench(ONE, slow, accounts={"a": 1, "slow": 0}, batch=1)
    records = one.records(4)
    for record in records[:2]:
        record.notification = msgspec.structs.replace(record.notification, account="slow")
    one.turn(records)
    sent = [work.delivery.receiver for call in one.calls for work in call]
    assert sent == ["user-0", "user-2", "user-3"]
    assert one.intake.waiting(LANE.name) == 1


def test_an_account_that_may_not_send_is_asked_once_a_round_and_not_again_before_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Account("slow", "p", "http://127.0.0.1:9", rate_per_s=1, burst=1)
    one = bench(ONE, slow, accounts={"a": 1, "slow": 0}, batch=1)
    asked: list[str | None] = []
    choose = one.pool.terms.accounts.choose

    def noted(delivery: Delivery, refuses: Any = None) -> Account | None:
        asked.append(delivery.notification.account)
        return choose(delivery, refuses)

    monkeypatch.setattr(one.pool.terms.accounts, "choose", noted)
    one.turn(one.records(4, account="slow"))
    assert asked == ["slow"] * 3, "the one that went; then, in each of two looks, one for all"
    assert one.intake.waiting(LANE.name) == 3
    assert one.intake._pause_s > 0.4, "the other account of the lane has room, and is no help"


def test_a_policy_that_drops_an_account_meanwhile_does_not_end_intake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = Account("gone", "p", "http://127.0.0.1:9", rate_per_s=1, burst=1)
    one = bench(ONE, gone, accounts={"a": 1, "gone": 0}, batch=1)
    without = bench(ONE, accounts={"a": 1}, batch=1).pool.terms
    choose = one.pool.terms.accounts.choose

    def overtaken(delivery: Delivery, refuses: Any = None) -> Account | None:
        """Finds no room; then the policy's thread adopts the next version."""
        if (found := choose(delivery, refuses)) is None:
            one.pool.adopt(without)
        return found

    monkeypatch.setattr(one.pool.terms.accounts, "choose", overtaken)
    one.turn(one.records(3, account="gone"))
    one.turn()
    intents = [type(w.intent) for call in one.calls for w in call]
    assert (one.admitted, intents) == ([1, 2], [Send])
    assert one.intake.waiting(LANE.name) == 0, "the next look parked those that only it may send"


def test_one_whose_template_leaves_it_a_shut_account_holds_up_nobody_else() -> None:
    slow = Account("slow", "q", "http://127.0.0.1:9", rate_per_s=1, burst=1)
    made = Rendered(providers={"p": Rendered(), "q": Rendered(content={"text": "1"})})
    one = bench(ONE, slow, accounts={"a": 1, "slow": 0}, batch=1, render=lambda _: made)
    records = one.records(4)
    for record in records[:2]:
        record.notification = msgspec.structs.replace(
            record.notification, template=Template("t"), content=None
        )
    one.turn(records)
    sent = [(w.delivery.receiver, w.delivery.account) for call in one.calls for w in call]
    assert sent == [("user-0", "slow"), ("user-2", "a"), ("user-3", "a")]
    assert one.intake.waiting(LANE.name) == 1
    assert one.intake._pause_s > 0.4, "the other account of the lane has room, and is no help"


def test_stopping_gives_up_what_is_not_claimed() -> None:
    one = bench(ONE, batch=1)
    one.screen.put(one.records(20))
    one.screen.run_once()
    one.intake.stop()
    one.screen.stop()
    one.screen.run()
    one.intake.close()
    one.intake.run()
    assert len(one.given_up) == 8
    assert one.admitted == []


@pytest.mark.parametrize("broken", [False, True])
def test_a_template_is_rendered_before_the_claim_or_parks_its_deliveries(broken: bool) -> None:
    def render(_: Notification) -> Rendered:
        if broken:
            raise TemplateRejected("variable_missing: code")
        return Rendered(content={"text": "4711"})

    one = bench(ONE, render=render)
    one.turn(one.records(2, template=Template("t"), content=None))
    assert one.admitted == [2]
    if broken:
        assert one.calls == []
    else:
        assert [work.delivery.content for call in one.calls for work in call] == [
            {"text": "4711"}
        ] * 2


def test_intake_is_woken_by_what_may_be_claimed_and_by_nothing_else() -> None:
    one = bench(ONE, batch=1)
    awake = one.intake._wake
    one.intake.room_made()
    assert not awake.is_set(), "there is room, and nothing to claim"
    one.turn(one.records(4))
    assert one.pool.room == 0
    awake.clear()
    one.screen.put(one.records(4))
    one.screen.run_once()
    assert one.intake.waiting(LANE.name) == 4
    assert not awake.is_set(), "there is something to claim, and no room"
    one.pool.settled_count += 1
    one.intake.room_made()
    assert awake.is_set()
    awake.clear()
    one.intake.stop()
    awake.clear()
    one.intake.offer([])
    assert awake.is_set(), "what is offered to one that stops is to be given up"
