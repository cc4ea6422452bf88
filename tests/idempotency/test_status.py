"""What `hongyan status` reads: who lives, what waits, and which lines a head holds."""

import re
from collections.abc import Iterator

import msgspec
import pytest
from sqlalchemy import TextClause, text

from idempotency.fleet import held_lines
from idempotency.fleet import status as fleet_status
from idempotency.fleet.held_lines import HELD, HeldLine
from idempotency.fleet.status import LaneStatus
from idempotency.ledger import RECOVERY
from idempotency.recovery.contract import DueQuery
from idempotency.sql_ledger import SqlLedger
from message.ids import new_token
from message.states import Event, State
from tests.idempotency.making import (
    LEASE_MS,
    World,
    adopt,
    claimed,
    claims,
    delivery,
    settle,
    worker,
)
from tests.idempotency.test_ledger_postgres import plan, today
from tests.idempotency.test_lines import LANE, LANES, fill, head_and_followers, read_by, spelt

SMS, OTHER = LANE, "email.notice"


def lane(ledger: SqlLedger, name: str = SMS) -> LaneStatus:
    (found,) = ledger.fleet_status().lanes([name])
    return found


def lines(ledger: SqlLedger, limit: int = 10) -> list[HeldLine]:
    return ledger.held_lines().lines_waiting(LANE, limit).lines


def test_each_row_that_is_open_is_counted_where_it_waits(world: World) -> None:
    ledger = world.open()
    assert lane(ledger).idle
    settle(ledger, claimed(ledger, delivery())[0], Event.NOT_SENT)
    settle(ledger, claimed(ledger, delivery())[0], Event.NOT_SENT, delay_ms=30_000)
    settle(ledger, claimed(ledger, delivery())[0], Event.GIVEN_BACK)
    settle(ledger, claimed(ledger, delivery())[0], Event.UNKNOWN)
    settle(ledger, claimed(ledger, delivery())[0], Event.BUDGET_SPENT)
    settle(ledger, claimed(ledger, delivery())[0], Event.ACCEPTED)
    claimed(ledger, *[delivery() for _ in range(3)])
    head_and_followers(ledger, "k", 2)
    world.advance(7_000)
    assert lane(ledger) == LaneStatus(
        lane=SMS,
        due=1,
        oldest_due_ms=7_000,
        later=1,
        next_at=world.now + 23_000,
        behind=2,
        given_back=1,
        doubted=1,
        oldest_doubt_ms=7_000,
        in_flight=4,
        parked=1,
        oldest_parked_ms=7_000,
    )
    assert lane(ledger, OTHER).idle


def test_counts_stop_at_their_bound(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_status, "BOUND", 3)
    ledger = world.open()
    for item in claimed(ledger, *[delivery() for _ in range(5)]):
        settle(ledger, item, Event.NOT_SENT)
    assert lane(ledger).due == 3


def test_a_process_is_shown_with_its_program_until_it_left(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("w1"))
    recovery = msgspec.structs.replace(worker("r1"), kind=RECOVERY, program="1.2.3")
    lease = ledger.register(recovery)
    leaving = ledger.register(worker("w2"))
    ledger.retire(leaving)
    world.advance(LEASE_MS + 1)
    ledger.heartbeat(lease)
    one, two = ledger.fleet_status().processes()
    assert (one.id, one.kind, one.lost, one.program) == ("w1", "worker", True, "")
    assert (two.id, two.kind, two.lost, two.program) == ("r1", "recovery", False, "1.2.3")
    assert two.state == "RUNNING"
    assert two.lanes == ["sms.*"]
    world.advance(fleet_status.LOST_WITHIN_MS)
    assert ledger.fleet_status().processes() == []


def test_only_the_key_whose_head_is_in_doubt_waits_and_it_is_named(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("r1"))
    stuck = head_and_followers(ledger, "stuck", 3)
    stuck[0].account = "main"
    settle(ledger, stuck[0], Event.UNKNOWN, LANES, reason="timeout")
    others = [head_and_followers(ledger, f"k{number}", 2) for number in range(5)]
    for head, *_ in others:
        settle(ledger, head, Event.ACCEPTED, LANES)
    rows = ledger.recovering()
    sent = []
    ask = DueQuery(LANE, 5, ordered=True, first=True)
    while taken := rows.take(ask, "r1", new_token()).taken:
        for one in taken:
            sent.append(str(one.delivery.notification.ordering_key))
            settle(ledger, one.delivery, Event.ACCEPTED, LANES)
    assert sorted(sent) == sorted([f"k{n}" for n in range(5)] * 2)
    world.advance(5_000)
    (line,) = lines(ledger)
    assert line == HeldLine(
        lane=LANE,
        ordering_key="stuck",
        delivery_key=stuck[0].key,
        message_id=stuck[0].notification.id,
        state=State.UNKNOWN,
        since=world.now - 5_000,
        reason="timeout",
        account="main",
        attempt=1,
        owner="w1",
        next_at=None,
        expires_at=stuck[0].expires_at,
        behind=3,
    )


def test_a_line_of_one_holds_nobody(world: World) -> None:
    ledger = world.open()
    head_and_followers(ledger, "alone", 0)
    made = claims([delivery(ordering_key="unordered") for _ in range(3)])
    adopt(made, ledger.claim(made, "w1"))
    assert lines(ledger) == []


def test_the_longest_held_come_first_and_the_rest_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = world.open()
    for number in (3, 1, 2, 4):
        head_and_followers(ledger, f"k{number}", 1)
        world.advance(1_000)
    found = ledger.held_lines().lines_waiting(LANE, 2)
    assert [line.ordering_key for line in found.lines] == ["k3", "k1"]
    assert (found.held, found.complete) == (4, True)
    assert ledger.held_lines().count(LANE, 3_000) == 2
    monkeypatch.setattr(held_lines, "PAGE", 1_000)
    monkeypatch.setattr(held_lines, "MOST_LINES", 4)
    assert not ledger.held_lines().lines_waiting(LANE, 2).complete


def test_a_head_that_was_woken_is_held_since_then(world: World) -> None:
    ledger = world.open()
    first, *_ = head_and_followers(ledger, "k", 2)
    world.advance(20_000)
    settle(ledger, first, Event.ACCEPTED, LANES)
    world.advance(1_000)
    (line,) = lines(ledger)
    assert (line.state, line.since, line.behind) == (State.RETRY, world.now - 1_000, 1)
    assert ledger.held_lines().count(LANE, 1_001) == 0
    assert ledger.held_lines().count(LANE, 1_000) == 1


def test_more_keys_than_a_page_are_walked(world: World) -> None:
    ledger = world.open()
    items = [delivery(ordering_key=f"k{n // 2:04}") for n in range(2 * 501)]
    made = claims(items)
    adopt(made, ledger.claim(made, "w1", ordered=True))
    assert ledger.held_lines().lines_waiting(LANE, 1).held == 501


def test_rows_behind_are_counted_up_to_a_bound(world: World) -> None:
    ledger = fill(world, 1_500)
    (line,) = lines(ledger)
    assert line.behind == held_lines.MOST_BEHIND + 1


# -- plans --


def _statements(ledger: SqlLedger) -> Iterator[tuple[str, TextClause, dict[str, object]]]:
    """The index that each statement goes along, the statement, and values for it."""
    least = "least" if ledger.database.is_postgres else "min"
    asked = {"lane": LANE, "now": 0, "before": 10**13, "start": "", "key": "k", "head": "m"}
    asked |= {"bound": 100}
    for name, statement in (
        ("waiting", fleet_status.DUE.format(least=least)),
        ("waiting", fleet_status.LATER.format(least=least)),
        ("owned", fleet_status.UNDER_WAY),
        ("ended", fleet_status.PARKED),
        ("heads", HELD),
        ("heads", held_lines.HEAD),
        ("heads", held_lines.BEHIND),
    ):
        clause = text(statement)
        values = {key: asked[key] for key in clause._bindparams}
        yield name, clause, values


_SUFFIX = {
    "waiting": "_lane_",
    "owned": "_owner_owner_epoch_idx",
    "ended": "_state_lane_updated_at_delivery_key_idx",
    "heads": "_lane_ordering_key_created_at_coalesce_m_idx",
}


def test_postgresql_reads_indexes_and_no_more_rows_than_the_bound(postgres: World) -> None:
    ledger = fill(postgres, 5_000)
    for name, clause, values in _statements(ledger):
        statement = spelt(clause, postgres)
        nodes = plan(postgres, statement, values)
        ran = [node for node in nodes if node.get("Actual Loops")]
        assert not [node for node in ran if node["Node Type"] == "Seq Scan"], statement
        read = {node["Index Name"] for node in ran if "Index Name" in node}
        ours = {index for index in read if index.startswith(today())}
        assert ours
        assert all(index.startswith(today(_SUFFIX[name])) for index in ours), (ours, statement)
        assert read_by(nodes) <= 1_100, f"{read_by(nodes)} rows: {statement}"


def test_sqlite_reads_indexes_only(sqlite_database: str) -> None:
    world = World(sqlite_database)
    try:
        ledger = fill(world, 1_000)
        for name, clause, values in _statements(ledger):
            with ledger.database.begin() as connection:
                asked = text(f"EXPLAIN QUERY PLAN {clause}")
                steps = [row[3] for row in connection.execute(asked, values)]
            assert any(f"INDEX deliveries_{name} (" in step for step in steps), steps
            assert not [step for step in steps if re.match(r"SCAN (d|h|deliveries)\b", step)], steps
    finally:
        world.close()
