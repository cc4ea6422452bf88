"""Searches on PostgreSQL read the index meant for them, in the days meant for them and no others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import event, text

from backends.sql.database import Database
from idempotency.claims.store import MS_PER_DAY
from idempotency.partitions import ensure_partitions, partition_name
from idempotency.search.language import parse
from idempotency.search.statements import (
    Cursor,
    ReceiverHashes,
    SearchSpan,
    ended_page,
    ended_scans,
    equal,
    filters,
    in_time,
    of_place,
    opened,
    page,
    under_way,
    ways,
)
from idempotency.search.store import SEARCH_SESSION, Search
from idempotency.sql_ledger import SqlLedger
from message.receiver_hash import no_hash
from tests.harness.databases import fresh_ledger
from tests.idempotency.making import NOON, World
from tests.services import Services

TODAY = NOON // MS_PER_DAY
ROWS = 8_000
RECEIVER = ReceiverHashes([b"x" * 32, b"y" * 32], [b"z" * 16, b"w" * 16])
PATIENCE_MS = "60000"
"""A plan is judged, not its time: on a busy machine it takes longer than a search may."""
_FILL = f"""
INSERT INTO deliveries (delivery_key, day, token, created_at, updated_at, expires_at, attempt, owner_epoch,
                        state, lane, owner, message_id, receiver, body_digest, policy_version, biz_id,
                        provider_id, account, template, receiver_hash, receiver_text_hash, resend_of,
                        kafka_topic, kafka_partition, kafka_offset, reason)
SELECT md5(n::text || '/' || d), d, n, d * 86400000::bigint + n * 10000, d * 86400000::bigint + n * 10000,
       d * 86400000::bigint, 1, 1, CASE WHEN mod(n, 50) = 0 THEN 'PARKED' ELSE 'SENT' END,
       CASE WHEN mod(n, 2) = 0 THEN 'sms.notice' ELSE 'email.notice' END, 'w1', md5('m' || n || d),
       'r', 'x', 'v1', 'b' || n, 'p' || n, 'main', 't' || mod(n, 20), sha256(('r' || n)::bytea),
       CASE WHEN mod(n, 2) = 0 THEN substring(sha256(('t' || n)::bytea) FROM 1 FOR 16) END,
       CASE WHEN mod(n, 100) = 0 THEN 'o' || n END, 'hongyan.dispatch.sms.notice', mod(n, 4), n,
       CASE WHEN mod(n, 100) = 0 THEN 'r' || mod(n, 500) || ':x' WHEN mod(n, 50) = 0 THEN 'r50' END
  FROM generate_series(1, {ROWS}) AS n, generate_series({TODAY}, {TODAY + 6}) AS d"""


DAYS = 60


@pytest.fixture(scope="module")
def long(services: Services) -> Iterator[SqlLedger]:
    """Sixty days of few rows each. No test writes to it."""
    few = _FILL.replace(f"series(1, {ROWS})", "series(1, 60)").replace(
        f"{TODAY + 6})", f"{TODAY + DAYS - 1})"
    )
    with filled(services, few, days=DAYS) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def full(services: Services) -> Iterator[SqlLedger]:
    """A week of many rows. No test writes to it."""
    with filled(services, _FILL) as ledger:
        yield ledger


@contextmanager
def filled(services: Services, rows: str, days: int = 0) -> Iterator[SqlLedger]:
    services.require("postgres")
    with fresh_ledger(services.stack.database_url) as url:
        world = World(url)
        ledger = world.open()
        if days:
            ensure_partitions(ledger.database, days)
        world.run(rows)
        world.run("VACUUM ANALYZE deliveries")
        yield ledger
        world.close()


def scans(ledger: SqlLedger, statement: str, values: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns (partition, index) of every scan; the index is empty for one that reads the table whole."""
    used = set(re.findall(r"(?<!:):(\w+)", statement))
    given = {name: value for name, value in (values | {"limit": 51}).items() if name in used}
    with ledger.database.begin() as connection:
        connection.execute(text(SEARCH_SESSION), {"timeout": PATIENCE_MS})
        names = {name: f"${number}" for number, name in enumerate(given, 1)}
        spelt = re.sub(r"(?<!:):(\w+)", lambda name: names[name[1]], statement)
        connection.exec_driver_sql(f"PREPARE asked AS {spelt}")
        shown = connection.connection.driver_connection
        assert shown is not None
        literals = ", ".join(literal(value, shown) for value in given.values())
        found = connection.exec_driver_sql(
            f"EXPLAIN (FORMAT JSON) EXECUTE asked ({literals})".replace("%", "%%")
        ).scalar_one()
        connection.exec_driver_sql("DEALLOCATE asked")
    plan = found if isinstance(found, list) else json.loads(found)
    return list(_scans(plan[0]["Plan"], ""))


def literal(value: Any, connection: Any) -> str:
    return str(sql.Literal(value).as_string(connection))


def _scans(node: dict[str, Any], table: str) -> Iterator[tuple[str, str]]:
    table = node.get("Relation Name", table)
    if "Index Name" in node:
        yield table, node["Index Name"]
    elif node["Node Type"] == "Seq Scan":
        yield table, ""
    for child in node.get("Plans", []):
        yield from _scans(child, table)


def span(days: int = 2) -> SearchSpan:
    last = TODAY + 5
    first = last - days + 1
    return SearchSpan(first * MS_PER_DAY, (last + 1) * MS_PER_DAY, (first, last))


def tables(found: list[tuple[str, str]]) -> set[str]:
    return {table for table, _index in found if table != "deliveries_default"}


def indexes(found: list[tuple[str, str]]) -> list[str]:
    """The indexes of days. Of an empty table any index may be read."""
    return [index for table, index in found if table != "deliveries_default"]


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_each_term_reads_its_index_in_its_days(full: SqlLedger) -> None:
    for column, value, index in (
        ("message_id", "m", "message_id"),
        ("biz_id", "b7", "biz_id"),
        ("provider_id", "p7", "provider_id"),
        ("resend_of", "o100", "resend_of"),
        ("template", "t3", "template"),
    ):
        ((conditions, values),) = ways(column, value)
        statement, more = page("deliveries", conditions, span(), None)
        found = scans(full, statement, values | more)
        assert len(tables(found)) == 2, column
        assert all(index in name for _table, name in found), (column, found)


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_a_receiver_is_read_by_its_text_and_in_old_rows_by_its_channels(full: SqlLedger) -> None:
    both = ways("receiver", RECEIVER)
    for (conditions, values), index in zip(
        both, ("receiver_text_hash", "receiver_hash"), strict=True
    ):
        statement, more = page("deliveries", conditions, span(), None)
        found = scans(full, statement, values | more)
        assert len(tables(found)) == 2, index
        assert all(f"_{index}_created_at" in name for name in indexes(found)), found


@pytest.mark.stack
def test_the_index_that_an_older_console_reads_serves_no_search_of_ours(services: Services) -> None:
    with filled(services, _FILL) as ledger:
        with ledger.database.connection() as connection:
            connection.execute(
                "CREATE INDEX deliveries_receiver ON deliveries (receiver_hash, created_at)"
                " WHERE receiver_hash IS NOT NULL AND state <> 'IN_FLIGHT'"
            )
            found = connection.execute(
                "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
                " WHERE i.inhparent = 'deliveries_receiver'::regclass"
            ).fetchall()
        older = {name for (name,) in found}
        assert older
        for conditions, values in ways("receiver", RECEIVER):
            statement, more = page("deliveries", conditions, span(), None)
            assert not older & {*indexes(scans(ledger, statement, values | more))}


@pytest.mark.stack
@pytest.mark.usefixtures("services")
@pytest.mark.parametrize("line", ["since:1h", "lane:sms.notice state:SENT"])
def test_a_slice_of_time_reads_one_day_by_the_index_of_times(full: SqlLedger, line: str) -> None:
    at = (TODAY + 3) * MS_PER_DAY + 40_000_000
    terms = parse(line, NOON)
    conditions, values = filters(terms)
    own, timed = in_time(terms, postgres=True)
    one = SearchSpan(at, at + 60_000, (TODAY + 3, TODAY + 3))
    after = Cursor(at + 30_000, "k")
    statement, more = page("deliveries", [*own, *conditions], one, after, timed=timed)
    (found,) = scans(full, statement, values | more)
    assert found == (partition_name("deliveries", TODAY + 3), f"{found[0]}_expr_idx")


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_accounts_are_read_by_their_index_in_one_day(full: SqlLedger) -> None:
    at = (TODAY + 3) * MS_PER_DAY + 40_000_000
    one = SearchSpan(at, at + 3_600_000, (TODAY + 3, TODAY + 3))
    for line in ("account:main", "account:main,other", "lane:sms.notice account:main"):
        terms = parse(line, NOON)
        conditions, values = filters(terms)
        statement, more = page(
            "deliveries", [*in_time(terms, postgres=True)[0], *conditions], one, None
        )
        (found,) = scans(full, statement, values | more)
        assert found[0] == partition_name("deliveries", TODAY + 3)
        assert "account_created_at" in found[1], line


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_a_place_reads_its_index_in_its_days(full: SqlLedger) -> None:
    conditions, values = filters(parse("place:hongyan.dispatch.sms.notice/3/7", NOON))
    statement, more = page("deliveries", [*of_place(), *conditions], span(), None)
    found = scans(full, statement, values | more)
    assert len(tables(found)) == 2
    assert all("kafka_partition_kafka_offset" in index for index in indexes(found)), found


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_rows_under_way_are_read_by_their_owner(full: SqlLedger) -> None:
    for line in ("account:main", "account:main lane:sms.notice"):
        wanted = under_way(parse(line, NOON))
        assert wanted is not None
        statement, more = page("deliveries", wanted[0], span(), None)
        found = scans(full, statement, wanted[1] | more)
        assert len(tables(found)) == 2
        read = [name for table, name in found if table != "deliveries_default"]
        assert all("owner_owner_epoch" in name for name in read), (line, found)
    hashed, values = equal([("receiver", RECEIVER)])
    wanted = under_way(parse("receiver:x", NOON))
    assert wanted is not None
    statement, more = page("deliveries", [*wanted[0], *hashed], span(), None)
    found = scans(full, statement, wanted[1] | values | more)
    read = [name for table, name in found if table != "deliveries_default"]
    assert all("owner_owner_epoch" in name for name in read), found


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_what_ended_unsent_reads_an_index_that_gives_its_order(full: SqlLedger) -> None:
    by_lane, of_all = "state_lane_updated_at", "state_updated_at_lane"
    for line, index in (
        ("state:PARKED,REJECTED lane:sms.notice,email.notice", by_lane),
        ("state:PARKED lane:sms.*", by_lane),
        ("state:PARKED", of_all),
        ("state:PARKED,REJECTED,EXPIRED lane:sms.*", of_all),
        ("state:PARKED account:main", of_all),
    ):
        terms = parse(line, NOON + 3 * MS_PER_DAY)
        statement, values = ended_page("deliveries", terms, span(3), None, postgres=True)
        found = scans(full, statement, values)
        assert len(tables(found)) == 3
        # The default partition is empty: which of its indexes is read is chance.
        read = [name for table, name in found if table != "deliveries_default"]
        assert all(index in name for name in read), (line, found)


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_what_ended_unsent_is_looked_for_in_all_days_by_one_plan_a_line(long: SqlLedger) -> None:
    """The text has neither days nor states: a plan over sixty days costs ten times its execution."""
    at = (TODAY + DAYS) * MS_PER_DAY
    for line, index, scan_count in (
        ("state:PARKED,REJECTED lane:sms.notice,email.notice", "state_lane_updated_at", 4),
        ("state:PARKED,REJECTED,EXPIRED lane:sms.*", "state_updated_at_lane", 3),
        ("error:r50", "split_part_updated_at_lane", 1),
    ):
        one = SearchSpan(at - 3_600_000, at)
        asked = ended_scans("deliveries", parse(line, at), one, None)
        assert len(asked) == scan_count
        assert len({statement for statement, _values in asked}) == 1, line
        read = scans(long, *asked[0])
        assert {partition_name("deliveries", TODAY + n) for n in range(DAYS)} <= tables(read)
        assert all(index in name for name in indexes(read)), (line, read)


CLASS_LINES = (
    "error:r50",
    "error:r50:x",
    "error:r50 lane:sms.*",
    "error:r50 state:PARKED lane:sms.notice",
)


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_an_error_class_reads_its_index_in_its_days_and_no_other_class(full: SqlLedger) -> None:
    for line in CLASS_LINES:
        terms = parse(line, NOON + 3 * MS_PER_DAY)
        statement, values = ended_page("deliveries", terms, span(3), None, postgres=True)
        found = scans(full, statement, values)
        assert len(tables(found)) == 3, line
        assert all("split_part_updated_at_lane" in index for _table, index in found), (line, found)


def test_what_ended_unsent_reads_an_index_on_sqlite_too(sqlite_database: str) -> None:
    by_class = "deliveries_reason (<expr>=? AND updated_at>"
    expected = dict.fromkeys(CLASS_LINES, by_class) | {
        "state:PARKED": "deliveries_state (state=? AND updated_at>",
        "state:PARKED,EXPIRED": "deliveries_state (state=? AND updated_at>",
        "state:PARKED lane:sms.notice": "deliveries_ended (state=? AND lane=? AND updated_at>",
    }
    world = World(sqlite_database)
    with world.open().database.begin() as connection:
        for line, index in expected.items():
            terms, whole = parse(line, NOON), SearchSpan(0, NOON)
            statement, values = ended_page("deliveries", terms, whole, None, postgres=False)
            explained = text(f"EXPLAIN QUERY PLAN {statement}")
            plan = [row[-1] for row in connection.execute(explained, values | {"limit": 51})]
            assert f"USING INDEX {index}" in str(plan), (line, plan)
    world.close()


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_of_sixty_small_days_a_search_reads_its_own_by_index_and_none_whole(
    long: SqlLedger,
) -> None:
    whole = SearchSpan(TODAY * MS_PER_DAY, (TODAY + DAYS) * MS_PER_DAY, (TODAY, TODAY + DAYS - 1))
    for column, value in (
        ("message_id", "m"),
        ("biz_id", "b7"),
        ("provider_id", "p7"),
        ("resend_of", "o100"),
        ("template", "t3"),
        ("receiver_text_hash", RECEIVER),
        ("receiver_hash", RECEIVER),
    ):
        both = ways("receiver" if value is RECEIVER else column, value)
        way = both[column == "receiver_hash"]
        for one, days in ((span(), 2), (whole, DAYS)):
            conditions, values = way
            statement, more = page("deliveries", conditions, one, None)
            found = scans(long, statement, values | more)
            assert len(tables(found)) == days, column
            assert all(f"_{column}_" in f"_{index}" for index in indexes(found)), (column, found)
    terms = parse("error:r50 since:1d", NOON)
    found = scans(long, *ended_page("deliveries", terms, whole, None, postgres=True))
    assert len(tables(found)) == DAYS
    assert all("split_part_updated_at_lane" in index for _table, index in found), found
    conditions, values = filters(parse("place:hongyan.dispatch.sms.notice/3/7", NOON))
    statement, more = page("deliveries", [*of_place(), *conditions], whole, None)
    found = scans(long, statement, values | more)
    assert len(tables(found)) == DAYS
    assert all("kafka_offset" in index for index in indexes(found)), found


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_open_states_are_read_by_their_own_indexes(full: SqlLedger) -> None:
    for state, index in (
        ("UNKNOWN", "lane_coalesce"),
        ("RETRY", "lane"),
        ("IN_FLIGHT", "owner_owner_epoch"),
    ):
        statement, values = page("deliveries", opened(state), span(), None)
        found = scans(full, statement, values)
        assert len(tables(found)) == 2
        read = [name for table, name in found if table != "deliveries_default"]
        assert all(index in name for name in read), (state, found)


@pytest.mark.stack
@pytest.mark.usefixtures("services")
@pytest.mark.parametrize(
    ("line", "state"),
    [("template:t3", "IN_FLIGHT"), ("account:main", "IN_FLIGHT"), ("state:UNKNOWN", "UNKNOWN")],
)
def test_the_index_of_times_is_not_read_beside_that_of_a_few_rows(
    full: SqlLedger, line: str, state: str
) -> None:
    """The planner reads it once the day is large: of 1.2 million rows in 7 ms instead of 0.3."""
    asked: list[str] = []

    def keep(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        asked.append(statement)

    event.listen(full.database.engine, "before_cursor_execute", keep)
    try:
        Search(full.database, no_hash).page(parse(line, NOON))
    finally:
        event.remove(full.database.engine, "before_cursor_execute", keep)
    (few,) = {one for one in asked if f"d.state = '{state}'" in one}
    assert "(d.created_at - 0) >= " in few
    assert "(d.created_at - 0) < " in few
    assert "d.created_at >=" not in few


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_a_search_keeps_its_plan_from_the_first_time_on(long: SqlLedger) -> None:
    """A plan over sixty days costs ten times its execution."""
    database = Database(long.database.url, pool_size=1, keeps_plans=True)
    search = Search(database, no_hash)
    terms = parse("biz:b7 since:2026-12-01 until:2027-01-30", NOON)
    search.page(terms)
    with search._reading() as (connection, *_):
        plans = text("SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements")
        generic, custom = connection.execute(plans).one()
    database.close()
    assert generic > 0
    assert custom == 0


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_what_only_reads_needs_no_transaction(full: SqlLedger) -> None:
    with full.database.reading() as connection:
        connection.execute(text("SELECT 1"))
        driver = connection.connection.driver_connection
        assert driver is not None
        assert driver.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
