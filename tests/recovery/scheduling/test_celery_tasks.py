"""DingTalk's work notices, from the acceptance of a task to each member's own result.

Ledger, resolver and adapter are real, the provider is its simulator."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from channels.channel import Account, Call
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.registry import PROVIDERS
from message.delivery import Delivery
from message.outcomes import Accepted
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy, RetryPolicy
from recovery.alerts import Alerts
from recovery.retry.retry_lane import RetryLane
from recovery.telemetry import RecoveryMetrics, RecoveryTelemetry
from recovery.unknown.resolver import Resolving
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.settlement import after_call
from simulator import Faults, Simulator, SimulatorOptions
from tests.conformance.samples import sample
from tests.harness.simulators import spawn
from tests.idempotency.making import World, claimed, deliveries, worker
from tests.recovery.retry.test_stage import Standing, Told

LANE = Lane("dingtalk", "notice")
HOUR_MS = 3_600_000


class Office:
    """One application, its lane's ledger, and the resolver."""

    def __init__(self, world: World, simulator: Simulator, guarantee: Guarantee) -> None:
        self.world, self.simulator = world, simulator
        self.ledger = world.open()
        self.ledger.register(worker("r1"))
        self.rows = self.ledger.recovering()
        self.channel = PROVIDERS["dingtalk"]
        of = sample("dingtalk")
        assert of is not None
        self.account: Account = of.account(simulator.url)
        self.policy = LanePolicy(
            guarantee=guarantee, timeout_ms=3_000, retry=RetryPolicy(base_ms=1_000, jitter=0)
        )
        self.transport = Transport()
        recorder = ExchangeRecorder(self.transport)
        self.engine = Engine(recorder, OwnTokens(recorder, 5.0))
        limits = AccountSelector(
            LANE,
            self.policy,
            [self.account],
            RateLimiter([self.account], None, workers=lambda _: 1),
        )
        routes = RetryLane(
            LANE, "", self.policy, {self.account.name: Route(self.account, self.channel)}, limits
        )
        report = RecoveryTelemetry(
            Told(),
            RecoveryMetrics(),
            Alerts(CollectorRegistry(), 60.0),
            clock=Standing(world),
            name="r1",
        )
        self.resolving = Resolving(
            self.rows,
            {LANE.name: routes},
            self.engine,
            render=lambda _: "",
            report=report,
            stopping=threading.Event().is_set,
            paused=lambda _: False,
        )

    def send(self, *members: str, rules: list[Faults]) -> list[Delivery]:
        """One call for these members, settled as a lane would."""
        self.simulator.control(rules=rules)
        items = claimed(self.ledger, *deliveries(receivers=members, lane=LANE.name), owner="r1")
        for one in items:
            one.account, one.call_key = self.account.name, items[0].key
        outcomes = self.engine.send(self.channel, Call(self.account, items), 5.0)
        pairs = zip(items, outcomes, strict=True)
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        settlements = [after_call(d, o, self.world.now, self.policy) for d, o in pairs]
        assert all(self.ledger.settle(settlements, frozenset()))
        return items

    def states(self, items: list[Delivery]) -> list[tuple[str, str | None]]:
        rows = [self.ledger.queries().by_key(one.key) for one in items]
        return [(row.state, row.reason) for row in rows if row is not None]

    def look(self) -> None:
        """As recovery does when its time has come."""
        self.world.advance(60_000)
        while self.resolving.run_once(LANE.name):
            pass

    def until_settled(self, items: list[Delivery]) -> list[tuple[str, str | None]]:
        until = time.monotonic() + 20
        while ("UNKNOWN", "queued") in self.states(items) and time.monotonic() < until:
            time.sleep(0.05)
            self.look()
        return self.states(items)


@pytest.fixture
def simulator(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, fsync=False) as started:
        yield started


@pytest.fixture(params=[Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def office(world: World, simulator: Simulator, request: pytest.FixtureRequest) -> Iterator[Office]:
    made = Office(world, simulator, request.param)
    yield made
    made.transport.close()


def test_each_member_is_settled_by_its_own_result_and_none_before(office: Office) -> None:
    items = office.send(
        "good-1",
        "good-2",
        "gone-1",
        "many-1",
        "same-1",
        "lost-1",
        rules=[
            Faults(receiver="gone", receiver_codes={"60121": 1.0}),
            Faults(receiver="many", receiver_codes={"143103": 1.0}),
            Faults(receiver="same", receiver_codes={"143106": 1.0}),
            Faults(receiver="lost", receiver_codes={"failed": 1.0}),
        ],
    )
    assert office.states(items) == [("UNKNOWN", "queued")] * 6
    assert office.until_settled(items) == [
        ("SENT", None),
        ("SENT", None),
        ("REJECTED", "invalid_user"),
        ("RETRY", "resolved_not_sent"),
        ("REJECTED", "143106"),
        ("RETRY", "resolved_not_sent"),
    ]


def test_a_task_of_a_hundred_members_is_asked_for_in_a_handful_of_questions(
    office: Office,
) -> None:
    items = office.send(*(f"member-{n}" for n in range(100)), rules=[])
    time.sleep(0.5)
    office.look()
    assert set(office.states(items)) == {("SENT", None)}
    counts = office.simulator.report().summary.counts
    asked = sum(n for name, n in counts.items() if name.startswith("results.dingtalk."))
    assert asked <= 6


def test_while_the_provider_does_not_say_nothing_is_sent_again_and_in_the_end_a_person_decides(
    office: Office,
) -> None:
    items = office.send("member-1", rules=[])
    office.simulator.control(rules=[Faults(method="GET", codes={"90018": 1.0})])
    office.world.advance(22 * HOUR_MS)
    office.look()
    assert office.states(items) == [("UNKNOWN", "queued")]
    office.world.advance(2 * HOUR_MS)
    office.look()
    assert office.states(items) == [("PARKED", "unconfirmed")]
    accepted = [record for record in office.simulator.records() if record.accepted]
    assert len(accepted) == 1


def test_the_result_survives_a_recovery_that_was_away(office: Office) -> None:
    items = office.send("member-1", rules=[])
    time.sleep(0.5)
    office.world.advance(5 * HOUR_MS)
    office.look()
    assert office.states(items) == [("SENT", None)]


def test_options_name_how_a_provider_departs_from_its_default() -> None:
    made = SimulatorOptions(behaviours={"dingtalk": {"results_after_ms": "0"}})
    assert made.behaviours["dingtalk"] == {"results_after_ms": "0"}
