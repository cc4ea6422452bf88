"""Rows of a name come page by page to the last; open ones are found along the index of their state, and no
more than the bound."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from idempotency.recovery.selection import (
    OPEN,
    Wanted,
    beyond_statement,
    name_statement,
    open_statement,
)
from message.states import Event, State
from tests.idempotency.making import World, claimed, deliveries, delivery, settle, worker
from tests.idempotency.test_ledger_postgres import plan, today
from tests.idempotency.test_lines import LANE, fill, read_by, spelt

_NAME = {State.RETRY: "waiting", State.UNKNOWN: "asked", State.IN_FLIGHT: "owned"}


def keys(world: World, wanted: Wanted, most: int = 100, limit: int = 100) -> list[str]:
    picks = world.open().picks()
    return [pick.key for part in picks.open_rows(wanted, most, limit) for pick in part.picks]


def test_open_rows_are_listed_by_state_lane_account_and_time(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    first, second, flying = (claimed(ledger, delivery())[0] for _ in range(3))
    second.account = "main"
    settle(ledger, first, Event.NOT_SENT, reason="http_429", delay_ms=50_000)
    world.advance(1_000)
    settle(ledger, second, Event.NOT_SENT, reason="http_503")
    both = Wanted([State.RETRY], [LANE])
    assert keys(world, both) == [first.key, second.key]
    assert keys(world, both, limit=1) == [first.key]
    assert keys(world, both, most=1) == [second.key], "what is due first is within the bound"
    assert keys(world, Wanted([State.RETRY], [LANE], account="main")) == [second.key]
    assert keys(world, Wanted([State.RETRY], [LANE], reason="http_429")) == [first.key]
    assert keys(world, Wanted([State.RETRY], [LANE], since=world.now - 1)) == [second.key]
    assert keys(world, Wanted([State.RETRY], ["email.notice"])) == []
    assert keys(world, Wanted([State.IN_FLIGHT], [LANE])) == [flying.key]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_a_business_id_has_every_row_once_however_small_its_pages(world: World, size: int) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    made = [claimed(ledger, delivery(biz_id="order-1"))[0].key for _ in range(3)]
    world.advance(1)
    made += [claimed(ledger, delivery(biz_id="order-1"))[0].key for _ in range(2)]
    claimed(ledger, delivery(biz_id="order-2"))
    pages = list(ledger.picks().pages_of_biz("order-1", size))
    assert [pick.key for page in pages for pick in page] == [*sorted(made[:3]), *sorted(made[3:])]
    assert all(len(page) <= size for page in pages)
    assert list(ledger.picks().pages_of_biz("order-3", size)) == []


def test_copies_that_are_claimed_meanwhile_are_not_among_the_pages(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    made = [claimed(ledger, delivery(biz_id="order-1"))[0].key for _ in range(3)]
    pages = ledger.picks().pages_of_biz("order-1", 2)
    found = [pick.key for pick in next(pages)]
    world.advance(1)
    claimed(ledger, delivery(biz_id="order-1"))
    assert found + [pick.key for page in pages for pick in page] == sorted(made)


def test_a_message_has_its_rows_page_by_page_and_a_key_its_one(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    items = claimed(
        ledger, *deliveries(receivers=[f"+8613800000{n:03}" for n in range(5)], id="m1")
    )
    pages = list(ledger.picks().pages_named("m1", 2))
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {pick.key for page in pages for pick in page} == {item.key for item in items}
    assert [pick.key for pick in ledger.picks().named(items[3].key)] == [items[3].key]
    assert ledger.picks().named("m2") == []


@pytest.mark.parametrize("column", ["delivery_key", "message_id", "biz_id"])
def test_postgresql_finds_a_page_of_a_name_by_its_index(postgres: World, column: str) -> None:
    fill(postgres, 5_000)
    asked = {"name": "message7", "at": 1, "after": "", "until": 2**62, "limit": 10, "now": 0}
    nodes = plan(postgres, spelt(text(name_statement(column)), postgres), asked)
    assert read_by(nodes) <= 1, read_by(nodes)


@pytest.mark.parametrize("column", ["delivery_key", "message_id", "biz_id"])
def test_sqlite_finds_a_page_of_a_name_by_its_index(sqlite_database: str, column: str) -> None:
    world = World(sqlite_database)
    try:
        asked = {"name": "x", "at": 1, "after": "", "until": 2**62, "limit": 10, "now": 0}
        with world.open().database.begin() as connection:
            explained = text(f"EXPLAIN QUERY PLAN {name_statement(column)}")
            steps = [row[3] for row in connection.execute(explained, asked)]
        assert steps[0].startswith("SEARCH d "), steps
        assert f"({column}=?)" in steps[0], steps
    finally:
        world.close()


def test_open_rows_beyond_the_bound_are_reported(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    made = [claimed(ledger, delivery())[0] for _ in range(9)]
    for item in made[:3]:
        settle(ledger, item, Event.NOT_SENT, reason="http_503")
    for item in made[3:6]:
        settle(ledger, item, Event.UNKNOWN, reason="timeout")
    wanted = Wanted(OPEN, [LANE, "email.notice"], account="nobody")
    for most, cut in ((2, True), (3, False)):
        parts = list(ledger.picks().open_rows(wanted, most, 10))
        assert [(p.state, p.lane, p.picks, p.cut) for p in parts] == [
            (state, lane, [], cut and lane == LANE)
            for state in OPEN
            for lane in (LANE, "email.notice")
        ]


def test_rows_under_way_in_other_lanes_do_not_use_up_the_bound(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    for _ in range(3):
        claimed(ledger, delivery())
    (other,) = claimed(ledger, delivery(lane="push.notice"))
    (part,) = ledger.picks().open_rows(Wanted([State.IN_FLIGHT], ["push.notice"]), 1, 10)
    assert ([pick.key for pick in part.picks], part.cut) == ([other.key], False)


@pytest.mark.parametrize("state", OPEN)
def test_postgresql_reads_an_index_and_no_more_open_rows_than_the_bound(
    postgres: World, state: State
) -> None:
    fill(postgres, 5_000)
    asked = {"lane": LANE, "most": 100, "at": 0, "limit": 10, "now": postgres.now}
    statement = spelt(text(open_statement(Wanted([state], [LANE]), state, postgres=True)), postgres)
    nodes = plan(postgres, statement, asked)
    ran = [node for node in nodes if node.get("Actual Loops")]
    assert not [node for node in ran if node["Node Type"] == "Seq Scan"], statement
    assert any(today() in node.get("Index Name", "") for node in ran), statement
    assert read_by(nodes) <= 300, read_by(nodes)
    beyond = spelt(text(beyond_statement(state, postgres=True)), postgres)
    assert read_by(plan(postgres, beyond, {"lane": LANE, "most": 100})) <= 101


@pytest.mark.parametrize("state", OPEN)
def test_sqlite_finds_open_rows_by_an_index(sqlite_database: str, state: State) -> None:
    world = World(sqlite_database)
    try:
        ledger = fill(world, 1_000)
        statement = open_statement(Wanted([state], [LANE]), state, postgres=False)
        asked = {"lane": LANE, "most": 100, "at": 0, "limit": 10, "now": world.now}
        with ledger.database.begin() as connection:
            rows = connection.execute(text(f"EXPLAIN QUERY PLAN {statement}"), asked)
            steps = [row[3] for row in rows]
        assert not [step for step in steps if step.startswith("SCAN o ")], steps
        assert any(f"INDEX deliveries_{_NAME[state]} (" in step for step in steps), steps
    finally:
        world.close()
