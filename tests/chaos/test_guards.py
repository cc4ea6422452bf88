"""Guards of the stages between claim and commit, one by one on stand-ins: what `make mutation` switches
off, where no other quick test would notice. The same promises on whole workers: tests/integration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from channels.channel import Account, Call, Channel
from channels.providers.webhook.adapter import WebhookChannel
from dispatcher.kafka.backpressure import Backpressure
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.claims import LedgerClaims
from dispatcher.pipeline.completion import CompletionStage
from dispatcher.pipeline.intake import Intake
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.lanes import LanePool
from dispatcher.pipeline.settle import Settle
from dispatcher.pipeline.work import GIVEN_UP, Assignment, Finished, KafkaRecord, Work
from idempotency.ledger import (
    Claim,
    Claimed,
    Lease,
    LedgerUnavailable,
    Settlement,
    WorkerInfo,
)
from message.delivery import deliveries_of
from message.outcomes import Accepted, AnyOutcome, Unknown
from message.states import Event, State, after
from policy.schema import LanePolicy
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.endings import NotStarted
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.runtime.lease import WorkerLease
from sending.runtime.outage import Outage
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, AtOnce, no_limits, notification, routed
from tests.idempotency.making import World, claimed, claims, delivery, settle

TTL_MS = 60_000
LEASE_S = 10.0


class Bench(AtOnce):
    """Every stage's surroundings: all calls are noted in `calls`, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.time = NOW_MS / 1_000
        self.away = False
        self.written = True
        self.answer = Claimed(True, State.IN_FLIGHT)
        self.may_send = True
        self.outcome: AnyOutcome | BaseException = Accepted("p")
        self.claimed: list[Claim] = []
        self.settled: list[Settlement] = []
        self.swept = 0
        self.lease_ends = 123.0
        self.lease_holds = True
        self.not_after: list[float] = []
        self.clock = Clock(lambda: self.time, lambda: self.time)
        self.outage = Outage()
        self.outage.stop.set()  # nobody waits for a database here
        self.finished: SimpleQueue[Finished] = SimpleQueue()
        self.report: Any = SimpleNamespace(
            claimed=lambda *_: None,
            settled=lambda *_: None,
            ended=lambda *_: None,
        )
        self.pool = self._pool()
        self.gate = self._gate()

    # -- what stages ask of their surroundings --

    def lookup(self, keys: Sequence[str]) -> list[bytes | None]:
        return [None] * len(keys)

    def mark(self, marks: Sequence[tuple[str, bytes]]) -> None:
        self.calls.append(f"redis {len(marks)}")

    def claim(self, claims: Sequence[Claim], _owner: str, **_: bool) -> list[Claimed]:
        self._reach()
        self.calls.append("claim")
        self.claimed += claims
        return [self.answer] * len(claims)

    def settle(
        self, settlements: Sequence[Settlement], _ordered: frozenset[str] = frozenset()
    ) -> list[bool]:
        self._reach()
        self.calls.append("ledger")
        self.settled += settlements
        return [self.written] * len(settlements)

    def settle_and_claim(
        self, settlements: Sequence[Settlement], claims: Sequence[Claim], owner: str, *_: object
    ) -> tuple[list[bool], list[Claimed]]:
        return self.settle(settlements), self.claim(claims, owner)

    def send(self, _channel: Channel, call: Call, _timeout_s: float) -> list[AnyOutcome]:
        self.calls.append("send")
        self.not_after.append(call.not_after)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return [self.outcome] * len(call.deliveries)

    def ends_at(self, _term: int) -> float:
        return self.lease_ends

    def wait_valid(self, _term: int, _until: Callable[[], bool]) -> bool:
        return self.may_send

    def register(self, worker: WorkerInfo) -> Lease:
        self._reach()
        return Lease(worker.id, 1, int(self.time * 1_000))

    def heartbeat(self, lease: Lease, _state: str, _snapshot: str = "") -> Lease:
        self._reach()
        return lease

    def sweep(self) -> list[tuple[str, int]]:
        self.swept += 1
        return []

    def _reach(self) -> None:
        if self.away:
            raise LedgerUnavailable("away")

    # -- stages --

    def _pool(self) -> LanePool:
        account = Account("demo", "webhook", "http://127.0.0.1:9")
        policy = LanePolicy(threads=1)
        routes: dict[str, Route] = {"demo": Route(account, WebhookChannel())}
        return LanePool(
            LANE,
            LaneConfig(
                "",
                policy,
                routes,
                AccountSelector(
                    LANE, policy, [account], RateLimiter([account], None, workers=lambda _: 1)
                ),
            ),
            self,
            permit=self,
            clock=self.clock,
            finished=self.finished,
            reroute=lambda deliveries: [True] * len(deliveries),
            delays=no_limits,
        )

    def _gate(self) -> LedgerClaims:
        contract: Any = self
        count: Any = SimpleNamespace(claimed=lambda *_: None, prefilter_hits=lambda _: None)
        return LedgerClaims(
            contract,
            contract,
            owner="w",
            outage=self.outage,
            clock=self.clock,
            count=count,
            term=lambda: 1,
            lease_holds=lambda: self.lease_holds,
        )

    def intake(self) -> Intake:
        return Intake(
            {LANE.name: self.pool},
            self.gate,
            report=self.report,
            clock=self.clock,
            finished=self.finished,
        )

    def settling(self) -> Settle:
        contract: Any = self
        pools = {LANE.name: self.pool}
        completion = CompletionStage(
            pools,
            contract,
            report=self.report,
            clock=self.clock,
            on_records=lambda records: self.calls.append(f"source {len(records)}"),
        )
        return Settle(
            pools,
            contract,
            outage=self.outage,
            report=self.report,
            clock=self.clock,
            finished=self.finished,
            on_settled=completion.follow,
            on_room=lambda: self.calls.append("room"),
        )

    def lease(self) -> WorkerLease:
        contract: Any = self
        info = WorkerInfo("w", "host", 1, [], 1, int(LEASE_S * 1_000))
        lease = WorkerLease(contract, info, clock=self.clock, interval_s=1.0)
        lease.register()
        return lease

    # -- what goes through them --

    def work(self, number: int = 0) -> Work:
        one = notification(number)
        record = KafkaRecord(
            Assignment(TOPIC, 0, LANE, Offsets()), number, one, b"{}", NOW_MS, None
        )
        record.open_deliveries = 1
        (delivery,) = deliveries_of(one, b"{}", expires_at=NOW_MS + TTL_MS)
        work = Work(delivery, record, term=1)
        work.route = routed(work, self.pool)
        return work

    def serve(self, work: Work) -> Work:
        """One delivery through a lane's thread."""
        self.pool.start()
        self.pool.put([work])
        ended = self.finished.get(timeout=10)
        assert isinstance(ended, Work)
        return ended

    def pass_ttl(self) -> None:
        self.time += TTL_MS / 1_000


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.pool.close()


# -- lanes --


def test_what_may_be_sent_is_sent(bench: Bench) -> None:
    assert bench.serve(bench.work()).end == Accepted("p")


def test_nothing_is_sent_past_its_ttl_in_the_lanes_queue(bench: Bench) -> None:
    bench.pass_ttl()
    ended = bench.serve(bench.work())
    assert (ended.end, bench.calls) == (NotStarted(Event.TTL, "ttl_in_queue"), [])


def test_nothing_is_sent_without_a_lease(bench: Bench) -> None:
    bench.may_send = False
    ended = bench.serve(bench.work())
    assert (ended.end, bench.calls) == (NotStarted(Event.NOT_SENT, "lease_lapsed"), [])


def test_a_call_carries_the_end_of_the_lease_it_is_made_under(bench: Bench) -> None:
    bench.serve(bench.work())
    assert bench.not_after == [bench.lease_ends]


def test_a_worker_that_slept_past_its_lease_claims_nothing(bench: Bench) -> None:
    bench.lease_holds = False
    bench.outage.stop.set()
    with pytest.raises(LedgerUnavailable, match="the lease lapsed"):
        bench.gate.admit([bench.work()])
    assert bench.claimed == []
    bench.lease_holds = True
    bench.gate.admit([bench.work()])
    assert len(bench.claimed) == 1


def test_a_lane_that_stops_gives_back_what_it_has_not_begun(bench: Bench) -> None:
    bench.pool.stop()
    ended = bench.serve(bench.work())
    assert (ended.end, bench.calls) == (NotStarted(Event.GIVEN_BACK, "given_back"), [])


def test_a_lane_thread_that_dies_leaves_its_delivery_in_doubt_and_is_replaced(
    bench: Bench,
) -> None:
    bench.outcome = KeyboardInterrupt("not an error that anybody handles")
    assert isinstance(bench.serve(bench.work()).end, Unknown)
    bench.outcome = Accepted("p")
    assert bench.serve(bench.work(1)).end == Accepted("p")


# -- intake and its gate --


def test_nothing_is_handed_to_a_lane_before_its_claim_is_durable(bench: Bench) -> None:
    bench.away = True
    bench.pool.start()
    intake = bench.intake()
    intake.offer([bench.work()])
    intake.run_once()
    ended = bench.finished.get(timeout=10)
    assert isinstance(ended, Work)
    assert ended.end == GIVEN_UP
    with pytest.raises(Empty):  # a thread that had it would hand it on, too
        bench.finished.get(timeout=0.5)
    assert bench.calls == []


def test_a_claim_that_the_ledger_did_not_answer_is_not_won(bench: Bench) -> None:
    bench.away = True
    with pytest.raises(LedgerUnavailable):
        bench.gate.admit([bench.work()])


@pytest.mark.parametrize(
    "answer",
    [
        Claimed(False, State.SENT),
        Claimed(False, State.IN_FLIGHT),
        Claimed(False, State.UNKNOWN),
        Claimed(True, State.RETRY),
    ],
)
def test_what_is_not_ours_to_send_does_not_reach_a_lane(bench: Bench, answer: Claimed) -> None:
    bench.answer = answer
    to_send, ended = bench.gate.admit([bench.work()])
    assert (len(to_send), len(ended)) == (0, 1)


def test_what_is_past_its_ttl_at_intake_is_entered_as_expired(bench: Bench) -> None:
    bench.pass_ttl()
    bench.answer = Claimed(True, State.EXPIRED)
    to_send, _ = bench.gate.admit([bench.work()])
    assert (to_send, [c.event for c in bench.claimed]) == ([], [Event.TTL_AT_INTAKE])


# -- ledger --


ENDS = [Event.UNKNOWN, Event.REJECTED, Event.ACCEPTED, Event.BUDGET_SPENT, Event.NOT_SENT]


def claim_again(url: str) -> None:
    world = World(url)
    ledger = world.open()
    for outcome in ENDS:
        (mine,) = claimed(ledger, delivery())
        assert settle(ledger, mine, outcome, reason="why")
        (answer,) = ledger.claim(claims([mine]), "w2")
        assert (answer.won, answer.state) == (False, after(State.IN_FLIGHT, outcome))
    world.close()


def test_what_is_in_doubt_or_ended_is_never_claimed_again(sqlite_database: str) -> None:
    claim_again(sqlite_database)


def test_what_is_in_doubt_or_ended_is_never_claimed_again_on_postgresql(database: str) -> None:
    claim_again(database)


# -- settle --


def done(bench: Bench, **changes: Any) -> Work:
    work = bench.work()
    work.end = Accepted("p")
    for name, value in changes.items():
        setattr(work, name, value)
    return work


def test_the_ledger_comes_first_then_room_then_redis_then_the_source(bench: Bench) -> None:
    bench.settling().settle([done(bench)])
    assert bench.calls == ["ledger", "room", "redis 1", "source 1"]


def test_redis_is_told_nothing_that_the_ledger_has_not_settled(bench: Bench) -> None:
    bench.settling().settle([done(bench, end=Unknown("timeout"))])
    assert bench.calls == ["ledger", "room", "source 1"]


def test_a_fenced_outcome_marks_nothing(bench: Bench) -> None:
    bench.written = False
    bench.settling().settle([done(bench)])
    assert bench.calls == ["ledger", "room", "source 1"]


def test_an_outcome_that_could_not_be_written_keeps_its_offset(bench: Bench) -> None:
    bench.away = True
    work = done(bench)
    bench.settling().settle([work])
    assert work.record.given_back
    assert bench.calls == ["room", "source 1"]


def test_what_was_given_back_keeps_its_offset(bench: Bench) -> None:
    work = done(bench, end=NotStarted(Event.GIVEN_BACK, "given_back"))
    bench.settling().settle([work])
    assert work.record.given_back


def test_what_was_never_claimed_keeps_its_offset(bench: Bench) -> None:
    work = done(bench, end=GIVEN_UP)
    bench.settling().settle([work])
    assert work.record.given_back
    assert bench.settled == []


def test_a_record_is_done_with_its_last_delivery_and_not_before(bench: Bench) -> None:
    first, second = done(bench), done(bench)
    second.record = first.record
    first.record.open_deliveries = 2
    settle = bench.settling()
    settle.settle([first])
    assert "source 1" not in bench.calls
    settle.settle([second])
    assert "source 1" in bench.calls


# -- lease --


def test_nobody_is_called_dead_right_after_an_outage(bench: Bench) -> None:
    lease = bench.lease()
    bench.time += LEASE_S
    lease.beat()
    assert bench.swept == 1
    bench.away = True
    lease.beat()
    bench.away = False
    lease.beat()
    assert bench.swept == 1, "their heartbeats are as old as the outage is long"
    bench.time += LEASE_S
    lease.beat()
    assert bench.swept == 2


# -- bounds --


def test_a_lane_claims_no_more_than_it_has_room_for(bench: Bench) -> None:
    intake = bench.intake()
    intake.offer([bench.work(number) for number in range(10)])
    intake.run_once()
    assert len(bench.claimed) == 2, "one thread, and as many waiting"


def test_a_lane_that_holds_its_limit_wants_to_pause() -> None:
    flow = Backpressure({LANE: 2}, 1 << 20)
    flow[LANE].add(1)
    assert not flow.changes(frozenset())
    flow[LANE].add(1)
    assert [f.paused for f in flow.changes(frozenset())] == [True]
