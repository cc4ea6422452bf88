"""Who ends a delivery that surely was not sent gives its marks back: each path, on a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import text

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.gates import SendGates, open_gating
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.work import Assignment, Drop, KafkaRecord, Work
from idempotency.ledger import Settlement
from idempotency.recalls import Kind
from message.delivery import Delivery
from message.states import Event
from message.vocabulary import Lane
from policy.loading import load_for
from recovery.recall.factory import open_recalling
from sending.runtime.clock import Clock
from simulator import Faults
from tests.recovery.ground import LANE, Ground, until

MakeGround = Callable[..., Ground]
WINDOW = {"dedup": {"window_ms": 3_600_000}}
ONE_AN_HOUR = {"frequency": {"limits": [{"most": 1, "span_ms": 3_600_000}]}}


class Gate:
    """A worker's gates: they remember what they let pass, as a worker's memory does."""

    def __init__(self, ground: Ground, stack: ExitStack) -> None:
        lane = Lane("webhook", "notice")
        policy = load_for(ground.settings)
        identity = ground.ledger.identity()
        self.gates: SendGates = open_gating(ground.settings, policy, identity, Clock(), stack)
        contract: Any = None
        self._terms = LaneConfig("v1", policy.of(lane), {}, contract)
        self._assignment = Assignment(lane.topic(), 0, lane, Offsets())

    def passes(self, delivery: Delivery) -> bool:
        record = KafkaRecord(self._assignment, 0, delivery.notification, b"{}", 0, None)
        work = Work(delivery, record, terms=self._terms)
        self.gates.judge([work])
        return not isinstance(work.intent, Drop)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def place(ground: MakeGround, redis_url: str) -> Callable[..., Ground]:
    def make(**policy: Any) -> Ground:
        return ground(redis_url=redis_url, **policy)

    return make


def marked(ground: Ground, gate: Gate, **fields: Any) -> Delivery:
    """A row in RETRY that a worker marked before it was claimed."""
    (item,) = ground.claimed(**fields)
    assert gate.passes(item)
    (again,) = ground.claimed()
    assert not gate.passes(again), "the mark holds"
    ground.ledger.settle([Settlement(again, Event.REJECTED, "unneeded")])
    ground.ledger.settle([Settlement(item, Event.NOT_SENT, "http_429")])
    return item


def recovered(ground: Ground, item: Delivery, state: str) -> None:
    with ground.recovery() as opened:
        opened.recovery.start()

        def ended() -> bool:
            opened.recovery.resend(LANE)
            opened.recovery.resolve(LANE)
            return ground.state(item)[0] == state

        until(ended)


def goes(ground: Ground, gate: Gate, stack: ExitStack) -> tuple[bool, bool]:
    """Whether the same content may go now: by the worker that remembers, and by a new one."""
    (same,) = ground.claimed()
    mine = gate.passes(same)
    return mine, Gate(ground, stack).passes(same)


@pytest.mark.parametrize("gates", [WINDOW, ONE_AN_HOUR])
@pytest.mark.parametrize(
    ("state", "policy", "fields"),
    [
        ("PARKED", {"retry": {"attempts": 1}}, {}),
        ("PARKED", {}, {"account": "gone"}),
        ("EXPIRED", {}, {"ttl_ms": 1}),
    ],
    ids=["attempts spent", "no account", "expired"],
)
def test_what_recovery_ends_without_a_call_may_be_said_again(
    place: Callable[..., Ground],
    stack: ExitStack,
    state: str,
    gates: dict[str, Any],
    policy: dict[str, Any],
    fields: dict[str, Any],
) -> None:
    ground = place(**gates, **policy)
    gate = Gate(ground, stack)
    item = marked_before(ground, gate, **fields)
    recovered(ground, item, state)
    assert goes(ground, gate, stack) == (True, True)


def marked_before(ground: Ground, gate: Gate, **fields: Any) -> Delivery:
    """As `marked`; its life may be over before anybody judges another."""
    ttl_ms = fields.pop("ttl_ms", None)
    item = marked(ground, gate, **fields)
    if ttl_ms is not None:
        run(ground, "UPDATE deliveries SET expires_at = 1 WHERE delivery_key = :key", item)
    return item


def run(ground: Ground, statement: str, item: Delivery, **values: Any) -> None:
    with ground.ledger.database.begin() as connection:
        connection.execute(text(statement), {"key": item.key, **values})


def test_what_the_provider_refuses_when_it_is_sent_again_may_be_said_again(
    place: Callable[..., Ground], stack: ExitStack
) -> None:
    ground = place(**WINDOW)
    gate = Gate(ground, stack)
    item = marked(ground, gate)
    ground.provider.control(rules=[Faults(errors={"400": 1.0})])
    recovered(ground, item, "REJECTED")
    assert goes(ground, gate, stack) == (True, True)


def test_what_recovery_cannot_read_may_be_said_again(
    place: Callable[..., Ground], stack: ExitStack
) -> None:
    ground = place(**WINDOW)
    gate = Gate(ground, stack)
    item = marked(ground, gate)
    run(ground, "UPDATE deliveries SET payload = :p WHERE delivery_key = :key", item, p=b"\x00")
    recovered(ground, item, "PARKED")
    assert ground.state(item)[1] == "payload_unreadable"
    assert goes(ground, gate, stack) == (True, True)


def test_what_is_recalled_before_it_falls_due_may_be_said_again(
    place: Callable[..., Ground], stack: ExitStack
) -> None:
    ground = place(**WINDOW)
    gate = Gate(ground, stack)
    item = marked(ground, gate)
    ground.ledger.recalls().announce(Kind.MESSAGE, item.notification.id, 60_000)
    recovered(ground, item, "DROPPED")
    assert goes(ground, gate, stack) == (True, True)


def test_what_a_recall_cancels_may_be_said_again(
    place: Callable[..., Ground], stack: ExitStack
) -> None:
    ground = place(**WINDOW)
    gate = Gate(ground, stack)
    item = marked(ground, gate)
    opened = open_recalling(ground.settings, stack, lambda: False)
    opened.recalling.run(Kind.MESSAGE, item.notification.id, opened.life_ms)
    assert ground.state(item) == ("DROPPED", "recalled")
    assert goes(ground, gate, stack) == (True, True)


@pytest.mark.parametrize("way", ["ttl", "recall"])
def test_what_may_have_been_sent_keeps_its_marks(
    place: Callable[..., Ground], stack: ExitStack, way: str
) -> None:
    ground = place(guarantee="at_most_once", **WINDOW)
    gate = Gate(ground, stack)
    (item,) = ground.claimed()
    assert gate.passes(item)
    ground.ledger.settle([Settlement(item, Event.UNKNOWN, "timeout")])
    if way == "ttl":
        ground.provider.control(rules=[Faults(method="GET", errors={"503": 1.0})])
        run(ground, "UPDATE deliveries SET expires_at = 1 WHERE delivery_key = :key", item)
        recovered(ground, item, "PARKED")
    else:
        retry = "UPDATE deliveries SET state = 'RETRY', next_at = 1 WHERE delivery_key = :key"
        run(ground, retry, item)
        ground.ledger.recalls().announce(Kind.MESSAGE, item.notification.id, 60_000)
        recovered(ground, item, "PARKED")
        assert ground.state(item)[1] == "recalled_in_doubt"
    assert goes(ground, gate, stack) == (False, False)
