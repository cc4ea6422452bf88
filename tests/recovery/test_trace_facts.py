"""Events that are made from a ledger row alone: by a person, a recall, a receipt, or recovery ending it.

Each has the row's facts; a worker's death has those of the call that the worker made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec.structs
import pytest
from prometheus_client import CollectorRegistry

from backends.settings import OutcomeSettings
from channels.engine import Engine
from channels.transports import TransportRouter
from idempotency.recalls import Kind
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.receipts.sql import open_receipts
from idempotency.recovery.contract import DueQuery, Ended
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery, Origin
from message.envelope import Template
from message.ids import new_token
from message.outcome_event import receiver_hash
from message.states import Event
from policy.schema import Policy
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from recovery.alerts import Alerts
from recovery.operator_actions import Operator
from recovery.operator_rules import OperatorNote, Verb
from recovery.recall.recall import Providers, Recalling
from recovery.telemetry import RecoveryMetrics, RecoveryTelemetry
from tests.idempotency.making import LEASE_MS, NOON, World, claimed, delivery, settle, worker
from tests.recovery.retry.test_stage import Standing
from tracing.events import LANE_RECALL, NoRecorder, Stage, TraceEvent
from tracing.masks import hasher

TEMPLATE = Template(id="order_paid")
LANE, RECEIVER = "sms.notice", "+8613800000001"
HASH_KEY = "of receivers, in this test and nowhere else"
AFTER_MS = 5
"""From the notification's creation to its claim."""


class Told(NoRecorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events

    def only(self, stage: Stage) -> TraceEvent:
        """Returns the one event of that stage."""
        (found,) = [event for event in self.events if event.stage is stage]
        return found


class Facts(NamedTuple):
    """The fields that name a delivery, its call and its policy."""

    message_id: str
    delivery_key: str
    biz_id: str | None
    lane: str
    attempt: int
    account: str
    policy_version: str
    created_at: int
    template: str
    receiver_hash: str
    origin: str | None


def facts_of(event: TraceEvent) -> Facts:
    return Facts(*(getattr(event, name) for name in Facts._fields))


class Field:
    """One ledger, and the writers of such events over it."""

    def __init__(self, world: World) -> None:
        self.world = world
        world.now += AFTER_MS
        if world.is_postgres:
            world.advance(0)
        outcomes = OutcomeSettings(hash_key=HASH_KEY)
        world.settings = msgspec.structs.replace(world.settings, outcomes=outcomes)
        self.ledger: SqlLedger = world.open()
        self.ledger.register(worker("w1"))
        self.told = Told()
        self.hashed = hasher(HASH_KEY)

    def begun(self) -> Delivery:
        """Returns a delivery whose call through account `a` is on record."""
        item = delivery(receivers=[RECEIVER], biz_id="order-1", template=TEMPLATE)
        item.origin = Origin("t.dispatch.sms.notice", 3, 7)
        item.account, item.policy_version = "a", "v7:0123456789abcdef"
        (one,) = claimed(self.ledger, item)
        return one

    def orphaned(self) -> Delivery:
        """Returns one whose worker died during the call."""
        item = self.begun()
        self.world.advance(LEASE_MS + 1)
        assert ("w1", 1) in self.ledger.sweep()
        self.world.advance(1)
        return item

    def facts(self, item: Delivery) -> Facts:
        """Returns them as the row has them."""
        (row,) = self.world.rows(
            "SELECT message_id, delivery_key, biz_id, lane, attempt, account, policy_version, created_at,"
            " template, receiver_hash, kafka_topic || '/' || kafka_partition || '/' || kafka_offset"
            f" FROM deliveries WHERE delivery_key = '{item.key}'"
        )
        *plain, hashed, origin = row
        found = Facts._make([*plain, bytes(hashed).hex(), origin])
        assert found.receiver_hash == receiver_hash(HASH_KEY.encode(), "sms", RECEIVER)
        assert (found.template, found.origin) == ("order_paid", "t.dispatch.sms.notice/3/7")
        assert found.created_at == NOON + AFTER_MS
        assert (found.account, found.policy_version) == ("a", "v7:0123456789abcdef")
        return found

    def decide(self, verb: Verb, item: Delivery) -> None:
        """A person does it."""
        picks = self.ledger.picks()
        operator = Operator(
            *(self.ledger.recovering(), self.ledger.queries(), Policy(), self.told),
            now_ms=self.ledger.now_ms,
            look=picks.named,
            give_back=lambda _: None,
        )
        operator.run(verb, picks.named(item.key), OperatorNote("li@ops", ""))

    def recall(self, name: str, *lanes: str) -> None:
        wires = TransportRouter()
        recalling = Recalling(
            self.ledger.recalls(),
            self.ledger.recovering(),
            lambda: Providers(Engine(wires, None), {}),
            self.told,
            timeout_s=1.0,
            wait=lambda: False,
            hash_receiver=self.hashed,
        )
        if lanes:
            recalling.run_in_lanes(name, lanes, 60_000)
        else:
            recalling.run(Kind.MESSAGE, name, 60_000)
        wires.close()

    def receive(self, **fields: Any) -> None:
        """The provider reports that the call reached its receiver."""
        receipts = open_receipts(self.ledger, self.world.settings, lambda: self.world.now)
        receipts.store(
            [Receipt(account="a", said=ReceiptState.DELIVERED, receivers=(RECEIVER,), **fields)]
        )
        matcher = Matcher(
            *(receipts, self.told, ReceiptMetrics()),
            every_s=1,
            keep_days=1,
            worker="receipts",
            hash_receiver=self.hashed,
        )
        matcher.run_once()

    def report(self) -> RecoveryTelemetry:
        registry = CollectorRegistry()
        return RecoveryTelemetry(
            *(self.told, RecoveryMetrics(), Alerts(registry, 60.0)),
            clock=Standing(self.world),
            name="r1",
            hash_receiver=self.hashed,
        )


@pytest.fixture
def field(world: World) -> Field:
    return Field(world)


def test_a_recall_is_told_on_each_delivery_that_it_covers(field: Field) -> None:
    item = field.begun()
    assert settle(field.ledger, item, Event.ACCEPTED, provider_id="p-1")
    facts = field.facts(item)
    field.world.advance(1_000)
    field.recall(item.notification.id)
    event = field.told.only(Stage.RECALL_ASKED)
    assert facts_of(event) == facts
    assert (event.at, event.state, event.provider_id) == (field.world.now, "SENT", "p-1")
    assert event.receiver == "+86138***0001"
    assert event.receiver_hash == receiver_hash(HASH_KEY.encode(), "sms", RECEIVER)


def test_a_recall_of_what_nobody_has_read_is_told_on_its_name(field: Field) -> None:
    field.recall("m-unread")
    event = field.told.only(Stage.RECALL_ASKED)
    assert (event.message_id, event.delivery_key, event.at) == ("m-unread", "", field.world.now)
    assert (event.attempt, event.account, event.created_at) == (0, "", 0)


def test_a_recall_in_lanes_is_told_as_one(field: Field) -> None:
    item = field.begun()
    field.recall(item.notification.id, item.lane)
    event = field.told.only(Stage.RECALL_ASKED)
    assert (event.delivery_key, event.lane, event.reason) == (item.key, item.lane, LANE_RECALL)
    field.told.events.clear()
    field.recall("m-unread", "sms.notice", "sms.marketing")
    asked = [(e.message_id, e.delivery_key, e.lane, e.reason) for e in field.told.events]
    assert asked == [
        ("m-unread", "", lane, LANE_RECALL) for lane in ("sms.marketing", "sms.notice")
    ]


def test_a_recall_that_ends_a_waiting_delivery_has_the_facts_of_its_row(field: Field) -> None:
    item = field.begun()
    assert settle(field.ledger, item, Event.NOT_SENT, reason="http_429")
    facts = field.facts(item)
    field.recall(item.notification.id)
    assert facts_of(field.told.only(Stage.DROPPED)) == facts


def test_a_person_decides_with_the_facts_of_the_row(field: Field) -> None:
    item = field.begun()
    assert settle(field.ledger, item, Event.UNKNOWN, reason="timeout")
    facts = field.facts(item)
    field.decide(Verb.NOT_ARRIVED, item)
    event = field.told.only(Stage.RESOLVED)
    assert facts_of(event) == facts
    assert (event.state, event.reason, event.at) == ("RETRY", "operator", field.world.now)
    field.decide(Verb.DISCARD, item)
    assert facts_of(field.told.only(Stage.DROPPED)) == facts


def test_a_receipt_has_the_facts_of_the_call_that_it_is_about(field: Field) -> None:
    item = field.begun()
    assert settle(field.ledger, item, Event.ACCEPTED, provider_id="p-1")
    facts = field.facts(item)
    field.receive(provider_id="p-1", code="DELIVRD")
    event = field.told.only(Stage.RECEIPT)
    assert facts_of(event) == facts
    assert (event.state, event.code, event.provider_id) == ("DELIVERED", "DELIVRD", "p-1")
    assert (event.worker, event.receiver) == ("receipts", "+86138***0001")
    assert event.receiver_hash == receiver_hash(HASH_KEY.encode(), "sms", RECEIVER)


def by_person(field: Field, item: Delivery) -> Stage:
    field.decide(Verb.ARRIVED, item)
    return Stage.RESOLVED


def by_receipt(field: Field, item: Delivery) -> Stage:
    field.receive(call_key=item.call_key or item.key)
    return Stage.RECEIPT


def by_recovery(field: Field, item: Delivery) -> Stage:
    """Its body cannot be read any more, so nobody can be asked about it."""
    field.world.rows_changed(
        f"UPDATE deliveries SET payload = NULL WHERE delivery_key = '{item.key}'"
    )
    ended: list[Ended] = []
    field.ledger.recovering().doubts(LANE, 1_000, ended=ended)
    field.report().ended(ended)
    return Stage.SETTLED


@pytest.mark.parametrize("writer", [by_person, by_receipt, by_recovery])
def test_a_workers_death_is_told_with_the_facts_of_its_call_by_whoever_decides(
    field: Field, writer: Any
) -> None:
    item = field.orphaned()
    facts, died_at = field.facts(item), field.world.now - 1
    field.world.advance(500)
    decided = field.told.only(writer(field, item))
    death = field.told.only(Stage.OWNER_DEAD)
    assert field.told.events == [death, decided]
    assert facts_of(death) == facts_of(decided) == facts
    assert (death.worker, death.state, death.reason) == ("w1", "UNKNOWN", None)
    assert (death.claimed_at, death.at) == (NOON + AFTER_MS, died_at)
    assert decided.worker != "w1"


def test_a_row_that_recovery_ends_has_its_facts(field: Field) -> None:
    item = field.begun()
    assert settle(field.ledger, item, Event.NOT_SENT, reason="http_429")
    facts = field.facts(item)
    field.world.advance(120_000)
    taken = field.ledger.recovering().take(DueQuery(LANE, attempts=5), "w1", new_token())
    field.report().ended(taken.ended)
    event = field.told.only(Stage.EXPIRED)
    assert facts_of(event) == facts
    assert (event.worker, event.state) == ("r1", "EXPIRED")
