"""What only PostgreSQL has: partitions, plans, connections that a server may cut."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from backends.settings import DatabaseSettings, Settings
from backends.sql import database as sql
from backends.sql import schema
from backends.sql.database import Database, database_url
from backends.sql.pg_arrays import byte_array
from idempotency.claims import postgres
from idempotency.claims.rows import ClaimBatch, ClaimRow, OutcomeRow, change
from idempotency.claims.store import MS_PER_DAY, TakeoverRow
from idempotency.ledger import LedgerUnavailable, Settlement
from idempotency.partitions import DAYS_AHEAD, LOCK, ensure_partitions, partition_name
from idempotency.payload_cipher import PayloadCipher
from idempotency.sql_ledger import upgrade
from message.states import Event
from tests.harness.stopped import stop
from tests.idempotency.making import (
    NOON,
    World,
    claimed,
    claims,
    delivery,
    settle,
    wait_until,
    worker,
)

TODAY = NOON // MS_PER_DAY


def partitions(world: World) -> set[str]:
    return {
        name
        for (name,) in world.rows(
            "SELECT inhrelid::regclass::text FROM pg_inherits"
            " WHERE inhparent = 'deliveries'::regclass"
        )
    }


# -- partitions --


def test_partitions_are_made_ahead_and_only_once(postgres: World) -> None:
    ledger = postgres.open()
    wanted = {partition_name("deliveries", TODAY + n) for n in range(DAYS_AHEAD + 1)}
    assert wanted <= partitions(postgres)
    assert ledger.maintain() == []
    postgres.advance(MS_PER_DAY)
    assert ledger.maintain() == [
        partition_name(table, TODAY + DAYS_AHEAD + 1) for table in ("deliveries", "payloads")
    ]


def test_a_row_stands_in_the_partition_of_its_day(postgres: World) -> None:
    claimed(postgres.open(), delivery())
    assert postgres.rows("SELECT tableoid::regclass::text FROM deliveries") == [
        (partition_name("deliveries", TODAY),)
    ]


def test_a_day_without_partition_is_refused_nothing(postgres: World) -> None:
    ledger = postgres.open()
    postgres.advance(30 * MS_PER_DAY)
    (item,) = claimed(ledger, delivery())
    assert postgres.rows("SELECT tableoid::regclass::text FROM deliveries") == [
        ("deliveries_default",)
    ]
    made = ledger.maintain()
    assert partition_name("deliveries", TODAY + 30) not in made
    assert partition_name("deliveries", TODAY + 31) in made
    assert settle(ledger, item, Event.ACCEPTED)


def test_sweeping_makes_the_coming_days(postgres: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = postgres.open()
    postgres.advance(MS_PER_DAY)
    name = partition_name("deliveries", TODAY + DAYS_AHEAD + 1)
    ledger.sweep()
    assert name not in partitions(postgres), "not at every sweep"
    monkeypatch.setattr(ledger, "_maintain_at", 0.0)
    ledger.sweep()
    assert name in partitions(postgres)


@contextmanager
def long_reader(world: World) -> Iterator[None]:
    """Holds the locks of one who reads all partitions, as a backup does."""
    with psycopg.connect(world.url.replace("+psycopg", "")) as reader:
        reader.execute("SELECT count(*) FROM deliveries JOIN payloads USING (day)")
        yield


def test_a_long_reader_ends_neither_a_start_nor_a_sweep_while_the_next_days_are_there(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = postgres.open()
    ledger.register(worker())
    postgres.advance(MS_PER_DAY)
    (dead,) = claimed(ledger, delivery())
    postgres.advance(60_000)
    with long_reader(postgres), capture_logs() as logs:
        began = time.monotonic()
        postgres.open()
        monkeypatch.setattr(ledger, "_maintain_at", 0.0)
        assert ledger.sweep() == [("w1", 1)], "the sweep itself is done"
        assert time.monotonic() - began < sql.BUSY_MS / 1_000
    assert [one["event"] for one in logs].count("ledger.partitions_wait") == 2
    assert postgres.states()[dead.key] == "UNKNOWN"
    assert ledger.maintain() == [
        partition_name(table, TODAY + DAYS_AHEAD + 1) for table in ("deliveries", "payloads")
    ]


def test_what_is_there_is_found_without_a_lock(postgres: World) -> None:
    ledger = postgres.open()
    with psycopg.connect(postgres.url.replace("+psycopg", "")) as archiving, capture_logs() as logs:
        archiving.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        archiving.execute("LOCK TABLE deliveries_default IN ACCESS EXCLUSIVE MODE")
        assert ledger.maintain() == []
    assert logs == []


def test_a_partition_of_tomorrow_is_waited_for_and_tried_again_soon(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sql._SESSION, "lock_timeout", "400")
    ledger = postgres.open()
    postgres.advance(DAYS_AHEAD * MS_PER_DAY)
    with long_reader(postgres), pytest.raises(LedgerUnavailable, match="lock timeout"):
        ledger.maintain()
    assert ledger._maintain_at - time.monotonic() < 600
    assert partition_name("deliveries", TODAY + DAYS_AHEAD + 1) in ledger.maintain()
    assert ledger._maintain_at - time.monotonic() > 3_600


def test_a_day_in_the_default_partition_makes_no_other_urgent(postgres: World) -> None:
    ledger = postgres.open()
    ledger.register(worker())
    postgres.run(f"DROP TABLE {partition_name('deliveries', TODAY)}")
    claimed(ledger, delivery())
    postgres.run(f"DROP TABLE {partition_name('payloads', TODAY + DAYS_AHEAD)}")
    with long_reader(postgres), capture_logs() as logs:
        assert ledger.maintain() == []
    assert "ledger.partitions_wait" in [one["event"] for one in logs]
    assert ledger.maintain() == [partition_name("payloads", TODAY + DAYS_AHEAD)]


def test_whoever_waits_to_make_partitions_holds_no_table_up(postgres: World) -> None:
    """Another process makes them under the same lock, and attaching needs the default partition."""
    database = postgres.open().database
    postgres.run(f"DROP TABLE {partition_name('deliveries', TODAY)}")
    plain_url = postgres.url.replace("+psycopg", "")
    with psycopg.connect(plain_url) as other, ThreadPoolExecutor(1) as pool:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        made = pool.submit(ensure_partitions, database)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: made.done() or other.execute(waiting).fetchone() != (0,))
        assert not made.done()
        other.execute("LOCK TABLE deliveries_default IN ACCESS EXCLUSIVE MODE NOWAIT")
        other.rollback()
        assert made.result(30) == [partition_name("deliveries", TODAY)]


def test_a_role_that_may_make_no_tables_still_opens(postgres: World) -> None:
    database = postgres.open().database
    with database.begin() as connection:
        connection.exec_driver_sql("CREATE ROLE plain NOLOGIN") if not connection.exec_driver_sql(
            "SELECT 1 FROM pg_roles WHERE rolname = 'plain'"
        ).first() else None
        connection.exec_driver_sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
    plain = Database(
        database_url(postgres.url).update_query_dict({"options": "-c role=plain"}), pool_size=1
    )
    postgres.advance(MS_PER_DAY)
    assert ensure_partitions(plain) == []
    plain.close()


def test_a_day_can_be_archived_whole(postgres: World) -> None:
    ledger = postgres.open()
    (item,) = claimed(ledger, delivery())
    postgres.run(f"ALTER TABLE deliveries DETACH PARTITION {partition_name('deliveries', TODAY)}")
    with pytest.raises(LedgerUnavailable, match="archived"):
        ledger.claim(claims([item]), "w1")
    postgres.run("DELETE FROM delivery_keys WHERE day <= %s", (TODAY,))
    postgres.advance(MS_PER_DAY)
    assert ledger.claim(claims([item]), "w1")[0].won


def test_an_upgrade_waits_for_the_one_under_way(database: str) -> None:
    settings = Settings(database=DatabaseSettings(url=database))
    with (
        psycopg.connect(database.replace("+psycopg", "")) as first,
        ThreadPoolExecutor(1) as pool,
    ):
        first.execute("SELECT pg_advisory_xact_lock(%s)", (schema._LOCK,))
        second = pool.submit(upgrade, settings)
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: second.done() or first.execute(waiting).fetchone() != (0,))
        assert not second.done()
        first.rollback()
        assert second.result(30)[0] == ""


# -- plans --


def plan(world: World, statement: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Every node of the generic plan, as the hot connections make and run it."""
    with world.open().database.connection() as connection:
        asked = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        (row,) = connection.execute(asked, values).fetchone()
        connection.rollback()
    top = row[0] if isinstance(row, list) else json.loads(row)[0]
    return list(_nodes(top["Plan"]))


def _nodes(node: dict[str, Any]) -> Any:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def scans(nodes: list[dict[str, Any]]) -> set[str]:
    """What was really read: an index by its name, a table read without one by its own."""
    read = [n for n in nodes if n.get("Actual Loops") and "Scan" in n["Node Type"]]
    return {n["Index Name"] for n in read if "Index Name" in n} | {
        n["Relation Name"] for n in read if n["Node Type"] in ("Seq Scan", "Sample Scan")
    }


@pytest.fixture(params=["no statistics", "statistics of an empty table"])
def full(request: pytest.FixtureRequest, postgres: World) -> World:
    """A ledger with a few hundred rows in flight, of which the statistics know nothing."""
    ledger = postgres.open()
    if request.param != "no statistics":
        postgres.run("ANALYZE")
    ledger.register(worker())
    claimed(ledger, *[delivery(ordering_key=f"k{n}") for n in range(300)])
    return postgres


def today(suffix: str = "") -> str:
    return partition_name("deliveries", TODAY) + suffix


def test_settling_finds_rows_by_key_in_the_partitions_of_the_batch(full: World) -> None:
    items = claimed(full.open(), *[delivery() for _ in range(50)])
    values = postgres.columns(
        OutcomeRow._fields, [change(Settlement(d, Event.ACCEPTED)) for d in items]
    )
    nodes = plan(full, postgres.SETTLE, values)
    assert scans(nodes) == {today("_pkey")}
    assert rows_made(nodes) == [50]


@pytest.mark.parametrize("statement", [postgres.TAKE, postgres.LOOK])
def test_looking_finds_rows_by_key_in_the_partitions_of_the_batch(
    full: World, statement: str
) -> None:
    items = claimed(full.open(), *[delivery() for _ in range(50)])
    values = postgres.columns(
        TakeoverRow._fields, [TakeoverRow(d.key, 1, b"x" * 16, takes=True) for d in items]
    ) | {"owner": "w1", "epoch": None}
    nodes = plan(full, statement, values)
    assert scans(nodes) - {"workers_pkey"} == {"delivery_keys_pkey", today("_pkey")}


def of_a_claim() -> dict[str, Any]:
    """Values of a claim of fifty deliveries, each in a line of its own."""
    batch = ClaimBatch(claims([delivery(ordering_key=f"k{n}") for n in range(50)]), PayloadCipher())
    values = postgres.columns(ClaimRow._fields, batch.rows)
    return values | postgres.shared_columns({}) | {"owner": "w1", "epoch": 1}


@pytest.mark.parametrize("statement", [postgres.CLAIM, postgres.CLAIM_IN_LINE])
def test_claiming_reads_nothing_but_its_line(full: World, statement: str) -> None:
    nodes = plan(full, statement, of_a_claim())
    read = {name for name in scans(nodes) if name.startswith(today())}
    in_line = statement is postgres.CLAIM_IN_LINE
    assert read == ({today("_lane_ordering_key_created_at_coalesce_m_idx")} if in_line else set())
    hashed = [n for n in nodes if "hashed SubPlan" in n.get("Filter", "")]
    assert hashed, "a nested loop over the batch would cost its square"


@pytest.mark.parametrize(
    ("condition", "index"),
    [
        ("state = 'IN_FLIGHT' AND owner = 'w1'", "_owner_owner_epoch_idx"),
        ("state = 'IN_FLIGHT'", "_owner_owner_epoch_idx"),
        (
            "state = 'RETRY' AND lane = 'sms.notice' AND least(next_at, expires_at) <= 5",
            "_lane_least_idx",
        ),
        (
            "state = 'UNKNOWN' AND lane = 'sms.notice' AND coalesce(next_at, updated_at) <= 5",
            "_lane_coalesce_idx",
        ),
        ("message_id = 'm'", "_message_id_idx"),
        ("biz_id = 'b'", "_biz_id_idx"),
    ],
)
def test_the_scans_of_sweep_recovery_and_console_have_their_index(
    full: World, condition: str, index: str
) -> None:
    query = f"SELECT owner FROM deliveries WHERE day = {TODAY} AND {condition}"
    assert scans(plan(full, query, {})) == {today(index)}


def test_settling_and_claiming_at_once_read_what_each_reads(full: World) -> None:
    items = claimed(full.open(), *[delivery() for _ in range(50)])
    changes = [change(Settlement(d, Event.ACCEPTED)) for d in items]
    values = {f"settled_{k}": v for k, v in postgres.columns(OutcomeRow._fields, changes).items()}
    batch = ClaimBatch(claims([delivery() for _ in range(50)]), PayloadCipher())
    values |= postgres.columns(ClaimRow._fields, batch.rows) | postgres.shared_columns({})
    nodes = plan(full, postgres.SETTLE_AND_CLAIM, values | {"owner": "w1", "epoch": 1})
    assert {name for name in scans(nodes) if name.startswith(today())} == {today("_pkey")}


@pytest.mark.parametrize("statement", [postgres.CLAIM, postgres.CLAIM_IN_LINE])
def test_the_columns_of_a_claim_become_rows_in_one_step(full: World, statement: str) -> None:
    """As a table of `unnest`, each column would be kept apart first (docs/decisions/313)."""
    nodes = plan(full, statement, of_a_claim())
    assert rows_made(nodes) == [50]
    assert not [n for n in nodes if n["Node Type"] == "Function Scan" and n["Actual Rows"]]


def rows_made(nodes: list[dict[str, Any]]) -> list[int]:
    """Returns how many rows each list of `unnest` made."""
    return [n["Actual Rows"] for n in nodes if n["Node Type"] == "ProjectSet"]


def test_a_column_of_nulls_travels_as_an_empty_array() -> None:
    found = postgres.columns(("key", "reason", "receiver"), [("a", None, None), ("b", None, None)])
    assert found["key"] == '{"a","b"}'
    assert found["reason"] == "{}"
    assert found["receiver"] == byte_array(())
    mixed = postgres.columns(("reason",), [(None,), ("late",)])
    assert mixed["reason"] == '{null,"late"}'


def test_statements_are_short_enough_for_the_drivers_cache() -> None:
    """psycopg converts longer ones anew each time: MAX_CACHED_STATEMENT_LENGTH in its _queries.py."""
    for statement in (postgres.CLAIM, postgres.CLAIM_IN_LINE, postgres.TAKE, postgres.SETTLE):
        assert len(statement) <= 4_096


# -- a server that goes --


def cut_connections(world: World) -> None:
    server, _, name = world.url.replace("+psycopg", "").rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
        cut_connections_by(admin, name)


def cut_connections_by(admin: psycopg.Connection[Any], name: str) -> None:
    admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
    )


def test_after_the_server_cut_every_connection_one_call_fails_and_no_more(
    postgres: World,
) -> None:
    ledger = postgres.open()
    with ledger.database.connection(), ledger.database.connection():
        pass  # two idle ones now
    made = claims([delivery()])
    cut_connections(postgres)
    with pytest.raises(LedgerUnavailable):
        ledger.claim(made, "w1")
    connection = ledger.database.connection
    with connection() as one, connection() as two:
        assert one.execute("SELECT 1").fetchone() == two.execute("SELECT 1").fetchone() == (1,)
    assert ledger.claim(made, "w1")[0].won


def test_a_server_that_was_stopped_is_unavailable_until_it_is_back(postgres: World) -> None:
    """The same as a stop to its clients: nobody may connect, and who was connected is cut off."""
    ledger = postgres.open()
    made = claims([delivery()])
    server, _, name = postgres.url.replace("+psycopg", "").rpartition("/")
    with psycopg.connect(f"{server}/postgres", autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
        cut_connections_by(admin, name)
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                ledger.claim(made, "w1")
            with pytest.raises(LedgerUnavailable):
                ledger.sweep()
        admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')
    assert ledger.claim(made, "w1")[0].won
    assert ledger.sweep() == [("w1", 1)]


def test_a_server_that_is_frozen_is_unavailable_in_time(
    postgres: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = postgres.open()
    made = claims([delivery()])
    with ledger.database.connection() as connection:
        pid = connection.info.backend_pid
    monkeypatch.setattr(sql, "ANSWER_S", 0.3)
    stop(pid)
    try:
        with pytest.raises(LedgerUnavailable, match="timeout"):
            ledger.claim(made, "w1")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ledger.claim(made, "w1")[0].won


def test_a_database_that_has_become_read_only_is_unavailable(postgres: World) -> None:
    ledger = postgres.open()
    with ledger.database.connection() as connection:
        connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(LedgerUnavailable, match="read-only"):
        ledger.claim(claims([delivery()]), "w1")
    assert ledger.claim(claims([delivery()]), "w1")[0].won


def test_waiting_for_a_lock_ends_in_unavailable(postgres: World) -> None:
    ledger = postgres.open()
    with ledger.database.connection() as connection:
        connection.execute("SELECT set_config('lock_timeout', '50', false)")
    (item,) = claimed(ledger, delivery())
    with postgres.open().database.connection() as holder, holder.transaction():
        holder.execute("LOCK TABLE deliveries")
        with pytest.raises(LedgerUnavailable, match="lock timeout"):
            settle(ledger, item, Event.ACCEPTED)
    assert settle(ledger, item, Event.ACCEPTED)


def test_commits_are_synchronous_whatever_the_database_says(postgres: World) -> None:
    name = postgres.url.rpartition("/")[2]
    postgres.run(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    with postgres.open().database.connection() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
