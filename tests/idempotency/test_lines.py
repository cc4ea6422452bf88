"""Lines at work: races between those who end a head and those who queue behind it; what a look reads."""

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from sqlalchemy import text

from idempotency.claims import postgres as statements
from idempotency.claims.rows import ClaimBatch, ClaimRow
from idempotency.fleet.health import OVERDUE
from idempotency.fleet.held_lines import MOST_BEHIND
from idempotency.ledger import LedgerUnavailable, Settlement
from idempotency.lines import ASLEEP_AT, PG_WAKE, Line, PostgresLines
from idempotency.payload_cipher import PayloadCipher
from idempotency.recovery.contract import DueDelivery, DueQuery, RecoveryStore
from idempotency.recovery.statements import for_postgres, for_sqlite
from idempotency.sql_ledger import SqlLedger
from message.delivery import Delivery, Origin
from message.ids import new_token
from message.states import Event, State
from tests.harness.operator_moves import operator_retry
from tests.idempotency.making import (
    NOON,
    World,
    adopt,
    claims,
    delivery,
    settle,
    wait_until,
    worker,
)
from tests.idempotency.test_ledger_postgres import plan, today
from tests.idempotency.test_ledger_races import at_once

LANE = "sms.notice"
DRAINED = 450
"""Rows of the long line that are sent."""
LANES = frozenset({LANE})
ORDERED = DueQuery(LANE, 5, ordered=True)


def head_and_followers(ledger: SqlLedger, key: str, behind: int) -> list[Delivery]:
    """One row in flight and others behind it."""
    items = [delivery(ordering_key=key) for _ in range(behind + 1)]
    for offset, item in enumerate(items):
        item.origin = Origin("t", 0, offset)
    made = claims(items)
    return adopt(made, ledger.claim(made, "w1", ordered=True))


def look(rows: RecoveryStore, ask: DueQuery, owner: str) -> list[DueDelivery]:
    """What may go now: retries and first sends."""
    asks = (ask, msgspec.structs.replace(ask, first=True))
    return [taken for one in asks for taken in rows.take(one, owner, new_token()).taken]


def patiently(call: Callable[[], None]) -> None:
    """Until SQLite's one writer let it through."""
    while True:
        try:
            return call()
        except LedgerUnavailable:
            continue


def stuck(world: World) -> set[str]:
    """Keys of lines all of whose open rows sleep."""
    rows = world.rows(
        "SELECT ordering_key, state, next_at FROM deliveries"
        " WHERE ordering_key IS NOT NULL AND state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')"
    )
    awake = {key for key, state, at in rows if state != "RETRY" or at != ASLEEP_AT}
    return {key for key, *_ in rows} - awake


# -- races --


def test_who_queues_up_while_the_head_ends_is_not_left_asleep(world: World) -> None:
    ender, claimer = world.open(), world.open()
    for number in range(40):
        key = f"k{number}"
        (head,) = head_and_followers(ender, key, 0)
        at_once(
            [
                partial(settle, ender, head, Event.ACCEPTED, LANES),
                partial(head_and_followers, claimer, key, 0),
            ]
        )
        assert stuck(world) == set()


def test_an_outcome_that_ends_a_head_waits_for_a_claim_under_way_in_its_line(
    postgres: World,
) -> None:
    ledger = postgres.open()
    (head,) = head_and_followers(ledger, "k", 0)
    with (
        psycopg.connect(postgres.url.replace("+psycopg", "")) as claim,
        ThreadPoolExecutor(1) as pool,
    ):
        PostgresLines().lock(claim.execute, [Line(LANE, "k")])
        ended = pool.submit(settle, ledger, head, Event.ACCEPTED, LANES)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: ended.done() or claim.execute(waiting).fetchone() != (0,))
        assert not ended.done()
        other = delivery()
        made = claims([other])
        adopt(made, ledger.claim(made, "w1", ordered=True))
        assert settle(ledger, made[0].delivery, Event.ACCEPTED, LANES), "it waits for no line"
        claim.rollback()
        assert ended.result(30)


def test_a_head_that_was_claimed_later_is_woken_by_whoever_stands_behind_it(world: World) -> None:
    """The database's clock went back between two claims, so the second stands before the first."""
    ledger = world.open()
    ledger.register(worker("r1"))
    (first,) = head_and_followers(ledger, "k", 0)
    world.advance(-500)
    made = claims([delivery(ordering_key="k")])
    adopt(made, ledger.claim(made, "w1", ordered=True))
    world.advance(500)
    settle(ledger, first, Event.NOT_SENT, LANES)
    rows = ledger.recovering()
    (taken,) = look(rows, ORDERED, "r1")
    assert taken.delivery.key == made[0].delivery.key
    settle(ledger, taken.delivery, Event.ACCEPTED, LANES)
    assert [t.delivery.key for t in look(rows, ORDERED, "r1")] == [first.key]


def test_two_recoveries_at_one_lane_send_every_line_in_order(world: World) -> None:
    ledger = world.open()
    lines = [head_and_followers(ledger, f"k{n}", 9) for n in range(8)]
    place = {d.key: (n, at) for n, line in enumerate(lines) for at, d in enumerate(line)}
    for head, *_ in lines:
        settle(ledger, head, Event.NOT_SENT, LANES)
    sent: dict[int, list[int]] = defaultdict(list)

    def recover(name: str) -> None:
        mine = world.open()
        mine.register(worker(name))
        rows = mine.recovering()
        while len(sent) < len(lines) or sum(map(len, sent.values())) < len(place):
            for taken in look(rows, DueQuery(LANE, 5, ordered=True, limit=5), name):
                number, at = place[taken.delivery.key]
                sent[number].append(at)
                settle(mine, taken.delivery, Event.ACCEPTED, LANES)

    at_once([partial(patiently, partial(recover, name)) for name in ("r1", "r2")])
    assert dict(sent) == {number: list(range(10)) for number in range(len(lines))}


def test_whoever_ends_rows_at_once_leaves_no_line_asleep(world: World) -> None:
    """Outcomes, recalls, a person's retries and claims in the same few lines, all at the same time."""
    ledger = world.open()
    lines = [head_and_followers(ledger, f"k{n}", 12) for n in range(4)]
    rows = ledger.recovering()

    def end(line: list[Delivery]) -> None:
        mine = world.open()
        settle(mine, line[0], Event.REJECTED, LANES)

    def recall(line: list[Delivery]) -> None:
        for item in line[1:6]:
            found = rows.version_of(item.key)
            if found is not None and found[2] is State.RETRY:
                retry = operator_retry(item.key, *found)
                retry = retry._replace(event=Event.RECALL, reason="recalled")
                rows.move([retry])

    def queue(number: int) -> None:
        head_and_followers(world.open(), f"k{number}", 3)

    calls = [partial(end, line) for line in lines] + [partial(recall, line) for line in lines]
    calls += [partial(queue, number) for number in range(4)]
    at_once([partial(patiently, call) for call in calls])
    assert stuck(world) == set()


# -- what a look reads --


def fill(world: World, behind: int) -> SqlLedger:
    """A line of so many rows, its head failed and due, and what else a lane has."""
    ledger = world.open()
    ledger.register(worker("r1"))
    (head,) = head_and_followers(ledger, "k", 0)
    settle(ledger, head, Event.NOT_SENT, LANES, reason="http_429")
    columns = [
        name
        for (name,) in world.rows(
            "SELECT name FROM pragma_table_info('deliveries')"
            if not world.is_postgres
            else "SELECT column_name FROM information_schema.columns"
            " WHERE table_name = 'deliveries' ORDER BY ordinal_position"
        )
    ]
    changed = {
        "delivery_key": "'row' || n",
        "message_id": "'message' || n",
        "state": "'RETRY'",
        "reason": "'behind'",
        "next_at": str(ASLEEP_AT),
        "created_at": "created_at + n",
    }
    picked = ", ".join(changed.get(name, name) for name in columns)
    series = (
        f"generate_series(1, {behind}) AS s (n)"
        if world.is_postgres
        else f"(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {behind})"
        " SELECT n FROM s)"
    )
    with ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO deliveries ({', '.join(columns)})"
            f" SELECT {picked} FROM deliveries, {series} WHERE delivery_key = '{head.key}'"
        )
    return ledger


def read_by(nodes: list[dict[str, Any]]) -> int:
    """Rows that the plan's scans touched, those filtered out among them."""
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes
        if "Scan" in node["Node Type"] and "Relation Name" in node
    )


def looks(world: World) -> dict[str, tuple[set[str], int]]:
    """Each statement that knows lines: the indexes of today's rows that it reads, and how many rows."""
    batch = ClaimBatch(claims([delivery(ordering_key="k")]), PayloadCipher())
    claim = statements.columns(ClaimRow._fields, batch.rows) | statements.shared_columns({})
    of_line = {"lane": LANE, "start": "", "now": NOON, "limit": 10, "ordered": True, "again": True}
    sql = for_postgres()
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "claim": (statements.CLAIM_IN_LINE, claim | {"owner": "w1", "epoch": 1}),
        "wake": (PG_WAKE, {"lanes": f"{{{LANE}}}", "keys": "{k}"}),
    }
    for name, clause in (("due", sql.due), ("stuck", sql.stuck)):
        values = {key: of_line[key] for key in clause._bindparams}
        asked[name] = (spelt(clause, world), values)
    found = {}
    for name, (statement, values) in asked.items():
        nodes = plan(world, statement, values)
        read = {n["Index Name"] for n in nodes if n.get("Actual Loops") and "Index Name" in n}
        assert not [n for n in nodes if n["Node Type"] == "Seq Scan" and n.get("Actual Loops")]
        assert not [n for n in nodes if n["Node Type"] == "Sort" and n["Actual Rows"] > 10]
        found[name] = ({index for index in read if index.startswith(today())}, read_by(nodes))
    return found


def spelt(clause: Any, world: World) -> str:
    with world.open().database.begin() as connection:
        return str(clause.compile(connection))


def test_what_a_look_reads_does_not_grow_with_the_rows_behind(postgres: World) -> None:
    fill(postgres, 20)
    few = looks(postgres)
    postgres.run("DELETE FROM deliveries")
    fill(postgres, 5_000)
    many = looks(postgres)
    for name, (indexes, rows) in many.items():
        assert rows == few[name][1] <= 12, f"{name}: {few[name][1]} rows of 20, {rows} of 5,000"
        assert today("_lane_ordering_key_created_at_coalesce_m_idx") in indexes, name


def test_sqlite_finds_a_head_by_its_index(sqlite_database: str) -> None:
    world = World(sqlite_database)
    try:
        ledger = fill(world, 1_000)
        of_line = {
            "lane": LANE,
            "start": "",
            "now": NOON,
            "limit": 10,
            "ordered": True,
            "again": True,
        }
        with ledger.database.begin() as connection:
            for clause in (for_sqlite().due, for_sqlite().stuck):
                values = {name: of_line[name] for name in clause._bindparams}
                asked = text(f"EXPLAIN QUERY PLAN {clause}")
                steps = [row[3] for row in connection.execute(asked, values)]
                assert any("deliveries_heads (lane=? AND ordering_key=?)" in s for s in steps)
                assert not [s for s in steps if re.match(r"SCAN (d|h|deliveries)\b|.*B-TREE", s)]
    finally:
        world.close()


def test_a_long_line_goes_oldest_first(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("r1"))
    rows = ledger.recovering()
    line = head_and_followers(ledger, "k", 30)
    settle(ledger, line[0], Event.NOT_SENT, LANES)
    order = []
    while taken := look(rows, ORDERED, "r1"):
        assert len(taken) == 1, "one of a line at a time"
        order.append(taken[0].delivery.key)
        settle(ledger, taken[0].delivery, Event.ACCEPTED, LANES)
    assert order == [item.key for item in line]


@pytest.mark.soak(small="::test_what_a_look_reads_does_not_grow_with_the_rows_behind")
def test_a_key_of_100_000_rows_drains_at_one_speed_and_in_flat_memory(postgres: World) -> None:
    """Each row that ended leaves a dead entry before the next head, until a vacuum takes them."""
    ledger = fill(postgres, 100_000)
    rows, took, memory = ledger.recovering(), [], []
    for _ in range(DRAINED):
        began = time.perf_counter()
        (taken,) = look(rows, ORDERED, "r1")
        assert settle(ledger, taken.delivery, Event.ACCEPTED, LANES)
        took.append(time.perf_counter() - began)
        memory.append(_resident_kib())
    early, late = (statistics.median(part) for part in (took[50:200], took[-150:]))
    assert late < 2.5 * early, f"{early * 1_000:.1f} ms a row at first, {late * 1_000:.1f} at last"
    assert memory[-1] - memory[50] < 16 * 1_024, f"{memory[50]} KiB, then {memory[-1]}"
    (line,) = ledger.held_lines().lines_waiting(LANE, 1).lines
    assert line.behind == MOST_BEHIND + 1


def test_no_look_reads_past_what_was_given_back(postgres: World) -> None:
    """It waits for its Kafka record's next reader."""
    ledger = fill(postgres, 0)
    made = claims([delivery() for _ in range(500)])
    back = adopt(made, ledger.claim(made, "w1"))
    ledger.settle([Settlement(item, Event.GIVEN_BACK) for item in back])
    postgres.advance(1_000)
    now = {
        "lane": LANE,
        "now": postgres.now,
        "limit": 10,
        "ordered": True,
        "again": False,
        "bound": 100,
    }
    sql = for_postgres()
    asked = [sql.due, sql.backlog, text(sql.due_lanes.format(lanes="(:lane)"))]
    asked.append(text(OVERDUE.format(least="least", lanes="(:lane)")))
    for clause in asked:
        nodes = plan(postgres, spelt(clause, postgres), {n: now[n] for n in clause._bindparams})
        assert read_by(nodes) <= 3, f"{read_by(nodes)} rows: {clause}"


def _resident_kib() -> int:
    status = Path("/proc/self/status").read_text("ascii").splitlines()
    (found,) = [line.split()[1] for line in status if line.startswith("VmRSS:")]
    return int(found)
