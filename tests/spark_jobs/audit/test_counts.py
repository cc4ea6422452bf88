"""Counts on literal rows, and the ledger's own by JDBC on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from hongyan.spark.wiring import jdbc_login
from idempotency.lost.audits import Audit, Audits, put_audits
from idempotency.sql_ledger import SqlLedger, open_ledger
from spark_jobs.audit import counts, ledger
from spark_jobs.audit.counts import HOUR_MS, OffsetRun
from spark_jobs.audit.job import AuditedLanes, run
from spark_jobs.positions import PartitionPosition, Positions
from spark_jobs.tables import DEAD_LETTERS, DELIVERIES, RECORDS
from tests.harness.databases import upgraded
from tests.spark_jobs.conftest import config_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from spark_jobs.warehouse import Warehouse

LANE = "sms.notice"
TOPIC = f"hongyan.dispatch.{LANE}"
HOUR = 497_784 * HOUR_MS
LATER = HOUR + HOUR_MS
ID = "topic-1"


def frame(spark: SparkSession, ddl: str, *rows: dict[str, Any]) -> DataFrame:
    """A frame of a table of the warehouse; fields that are not given are null."""
    schema = spark.createDataFrame([], ddl).schema
    return spark.createDataFrame(
        [tuple(row.get(name) for name in schema.names) for row in rows], schema
    )


def record(offset: int, *keys: str | None, hour: int = HOUR, **fields: Any) -> dict[str, Any]:
    return {
        "day": datetime.fromtimestamp(hour / 1_000, UTC).date(),
        "topic": TOPIC,
        "topic_id": ID,
        "partition": 0,
        "offset": offset,
        "timestamp": hour + offset,
        "message_id": f"m{offset}",
        "lane": LANE,
        "deliveries": [(key, "", "") for key in keys],
        **fields,
    }


def poison(offset: int) -> dict[str, Any]:
    return record(offset, problem="not_json", lane=None) | {"deliveries": None}


def letter(offset: int) -> dict[str, Any]:
    return {
        "day": datetime.fromtimestamp(HOUR / 1_000, UTC).date(),
        "origin": f"{TOPIC}/0/{offset}",
    }


def event(stage: str) -> dict[str, Any]:
    return {"stage": stage, "at": HOUR}


def rebuilt(key: str, *stages: str, **fields: Any) -> dict[str, Any]:
    return {
        "day": datetime.fromtimestamp(HOUR / 1_000, UTC).date(),
        "delivery_key": key,
        "timeline": [event(stage) for stage in stages],
        "missing": [],
        "origins": [f"{TOPIC}/0/1"],
        "receipts": 0,
        "ended_at": HOUR,
        **fields,
    }


def positions(committed: int | None = 100, **changes: Any) -> Positions:
    values: dict[str, Any] = {
        "topic": TOPIC,
        "topic_id": ID,
        "lane": LANE,
        "partition": 0,
        "committed": committed,
        "first": 0,
        "end": 200,
    }
    return Positions(HOUR + 2 * HOUR_MS, [PartitionPosition(**values | changes)])


def placed(spark: SparkSession, *records: dict[str, Any], committed: int | None = 100) -> DataFrame:
    where = counts.positions_frame(spark, positions(committed))
    return counts.placed(frame(spark, RECORDS, *records), where, {HOUR, LATER})


def counted(
    spark: SparkSession,
    records: list[dict[str, Any]],
    deliveries: list[dict[str, Any]],
    letters: list[dict[str, Any]] | None = None,
    committed: int = 100,
) -> Row:
    placed_ = placed(spark, *records, committed=committed)
    keys = counts.keyed(counts.lettered(placed_, frame(spark, DEAD_LETTERS, *letters or [])))
    doubled = spark.createDataFrame([("twice",)], "delivery_key STRING")
    known = counts.known(frame(spark, DELIVERIES, *deliveries), doubled)
    rows = counts.counted(keys, known, ["main"], f.lit(HOUR - 5)).orderBy("hour").collect()
    return rows[0]


def test_offsets_of_one_hour_are_one_run_on_each_side_of_the_committed_one(
    spark: SparkSession,
) -> None:
    rows = [record(n, "k") for n in (3, 5, 6)] + [record(7, "k", hour=LATER), record(9, "k")]
    found = counts.offset_runs(placed(spark, *rows, committed=6), {HOUR, LATER})
    assert found == [
        OffsetRun(TOPIC, 0, 3, 6, LANE, HOUR, True),
        OffsetRun(TOPIC, 0, 6, 7, LANE, HOUR, False),
        OffsetRun(TOPIC, 0, 7, 8, LANE, LATER, False),
        OffsetRun(TOPIC, 0, 9, 10, LANE, HOUR, False),
    ]


def test_offsets_of_the_hours_around_end_the_runs_of_an_hour(spark: SparkSession) -> None:
    # Producers whose clocks differ by milliseconds, at the full hour.
    rows = [record(n, "k", hour=LATER if n in (4, 6) else HOUR) for n in range(3, 8)]
    found = counts.offset_runs(placed(spark, *rows), {HOUR})
    assert [(run.first, run.next, run.hour) for run in found] == [
        (3, 4, HOUR),
        (5, 6, HOUR),
        (7, 8, HOUR),
    ]


def test_a_topic_that_is_gone_has_no_runs_and_is_named_as_replaced(spark: SparkSession) -> None:
    old = record(3, "k", topic_id="topic-0")
    assert counts.offset_runs(placed(spark, old), {HOUR}) == []
    assert counted(spark, [old], [])["replaced"] == 1


def test_a_key_counts_once_however_often_its_record_came(spark: SparkSession) -> None:
    row = counted(spark, [record(1, "a", "b"), record(2, "a"), record(3, None, None)], [])
    assert (row["kafka"], row["passed"], row["elsewhere"]) == (4, 4, 0)


def test_a_key_that_came_again_in_another_hour_or_before_is_elsewhere(spark: SparkSession) -> None:
    again = [record(1, "a", "b"), record(2, "a", hour=LATER)]
    assert counted(spark, again, [])["elsewhere"] == 1
    earlier = rebuilt("b", "settled", origins=[f"{TOPIC}/0/1", f"{TOPIC}/1/9"])
    assert counted(spark, again, [earlier])["elsewhere"] == 2


def test_dead_letters_take_their_whole_record(spark: SparkSession) -> None:
    rows = [record(1, "a", "b"), poison(2), poison(3), record(4, "c")]
    row = counted(spark, rows, [], [letter(1), letter(2), letter(2)])
    assert (row["kafka"], row["dead"], row["passed"]) == (5, 3, 2), "the other poison is not there"
    assert row["unseen"] == 1, "no trace is asked for poison"


def test_what_is_ahead_of_the_group_is_counted_apart(spark: SparkSession) -> None:
    rows = [record(1, "a"), record(2, "b"), record(3, "c")]
    row = counted(spark, rows, [], committed=2)
    assert (row["passed"], row["ahead"]) == (1, 2)


def test_a_delivery_is_traced_by_an_event_of_a_worker_alone(spark: SparkSession) -> None:
    rows = [record(1, "a", "b", "c", "d")]
    deliveries = [
        rebuilt("a", "accepted", "settled"),
        rebuilt("b", "accepted"),
        rebuilt("c", missing=["claimed:policy"]),
    ]
    row = counted(spark, rows, deliveries)
    assert (row["traced"], row["quiet"], row["unseen"]) == (1, 1, 2)


def test_receipts_are_awaited_from_accounts_that_report(spark: SparkSession) -> None:
    def sent(key: str, **fields: Any) -> dict[str, Any]:
        return rebuilt(key, "settled", **{"state": "SENT", "account": "main"} | fields)

    deliveries = [
        sent("a", receipts=1, state="DELIVERED"),
        sent("b"),
        sent("c", ended_at=HOUR - 6),
        sent("d", account="quiet", ended_at=HOUR - 6),
        rebuilt("twice", "settled", state="REJECTED", account="main"),
    ]
    row = counted(spark, [record(1, "a", "b", "c", "d", "twice")], deliveries)
    assert (row["sent"], row["receipts"], row["due"], row["silent"]) == (4, 1, 1, 1)
    assert row["doubled"] == 1


# ---- the ledger ------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def books(request: pytest.FixtureRequest) -> Iterator[SqlLedger]:
    name = "sqlite_database" if request.param == "sqlite" else "ledger_database"
    url = str(request.getfixturevalue(name))
    settings = Settings(database=DatabaseSettings(url=url))
    upgraded(settings)
    opened = open_ledger(settings)
    yield opened
    opened.close()


def enter(books: SqlLedger, offset: int, *, partition: int = 0, updated_at: int = HOUR) -> None:
    row = {
        "delivery_key": f"k{partition}-{offset}",
        "message_id": f"m{offset}",
        "day": HOUR // 86_400_000,
        "token": 1,
        "created_at": HOUR,
        "updated_at": updated_at,
        "expires_at": HOUR + 1_000,
        "attempt": 1,
        "owner_epoch": 1,
        "state": "SENT",
        "lane": LANE,
        "owner": "w1",
        "receiver": b"r",
        "body_digest": b"d",
        "policy_version": "default",
        "kafka_topic": TOPIC,
        "kafka_partition": partition,
        "kafka_offset": offset,
    }
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    with books.database.begin() as connection:
        connection.execute(text(f"INSERT INTO deliveries ({names}) VALUES ({values})"), row)


def config_of(books: SqlLedger, root: str = "") -> Any:
    url = books.database.url.render_as_string(hide_password=False)
    return config_for(root, ledger=jdbc_login(url, ".", "database.url"))


def test_rows_are_counted_in_the_run_of_their_offset(spark: SparkSession, books: SqlLedger) -> None:
    for offset in (2, 3, 5, 6, 9):
        enter(books, offset)
    enter(books, 4, partition=1, updated_at=HOUR + 9)
    runs = [
        OffsetRun(TOPIC, 0, 3, 6, LANE, HOUR, True),
        OffsetRun(TOPIC, 0, 6, 9, LANE, HOUR, False),
        OffsetRun(TOPIC, 0, 20, 30, LANE, HOUR, False),
        OffsetRun(TOPIC, 1, 0, 5, LANE, LATER, True),
    ]
    found = ledger.rows_of_runs(spark, config_of(books), runs, fresh_since=HOUR + 9)
    assert [(one.rows, one.fresh) for one in found] == [(2, 0), (1, 0), (0, 0), (1, 1)]
    assert [one.run for one in found] == runs


@pytest.fixture(scope="module")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Five records and the deliveries of four. An audit only reads it."""
    from spark_jobs.warehouse import Warehouse

    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("audited")))
    rows = [record(n, f"k{n}") for n in range(1, 6)]
    warehouse.append("records", frame(spark, RECORDS, *rows), "test", 1)
    deliveries = [rebuilt(f"k{n}", "settled", state="SENT") for n in (1, 2, 3, 4)]
    warehouse.append("deliveries", frame(spark, DELIVERIES, *deliveries), "test", 1)
    return warehouse


def test_an_audit_compares_all_of_them_and_flags_what_is_missing(
    spark: SparkSession, books: SqlLedger, audited: Warehouse
) -> None:
    for offset in (1, 2, 4):
        enter(books, offset)
    with books.database.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO lost_findings (subject, cause, lane, origin, certain, detail, first_run,"
                " last_run, found_at, status) VALUES"
                f" ('k2', 'passed', '{LANE}', '{TOPIC}/0/2', 1, '', 1, 1, 1, 'GONE'),"
                f" ('k9', 'passed', '{LANE}', '{TOPIC}/0/9', 1, '', 1, 1, 1, 'NEW')"
            )
        )
    lanes = AuditedLanes({LANE: HOUR_MS})
    where = positions(5)
    found = run(spark, audited, config_of(books), where, [HOUR], lanes)
    (row,) = found.rows
    assert (row.hour, row.lane, row.unexplained) == (HOUR, LANE, 1)
    told = row.counts
    assert (told["kafka"], told["ledger"], told["waiting"], told["traced"]) == (5, 3, 1, 4)
    assert told["open"] == {"ledger": 1}, "offset 3 was passed without a row"
    assert told["explained"] == {"trace": {"waiting": 1}}
    assert found.as_json()["unexplained"] == 1
    audits = Audits(books.database, lambda _connection: 0)
    with books.database.begin() as connection:
        put_audits(connection, 1, [Audit(HOUR, LANE, {}, 0)])
        put_audits(connection, 7, [Audit(row.hour, row.lane, dict(told), row.unexplained)])
    assert audits.since(HOUR) == [Audit(HOUR, LANE, dict(told), 1, 7)]
    assert audits.since(HOUR + 1) == []


@pytest.mark.parametrize("books", ["sqlite"], indirect=True)
def test_an_hour_that_is_audited_alone_has_no_rows_of_the_hours_around(
    spark: SparkSession, books: SqlLedger, warehouse: Warehouse
) -> None:
    early, late = LATER - HOUR_MS, LATER + HOUR_MS
    hours = [early, LATER, early, LATER, LATER, late, LATER]
    rows = [record(n, f"k{n}", hour=hour) for n, hour in enumerate(hours)]
    warehouse.append("records", frame(spark, RECORDS, *rows), "test", 1)
    for offset in range(len(hours)):
        enter(books, offset)
    lanes = AuditedLanes({LANE: HOUR_MS})
    found = run(spark, warehouse, config_of(books), positions(), [LATER], lanes)
    (row,) = found.rows
    assert (row.hour, row.counts["kafka"], row.counts["ledger"]) == (LATER, 4, 4)
    assert "surplus" not in row.counts["open"]
