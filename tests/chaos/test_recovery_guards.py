"""Recovery's guards that no other quick test would miss: what `make mutation` switches off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import msgspec
import psycopg
import pytest

from channels.channel import Call
from idempotency.recovery.contract import DueQuery
from message.ids import new_token
from message.outcomes import Accepted, AnyOutcome, NotSent
from message.states import Event
from policy.schema import Guarantee
from recovery.retry.pool import RetryWork
from sending.endings import NotStarted
from tests.idempotency.making import World, claimed, delivery, settle, worker
from tests.recovery.retry.test_stage import LANE, Held, Line

TTL_MS = 60_000


class Lapsed(Held):
    """A lease of which another term began."""

    def wait_valid(self, term: int, until: Callable[[], bool]) -> bool:
        return False


@pytest.fixture
def line(sqlite_database: str) -> Iterator[Line]:
    world = World(sqlite_database)
    line = Line(world, Guarantee.AT_LEAST_ONCE)
    yield line
    line.callers.close()
    world.close()


def taken(line: Line, not_after: int = 0) -> RetryWork:
    """A row that was refused for now and that recovery has taken, on its way to a thread."""
    (item,) = claimed(line.ledger, delivery())
    settle(line.ledger, item, Event.NOT_SENT, reason="http_429")
    (one,) = line.rows.take(DueQuery(LANE, attempts=9), "r1", new_token()).taken
    route = line.resending._context.lanes[LANE].of("a")
    assert route is not None
    return RetryWork(one, route, 1, not_after)


def served(line: Line, resend: RetryWork) -> RetryWork:
    line.callers.put([resend])
    ended = line.finished.get(timeout=10)
    assert ended is resend
    assert line.provider.calls == []
    return resend


def test_nothing_is_sent_again_past_its_ttl_in_recoverys_queue(line: Line) -> None:
    resend = taken(line)
    line.world.advance(TTL_MS)
    assert served(line, resend).end == NotStarted(Event.TTL, "ttl_in_retry")


def test_no_repeat_begins_once_the_providers_window_is_over(line: Line) -> None:
    resend = taken(line, not_after=line.world.now + 10)
    line.world.advance(10)
    assert served(line, resend).end == NotStarted(Event.UNKNOWN, "dedup_window_over")


def test_nothing_is_sent_again_without_a_lease(line: Line) -> None:
    line.callers._permit = Lapsed()
    assert served(line, taken(line)).end == NotStarted(Event.UNKNOWN, "lease_lapsed")


def test_a_recovery_that_stops_gives_back_what_it_has_not_begun(line: Line) -> None:
    resend = taken(line)
    line.callers.stop()
    assert served(line, resend).end == NotStarted(Event.GIVEN_BACK, "stopping")


class Endless(Held):
    """A lease that ends never."""

    def ends_at(self, term: int) -> float:
        return inf


class Over(Held):
    """A lease that ended long ago."""

    def ends_at(self, term: int) -> float:
        return -inf


def mailed(line: Line, between: Callable[[], object]) -> RetryWork:
    """A mail that was called for, with something that happens before its dot."""
    resend, sent = taken(line), []
    account = msgspec.structs.replace(resend.route.account, endpoint="smtp://127.0.0.1:25")
    resend.route = resend.route._replace(account=account)
    line.callers._permit = Endless()

    def send(channel: Any, call: Call, timeout_s: float) -> list[AnyOutcome]:
        between()
        assert call.withdrawn is not None
        why = call.withdrawn()
        sent.append(not why)
        return [NotSent("withdrawn", why) if why else Accepted("p-1")]

    line.provider.send = send  # type: ignore[method-assign]
    line.callers.put([resend])
    assert line.finished.get(timeout=10) is resend
    assert sent == [isinstance(resend.end, Accepted)]
    return resend


def test_a_mail_under_way_is_taken_back_before_its_dot_where_its_time_is_over(line: Line) -> None:
    assert mailed(line, lambda: None).end == Accepted("p-1")
    late = mailed(line, lambda: line.world.advance(TTL_MS))
    assert late.end == NotStarted(Event.TTL, "ttl_in_retry")


def test_a_mail_under_way_as_recovery_stops_is_given_back_before_its_dot(line: Line) -> None:
    assert mailed(line, line.callers.stop).end == NotStarted(Event.GIVEN_BACK, "stopping")


def test_a_mail_whose_lease_lapses_under_way_is_taken_back_before_its_dot(line: Line) -> None:
    def lapse() -> None:
        line.callers._permit = Over()

    resend = mailed(line, lapse)
    assert resend.end == NotSent("withdrawn", "lease_lapsed")


@pytest.mark.stack
def test_a_row_that_another_holds_is_passed_by_and_not_waited_for(database: str) -> None:
    world = World(database)
    ledger = world.open()
    ledger.register(worker("r1"))
    items = claimed(ledger, delivery(), delivery(), owner="r1")
    for item in items:
        settle(ledger, item, Event.NOT_SENT, reason="http_429")
    held = "SELECT 1 FROM deliveries WHERE delivery_key = %s FOR UPDATE"
    with psycopg.connect(database.replace("+psycopg", "")) as other:
        other.execute(held, (items[0].key,))
        found = ledger.recovering().take(DueQuery(LANE, attempts=9), "r1", new_token())
    assert [one.delivery.key for one in found.taken] == [items[1].key]
    world.close()
