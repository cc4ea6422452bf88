"""How long one recovery keeps doubts to itself: long enough to ask, and short should it die."""

from collections.abc import Iterator
from typing import Any

import pytest

from channels.channel import Resolution, ResolveResult
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.receipts.sql import open_receipts
from message.delivery import Delivery
from message.outcomes import AnyOutcome
from message.states import Event
from policy.schema import Guarantee
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from recovery.unknown.resolver import BATCH, Resolving
from tests.idempotency.making import LEASE_MS, NOON, World, claimed, delivery, settle, worker
from tests.idempotency.recovery.test_contract import called_again
from tests.recovery.retry.test_stage import LANE, Line
from tracing.events import Stage
from tracing.orders import violations

TIMEOUT_MS = 1_000
"""The line's."""


class Asked:
    """A provider whose answers take their time; it dies, or answers, as told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes_s = 0.0
        self.asked: list[str] = []
        self.attempts: list[tuple[str, int, int]] = []
        """Account, first and last call."""
        self.dies = False
        self.answer: ResolveResult | None = ResolveResult(Resolution.SENT)

    def send(self, _channel: Any, call: Any, _timeout_s: float) -> list[AnyOutcome]:
        raise AssertionError(f"nothing is to be sent: {call}")

    def resolve(
        self, _channel: Any, account: Any, attempt: Any, _timeout_s: float, _asked: Any = None
    ) -> ResolveResult | None:
        if self.dies:
            raise KeyboardInterrupt  # nothing that anybody handles
        self.now += self.takes_s
        self.asked.append(attempt.delivery.key)
        self.attempts.append((account.name, attempt.called_at, attempt.last_call))
        return self.answer


@pytest.fixture
def line(world: World) -> Iterator[Line]:
    line = Line(world, Guarantee.AT_MOST_ONCE)
    yield line
    line.callers.close()


@pytest.fixture
def items(line: Line) -> list[Delivery]:
    items = claimed(line.ledger, *(delivery() for _ in range(10)), owner="r1")
    for item in items:
        item.account = "a"
        settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(10)
    return items


def resolving(line: Line, provider: Asked) -> Resolving:
    made = line.resolving
    return Resolving(
        line.rows,
        made._routes,
        provider,
        render=lambda _: "",
        report=made._report,
        stopping=lambda: False,
        paused=lambda _: False,
        monotonic=lambda: provider.now,
    )


def test_quick_answers_settle_a_whole_batch(line: Line, items: list[Delivery]) -> None:
    provider = Asked()
    assert resolving(line, provider).run_once(LANE) == len(items)
    assert {line.row(item)[0] for item in items} == {"SENT"}


def test_what_nobody_can_be_asked_about_is_decided_as_fast_as_the_ledger_allows(line: Line) -> None:
    """After an outage thousands of calls may be in doubt: their time must not end before their turn."""
    items = claimed(line.ledger, *(delivery() for _ in range(3 * BATCH + 1)), owner="r1")
    for item in items:
        item.account = "a"
        settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(10)
    provider = Asked()
    provider.answer = None
    assert resolving(line, provider).run_once(LANE) == len(items)
    assert {line.row(item)[:2] for item in items} == {("PARKED", "unproven")}


def test_a_provider_is_asked_about_one_batch_a_look(line: Line) -> None:
    items = claimed(line.ledger, *(delivery() for _ in range(BATCH + 1)), owner="r1")
    for item in items:
        item.account = "a"
        settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(10)
    assert resolving(line, Asked()).run_once(LANE) == BATCH


def test_what_was_not_come_to_in_time_is_anothers_at_once(
    line: Line, items: list[Delivery]
) -> None:
    slow, quick = Asked(), Asked()
    slow.takes_s = 3.0
    assert resolving(line, slow).run_once(LANE) == 2
    assert resolving(line, quick).run_once(LANE) == len(items) - 2
    assert sorted(slow.asked + quick.asked) == sorted(item.key for item in items)


def test_what_a_recovery_was_asking_as_it_died_is_asked_again_after_eight_timeouts(
    line: Line, items: list[Delivery]
) -> None:
    dead, other = Asked(), Asked()
    dead.dies = True
    with pytest.raises(KeyboardInterrupt):
        resolving(line, dead).run_once(LANE)
    line.world.advance(8 * TIMEOUT_MS - 1)
    assert resolving(line, other).run_once(LANE) == 0
    line.world.advance(1)
    assert resolving(line, other).run_once(LANE) == len(items)


def test_every_account_that_was_called_is_asked_about_the_first_call_and_the_last(
    line: Line,
) -> None:
    world = line.world
    (item,) = claimed(line.ledger, delivery(), owner="r1")
    item.account = "a"
    settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    world.advance(1_000)
    called_again(line.ledger, line.rows, "b")
    world.advance(1_000)
    provider = Asked()
    assert resolving(line, provider).run_once(LANE) == 1
    assert provider.attempts == [
        ("b", NOON, NOON + 1_000),
        ("a", NOON, NOON + 1_000),
    ]


def test_an_account_that_is_gone_is_no_witness_that_nothing_was_sent(line: Line) -> None:
    """The account of an earlier call knows nothing of the last one."""
    (item,) = claimed(line.ledger, delivery(), owner="r1")
    item.account = "a"
    settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(1_000)
    called_again(line.ledger, line.rows, "gone")
    line.world.advance(40_000)
    provider = Asked()
    provider.answer = ResolveResult(Resolution.NOT_SENT)
    assert resolving(line, provider).run_once(LANE) == 1
    assert [account for account, *_ in provider.attempts] == ["a"]
    assert line.row(item)[:2] == ("PARKED", "unproven")


def test_a_receipt_that_came_before_the_doubt_proves_the_send_and_nobody_is_asked(
    line: Line, items: list[Delivery]
) -> None:
    reported = items[0]
    receipts = open_receipts(line.ledger, line.world.settings, lambda: line.world.now)
    (later,) = claimed(line.ledger, delivery(), owner="r1")
    later.account = "a"
    for one, name in ((later, "p-7"), (reported, "p-8")):
        receipts.store([Receipt("a", ReceiptState.DELIVERED, name, call_key=one.key)])
    assert receipts.match().waiting == 1  # that of the call under way
    settle(line.ledger, later, Event.UNKNOWN, reason="timeout")
    line.world.advance(10)
    provider = Asked()
    resolving(line, provider).run_once(LANE)
    assert sorted(provider.asked) == sorted(item.key for item in items[1:])
    assert line.row(later)[0] == "SENT"
    assert line.ledger.queries().by_key(later.key).provider_id == "p-7"  # type: ignore[union-attr]
    line.world.advance(5_000)
    receipts.match()
    assert {line.row(one)[0] for one in (later, reported)} == {"DELIVERED"}


def test_a_receipt_that_came_before_a_death_is_told_in_a_legal_order(line: Line) -> None:
    line.ledger.register(worker("w7"))
    (item,) = claimed(line.ledger, delivery(), owner="w7")
    line.world.rows_changed("UPDATE deliveries SET account = 'a'")
    receipts = open_receipts(line.ledger, line.world.settings, lambda: line.world.now)
    receipts.store([Receipt("a", ReceiptState.DELIVERED, "p-7", call_key=item.key)])
    matcher = Matcher(receipts, line.told, ReceiptMetrics(), every_s=1, keep_days=1)
    matcher.run_once()
    line.world.advance(LEASE_MS + 1)
    assert ("w7", 1) in line.ledger.sweep()
    line.world.advance(1)
    resolving(line, Asked()).run_once(LANE)
    assert line.row(item)[0] == "SENT"
    line.world.advance(5_000)
    matcher.run_once()
    assert line.row(item)[0] == "DELIVERED"
    stages = {event.stage for event in line.told.events}
    assert stages == {Stage.OWNER_DEAD, Stage.RESOLVED, Stage.RECEIPT}
    assert violations(line.told.events) == []


def test_the_attempt_of_a_dead_worker_is_told_when_its_doubt_is_decided(line: Line) -> None:
    """The row forgets the first owner with the next attempt."""
    line.ledger.register(worker("w7"))
    (item,) = claimed(line.ledger, delivery(), owner="w7")
    line.world.advance(LEASE_MS + 1)
    assert ("w7", 1) in line.ledger.sweep()
    line.world.advance(1)
    assert resolving(line, Asked()).run_once(LANE) == 1
    death, end = line.told.events
    assert (death.stage, death.worker, death.attempt) == (Stage.OWNER_DEAD, "w7", 1)
    assert death.claimed_at
    assert death.claimed_at + LEASE_MS < death.at < end.at
    assert (end.stage, end.worker, end.state) == (Stage.RESOLVED, "r1", "SENT")
    assert item.key == death.delivery_key
