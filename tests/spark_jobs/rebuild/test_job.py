"""Whole rebuilds on Delta tables: an increment comes to the table that a rebuild of everything makes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from spark_jobs.config import JobConfig
from spark_jobs.rebuild import increment, parts, touched
from spark_jobs.rebuild.job import RebuildFigures, Surroundings, run
from spark_jobs.rebuild.unkeyed import SealedRecord
from spark_jobs.warehouse import Warehouse
from tests.spark_jobs.rebuild.literals import (
    DAY,
    DAY_MS,
    NOON,
    Lives,
    event,
    frame,
    origin_of,
    record,
    table_of,
)

SOURCES = ("events", "records", "dead_letters", "trace_records")


class Runs:
    """Ingests literal rows, and rebuilds."""

    def __init__(self, spark: SparkSession, warehouse: Warehouse, config: JobConfig) -> None:
        self.spark, self.warehouse, self.config = spark, warehouse, config
        self.number = 0
        self.keys_of: Any = None
        self.last: RebuildFigures | None = None

    def ingest(self, **tables: list[dict[str, Any]]) -> None:
        self.number += 1
        for table, rows in tables.items():
            if rows:
                self.warehouse.append(table, frame(self.spark, table, rows), "test", self.number)

    def rebuild(self, *, whole: bool = False) -> RebuildFigures:
        self.number += 1
        earlier = None if whole or self.last is None else self.last.as_json()
        around = Surroundings(earlier=earlier, keys_of=self.keys_of)
        self.last = run(self.spark, self.warehouse, self.config, around)
        assert self.last.whole == (earlier is None)
        return self.last

    def table(self) -> list[Row]:
        return table_of(self.warehouse.read("deliveries"))


@pytest.fixture
def runs(spark: SparkSession, made_warehouse: Warehouse, job_config: JobConfig) -> Runs:
    return Runs(spark, made_warehouse, job_config)


@pytest.mark.soak(small="::test_rewritten_records_are_not_read_again_and_a_new_table_is_read_whole")
def test_increments_come_to_the_table_of_a_whole_rebuild(runs: Runs) -> None:
    lives = Lives(3, 120, days=4)
    every: dict[str, list[dict[str, Any]]] = {
        "events": lives.events,
        "records": lives.records,
        "dead_letters": lives.dead_letters,
    }
    for place in range(2):
        mine = {
            table: [row for number, row in enumerate(rows) if number % 2 == place]
            for table, rows in every.items()
        }
        again = {table: rows[:20] for table, rows in every.items()} if place else {}
        runs.ingest(**{table: [*rows, *again.get(table, [])] for table, rows in mine.items()})
        runs.rebuild()
    stepwise = runs.table()
    assert len(stepwise) > 110
    figures = runs.rebuild(whole=True)
    assert runs.table() == stepwise
    assert figures.rows == len(stepwise)
    assert sum(hour.counts["deliveries"] for hour in figures.hours) == len(stepwise)


@pytest.mark.soak(small="::test_rewritten_records_are_not_read_again_and_a_new_table_is_read_whole")
def test_an_increment_reads_and_writes_only_the_days_that_it_touches(runs: Runs) -> None:
    days = [NOON + n * DAY_MS for n in range(6)]
    runs.ingest(
        records=[record(n, at, [f"k{n}"], message_id=f"m{n}") for n, at in enumerate(days)],
        events=[
            event("settled", at, f"k{n}", state="SENT", created_at=at) for n, at in enumerate(days)
        ],
    )
    runs.rebuild()
    assert runs.warehouse.version("deliveries", "rebuild") == 0
    late = days[5] + DAY_MS
    runs.ingest(
        events=[
            event("receipt", late, "k1", state="DELIVERED", created_at=days[1]),
            event("receipt", late, "k5", state="DELIVERED", created_at=days[5]),
            event("settled", late, "new", state="SENT", created_at=late),
        ]
    )
    figures = runs.rebuild()
    # Of the warehouse, never a run's number: that counts anew after a restore of the ledger.
    assert runs.warehouse.version("deliveries", "rebuild") == 1
    assert [(day - DAY).days for day in figures.days] == [1, 5, 6]
    states = {row["delivery_key"]: row["state"] for row in runs.table()}
    assert {key for key, state in states.items() if state == "DELIVERED"} == {"k1", "k5"}
    assert len(states) == 7
    figures = runs.rebuild()
    assert (figures.days, figures.rows) == ([], 0)
    assert len(runs.table()) == 7


def newest_and_oldest(spark: SparkSession, *came: dict[str, Any] | None) -> list[int]:
    """Days, from 0, that parts of the key k touch. It has rows on the first and on the last of five days.
    A part is an event, or None for a record of the last day."""
    days = [DAY + timedelta(days=n) for n in range(5)]
    rows = spark.createDataFrame(
        [(days[0], "k"), *[(day, f"other-{day}") for day in days[1:]], (days[4], "k")],
        "day DATE, delivery_key STRING",
    )
    events = [row for row in came if row is not None]
    records = [record(1, NOON + 4 * DAY_MS, ["k"])] if None in came else []
    new = [
        parts.event_parts(frame(spark, "events", events)),
        parts.record_parts(frame(spark, "records", records)),
    ]
    with touched.keys_of(parts.union(new), days, 3) as keys:
        return sorted((day - DAY).days for day in touched.days(rows, keys))


@pytest.mark.parametrize("stage", ["receipt", "recalled", "resolved", "dropped", "expired"])
def test_an_event_of_a_ledger_row_does_not_date_its_delivery(
    spark: SparkSession, stage: str
) -> None:
    today = NOON + 4 * DAY_MS
    of_row = event(stage, today, "old", created_at=today)
    days = [DAY + timedelta(days=n) for n in range(5)]
    rows = spark.createDataFrame(
        [(days[0], "old"), *[(day, f"other-{day}") for day in days[1:]]],
        "day DATE, delivery_key STRING",
    )
    with touched.keys_of(parts.event_parts(frame(spark, "events", [of_row])), days, 3) as keys:
        assert touched.days(rows, keys) == [days[0]]


def test_older_days_are_asked_only_for_keys_that_the_newest_ones_do_not_have(
    spark: SparkSession,
) -> None:
    today = NOON + 4 * DAY_MS
    receipt = event("receipt", today, "k", created_at=today)
    assert newest_and_oldest(spark, receipt) == [4]
    assert newest_and_oldest(spark, receipt, None) == [4]
    assert newest_and_oldest(spark, event("settled", today, "k", created_at=NOON)) == [0, 4]
    assert newest_and_oldest(spark, receipt, event("duplicate", today, "k")) == [0, 4]


@pytest.mark.soak(small="::test_an_event_of_a_ledger_row_does_not_date_its_delivery")
def test_a_receipt_of_a_delivery_that_waited_for_days_makes_no_second_row(runs: Runs) -> None:
    days = [NOON + n * DAY_MS for n in range(5)]
    runs.ingest(
        records=[record(n, at, [f"k{n}"], message_id=f"m{n}") for n, at in enumerate(days)],
        events=[event("settled", days[4], "k0", state="SENT", created_at=days[0])],
    )
    runs.rebuild()
    # The ledger's row is of the day on which it was claimed.
    runs.ingest(events=[event("receipt", days[4] + 9, "k0", state="DELIVERED", created_at=days[4])])
    figures = runs.rebuild()
    assert [(day - DAY).days for day in figures.days] == [0, 4]
    (row,) = [row for row in runs.table() if row["delivery_key"] == "k0"]
    assert (row["day"], row["state"], row["appended_at"]) == (DAY, "DELIVERED", NOON)


def test_a_whole_rebuild_keeps_rows_of_days_that_left_the_sources(runs: Runs) -> None:
    later = NOON + DAY_MS
    runs.ingest(
        records=[
            record(n, at, [f"k{n}"], message_id=f"m{n}") for n, at in enumerate((NOON, later))
        ],
        events=[event("settled", NOON, "k0", state="SENT", created_at=NOON)],
    )
    runs.rebuild()
    before = runs.table()
    for table in ("events", "records"):
        path = runs.warehouse.path(table)
        runs.spark.sql(f"DELETE FROM delta.`{path}` WHERE day = DATE'{DAY.isoformat()}'")
    runs.ingest(events=[event("receipt", later, "k0", state="DELIVERED", created_at=NOON)])
    figures = runs.rebuild(whole=True)
    rows = {row["delivery_key"]: row for row in runs.table()}
    assert (rows["k0"]["state"], rows["k0"]["appended_at"], rows["k0"]["day"]) == (
        "DELIVERED",
        NOON,
        DAY,
    )
    assert [row for row in before if row["delivery_key"] == "k1"] == [rows["k1"]]
    assert sum(hour.counts["deliveries"] for hour in figures.hours) == 2


def test_rewritten_records_are_not_read_again_and_a_new_table_is_read_whole(
    runs: Runs, spark: SparkSession
) -> None:
    runs.ingest(records=[record(1, NOON)])
    runs.rebuild()
    assert runs.last is not None
    marks = runs.last.marks
    rewritten = frame(spark, "records", [record(1, NOON, biz_id="rewritten")])
    runs.warehouse.replace_days("records", rewritten, [DAY], "bodies", 1)
    runs.ingest(records=[record(2, NOON, ["k2"])])
    now = increment.marks(runs.warehouse)
    new = increment.new_rows(runs.warehouse, marks, now)
    assert new is not None
    assert [row["offset"] for row in new.frames["records"].collect()] == [2]
    other = {**marks, "records": ("another table", 0)}
    assert increment.new_rows(runs.warehouse, other, now) is None
    assert increment.new_rows(runs.warehouse, {}, now) is None


@pytest.mark.soak(
    small="tests/spark_jobs/ingest/test_receivers.py::test_native_expressions_equal_the_vocabulary"
)
def test_receivers_without_a_key_get_it_from_events_then_from_the_body(runs: Runs) -> None:
    opened = []

    def keys_of(sealed: SealedRecord) -> list[str]:
        opened.append(sealed.message_id)
        return ["known", "k-body"]

    runs.keys_of = keys_of
    told = record(1, NOON, [None], message_id="told", body=b"x")
    sealed = record(2, NOON, ["known", None], message_id="sealed", body=b"x")
    gone = record(3, NOON, [None], message_id="gone")
    runs.ingest(
        records=[told, sealed, gone],
        events=[
            event(
                *("settled", NOON, "k-event"),
                message_id="told",
                state="SENT",
                origin=origin_of(told),
                receiver="+86***1",
            ),
            # Of a topic of this name that was deleted.
            event("settled", NOON, "k-past", message_id="past", origin=origin_of(told)),
        ],
    )
    figures = runs.rebuild()
    assert (figures.keys_by_events, figures.keys_by_body, figures.keys_unknown) == (1, 1, 1)
    assert opened == ["sealed"]
    rows = {row["delivery_key"]: row for row in runs.table()}
    assert {key: row["origin"] for key, row in rows.items()} == {
        "k-event": origin_of(told),
        "known": origin_of(sealed),
        "k-body": origin_of(sealed),
        "k-past": origin_of(told),
    }
    assert rows["k-event"]["receiver"] == "+86***1"
    assert rows["k-past"]["appended_at"] is None, "the record is another message's"
    told_late = event("settled", NOON + 9, "k-late", message_id="gone", state="SENT")
    runs.ingest(events=[{**told_late, "origin": origin_of(gone)}])
    assert runs.rebuild().keys_unknown == 0
    (late,) = [row for row in runs.table() if row["delivery_key"] == "k-late"]
    assert (late["appended_at"], late["missing"]) == (NOON, ["claimed:trace"])


@pytest.mark.soak(
    small="tests/spark_jobs/lost/test_places_and_causes.py::test_a_dead_letter_explains_its_record_and_no_other"
)
def test_a_dead_letter_that_comes_later_marks_its_records_deliveries(runs: Runs) -> None:
    runs.ingest(records=[record(1, NOON, ["k1", "k2"]), record(2, NOON, ["k3"])])
    runs.rebuild()
    letter = {
        "day": DAY,
        "timestamp": NOON,
        "origin": origin_of(record(1, NOON)),
        "reason": "no_lane",
    }
    runs.ingest(dead_letters=[letter, {**letter, "origin": "gone/0/1"}])
    runs.rebuild()
    assert [row["dead_letter"] for row in runs.table()] == ["no_lane", "no_lane", None]
    runs.ingest(records=[record(1, NOON, ["k4"], topic="gone")])
    runs.rebuild()
    assert [row["dead_letter"] for row in runs.table()] == ["no_lane", "no_lane", None, "no_lane"]
