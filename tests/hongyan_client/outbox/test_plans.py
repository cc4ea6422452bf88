"""Plans of the hot statements: the claim walks the partial index and never sorts or reads the table."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, text

from hongyan_client.outbox.partitions import open_row_in, partitions_of
from tests.hongyan_client.outbox.places import OutboxPlace, opened

FILL = """
INSERT INTO hongyan_outbox (message_id, topic, msg_key, key_hash, headers, payload, state, attempt,
    max_attempts, retry_base_ms, retry_cap_ms, maybe_sent, held, next_at, created_at, done_at, created_day)
SELECT 'm', 't', 'k', CASE WHEN n % 20 = 0 THEN 'h' END, '[]', '{{}}',
       CASE WHEN n % 10 = 0 THEN 'PENDING' ELSE 'SENT' END, 0, 20, 1000, 300000, 0, 0,
       CASE WHEN n % 10 = 0 THEN n END, n, CASE WHEN n % 10 <> 0 THEN n END, {today}
  FROM {numbers}"""
NUMBERS = {
    "postgresql": "generate_series(1, 20000) AS n",
    "mysql": "(SELECT seq AS n FROM seq_1_to_20000) AS s",
    "sqlite": "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s LIMIT 20000)"
    " SELECT n FROM s)",
}
TODAY = {"postgresql": "current_date", "mysql": "UTC_DATE()", "sqlite": "date('now')"}


def fill(place: OutboxPlace) -> None:
    """Adds a table full of ended rows, with a tenth of pending ones among them."""
    kind = place.engine.dialect.name
    with place.engine.begin() as connection:
        connection.execute(text(FILL.format(today=TODAY[kind], numbers=NUMBERS[kind])))


def plan_of(connection: Connection, sql: Any, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the nodes of a plan."""
    explained = text("EXPLAIN (FORMAT JSON) " + sql.text).bindparams(*sql._bindparams.values())
    plan = connection.execute(explained, asked).scalar_one()
    found = plan if isinstance(plan, list) else json.loads(plan)
    return list(_nodes(found[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Any:
    yield node
    for inner in node.get("Plans", ()):
        yield from _nodes(inner)


@pytest.mark.parametrize("analysed", [False, True])
def test_a_claim_walks_the_partial_index(postgres_place: OutboxPlace, analysed: bool) -> None:
    place = postgres_place
    fill(place)
    with place.engine.begin() as connection:
        if analysed:
            connection.exec_driver_sql("ANALYZE hongyan_outbox")
    asked = {"limit": 100, "owner": "o", "lease_ms": 1_000, "token": 7}
    with place.store.transaction() as connection:
        nodes = plan_of(connection, place.store._sql.claim_due, asked)
    kinds = {node["Node Type"] for node in nodes}
    read = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert any("next_at" in name for name in read)
    assert not {"Seq Scan", "Sort", "Incremental Sort", "Bitmap Heap Scan"} & kinds, kinds


def test_a_mark_finds_its_rows_by_the_key(postgres_place: OutboxPlace) -> None:
    store = postgres_place.store
    with store.transaction() as connection:
        today = datetime.now(UTC).date()
        asked = {"ids": [1, 2], "token": 7, "first_day": today, "last_day": today}
        nodes = plan_of(connection, store._sql.mark_sent, asked)
    assert "Seq Scan" not in {node["Node Type"] for node in nodes}


def test_a_day_is_known_to_have_ended_without_a_look_at_its_rows(
    postgres_place: OutboxPlace,
) -> None:
    fill(postgres_place)
    today = datetime.now(UTC).date()
    with postgres_place.store.transaction() as connection:
        days = partitions_of(connection, "hongyan_outbox")
        (day,) = (one for one in days if one.day == today)
        nodes = plan_of(connection, open_row_in(day), {})
    read = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert len(read) == 2
    assert not {"Seq Scan", "Bitmap Heap Scan"} & {node["Node Type"] for node in nodes}


def test_sqlite_claims_by_the_partial_index(sqlite_place: OutboxPlace) -> None:
    store = sqlite_place.store
    with store.transaction() as connection:
        sql = text("EXPLAIN QUERY PLAN " + store._sql.claim_due.text)
        plan = " ".join(row[3] for row in connection.execute(sql, {"limit": 100, "small": 9}))
    assert "USING INDEX hongyan_outbox_due" in plan
    assert "TEMP B-TREE" not in plan


def test_mariadb_claims_by_the_index_without_a_sort(mariadb_database: str) -> None:
    with opened(mariadb_database) as place:
        fill(place)
        with place.store.transaction() as connection:
            sql = text("EXPLAIN " + place.store._sql.claim_due.text)
            plan = connection.execute(sql, {"limit": 100, "small": 9}).mappings().one()
    assert plan["key"] == "hongyan_outbox_due"
    assert "filesort" not in (plan["Extra"] or "")


@pytest.mark.parametrize("ids", [[10], [10, 20, 30], list(range(1, 201))], ids=len)
def test_mariadb_finds_handed_over_rows_by_their_ids(mariadb_database: str, ids: list[int]) -> None:
    """Any other way reads kept rows, and locks them where transactions are repeatable reads."""
    with opened(mariadb_database) as place:
        fill(place)
        with place.store.transaction() as connection:
            claim = text("EXPLAIN " + place.store._sql.claim_these.text)
            asked = {"ids": ids, "limit": len(ids), "small": 9}
            bound = claim.bindparams(bindparam("ids", expanding=True))
            plan = connection.execute(bound, asked).mappings().one()
    assert (plan["key"], plan["type"]) == ("PRIMARY", "const" if len(ids) == 1 else "range")
    assert int(plan["rows"]) <= len(ids)


def test_sqlite_finds_handed_over_rows_by_their_ids(sqlite_place: OutboxPlace) -> None:
    store = sqlite_place.store
    with store.transaction() as connection:
        sql = text("EXPLAIN QUERY PLAN " + store._sql.claim_these.text)
        bound = sql.bindparams(bindparam("ids", expanding=True))
        plan = " ".join(
            row[3] for row in connection.execute(bound, {"ids": [1, 2], "limit": 2, "small": 9})
        )
    assert "INTEGER PRIMARY KEY" in plan


def test_postgres_finds_handed_over_rows_by_their_ids(postgres_place: OutboxPlace) -> None:
    fill(postgres_place)
    store = postgres_place.store
    asked = {"ids": [10, 20], "limit": 2, "owner": "o", "lease_ms": 1_000, "token": 7}
    with store.transaction() as connection:
        nodes = plan_of(connection, store._sql.claim_these, asked)
    read = {node["Index Name"] for node in nodes if "Index Name" in node}
    assert not any("next_at" in name for name in read)


def test_a_claim_takes_what_it_was_asked_for_and_no_more(place: OutboxPlace) -> None:
    fill(place)
    batch = place.store.claim_due("r", 1_000, 100)
    assert batch.seen == 100
    assert len(batch.rows) == 51  # every second one has the same key


@pytest.mark.parametrize("states", [("PENDING", "SENDING", "PARKED"), ("PARKED",)], ids=len)
def test_a_list_of_open_rows_reads_no_ended_row(
    place: OutboxPlace, states: tuple[str, ...]
) -> None:
    fill(place)
    dialect: Any = place.engine.dialect
    question = place.operator.rows_question(states, 50, 100).compile(
        dialect=dialect, compile_kwargs={"literal_binds": True}
    )
    with place.store.transaction() as connection:
        if dialect.name == "postgresql":
            nodes = plan_of(connection, text(str(question)), {})
            kinds = {node["Node Type"] for node in nodes}
            names = "_id_idx", "_next_at_id_idx"
            read = [node["Index Name"] for node in nodes if "Index Name" in node]
            assert not {"Seq Scan", "Bitmap Heap Scan"} & kinds
            assert all(name.endswith(names) and "created_day" not in name for name in read)
            return
        explain = "EXPLAIN QUERY PLAN " if dialect.name == "sqlite" else "EXPLAIN "
        plan = connection.execute(text(f"{explain}{question}")).mappings().all()
    if dialect.name == "sqlite":
        reads = [row["detail"] for row in plan if "hongyan_outbox" in row["detail"]]
        assert all("USING INDEX hongyan_outbox_d" in one for one in reads)
    else:
        reads = [row["key"] for row in plan if row["table"] == "hongyan_outbox"]
        assert set(reads) <= {"hongyan_outbox_due", "hongyan_outbox_done"}
    assert len(reads) == 1 + (len(states) > 1)


@pytest.mark.parametrize("count", [1, 3, 200])
def test_mariadb_takes_rows_by_their_ids(mariadb_database: str, count: int) -> None:
    ids = [10 * number for number in range(1, count + 1)]
    with opened(mariadb_database) as place:
        fill(place)
        with place.store.transaction() as connection:
            take = text("EXPLAIN " + place.store._sql.due.take.text)
            asked = {"ids": ids, "owner": "o", "lease_ms": 1_000, "token": 7}
            bound = take.bindparams(bindparam("ids", expanding=True))
            plan = connection.execute(bound, asked).mappings().one()
    assert plan["key"] == "PRIMARY"
    assert int(plan["rows"]) <= count
