"""The ledger as Spark asks it, on real databases."""

from __future__ import annotations

import gzip
import json
import socket
import time
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_jobs.config import JdbcLogin
from tests.spark_jobs.lost.rows import DAY_MS, HOUR_MS, LedgerRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = int(time.time() * 1000)
TODAY = datetime.fromtimestamp(NOW / 1000, UTC).date()
KEYS = [f"{number * 0x11111111:032x}"[::-1] for number in range(1, 60)]


def reader(spark: SparkSession, rows: LedgerRows, archive: str = "") -> Any:
    from spark_jobs.lost.ledger import LedgerReader

    return LedgerReader(spark, rows.login, 2, archive)


def keys(spark: SparkSession, *names: str) -> DataFrame:
    return spark.createDataFrame([(name,) for name in names], "delivery_key STRING")


def states(found: DataFrame) -> dict[str, str]:
    return {row["delivery_key"]: row["state"] for row in found.collect()}


def delivery(rows: LedgerRows, number: int, at: int = NOW, **changes: Any) -> None:
    rows.delivery(KEYS[number], at, kafka_offset=number, message_id=f"m{number}", **changes)


def test_the_rows_of_the_keys_asked_for_are_found(
    spark: SparkSession, rows: LedgerRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.lost import ledger

    monkeypatch.setattr(ledger, "KEYS_PER_QUESTION", 3)  # so that there are several ranges
    for number in range(20):
        delivery(rows, number, NOW - number * DAY_MS, state="SENT" if number else "PARKED")
    one = reader(spark, rows)
    found = states(one.rows(keys(spark, *KEYS[:5], *KEYS[:2], *KEYS[40:45]), None))
    assert found == {KEYS[0]: "PARKED", **dict.fromkeys(KEYS[1:5], "SENT")}
    assert one.rows_read == 5, "nothing else was read"
    one.release()


@pytest.mark.soak(cases="postgresql")
def test_very_many_keys_are_asked_about_by_ranges_of_the_newest_days(
    spark: SparkSession, rows: LedgerRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.lost import ledger

    monkeypatch.setattr(ledger, "MOST_KEYS", 3)
    monkeypatch.setattr(ledger, "RANGES", 256)
    for number in range(8):
        delivery(rows, number, NOW - number * 5 * DAY_MS)
    found = reader(spark, rows).rows(keys(spark, *KEYS[:5], KEYS[20]), TODAY)
    assert states(found) == dict.fromkeys(KEYS[:5], "SENT")


def test_no_key_asks_nothing(spark: SparkSession, rows: LedgerRows) -> None:
    delivery(rows, 1)
    one = reader(spark, rows)
    assert states(one.rows(keys(spark), None)) == {}
    assert one.rows_read == 0


def test_a_name_without_its_row_is_no_row(spark: SparkSession, postgres: LedgerRows) -> None:
    delivery(postgres, 1)
    postgres.run("DELETE FROM deliveries")
    assert states(reader(spark, postgres).rows(keys(spark, KEYS[1]), None)) == {}


def test_archived_days_count(spark: SparkSession, postgres: LedgerRows) -> None:
    postgres.run("CREATE SCHEMA archive")
    for day, number in (("20260101", 1), ("20260301", 2)):
        postgres.run(f"CREATE TABLE archive.deliveries_{day} (LIKE deliveries INCLUDING ALL)")
        postgres.run(f"CREATE TABLE archive.payloads_{day} (LIKE payloads INCLUDING ALL)")
        delivery(postgres, number)
        postgres.run(f"INSERT INTO archive.deliveries_{day} SELECT * FROM deliveries")
        postgres.run("DELETE FROM deliveries")
        postgres.run("DELETE FROM delivery_keys")
    asked = keys(spark, *KEYS[1:4])
    found = states(reader(spark, postgres).rows(asked, None))
    assert found == {KEYS[1]: "ARCHIVED", KEYS[2]: "ARCHIVED"}
    since = states(reader(spark, postgres).rows(asked, date(2026, 2, 1)))
    assert since == {KEYS[2]: "ARCHIVED"}, "a day before the records is not looked into"


@pytest.mark.soak(
    small="tests/spark_jobs/lost/test_day_filters.py::test_no_key_of_the_day_is_ever_absent"
)
def test_a_false_positive_of_a_days_filter_never_becomes_a_row(
    spark: SparkSession, postgres: LedgerRows, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A filter that admits every key: those that the archive has not stay without a row, so they are found
    lost. A good one spares questions and hides no row."""
    from spark_jobs.lost import day_filters, ledger

    monkeypatch.setattr(ledger, "WORTH_A_FILTER", 1)
    archived(postgres, "20260101", 1)
    archived(postgres, "20260102", 2)
    archived(postgres, "20260103", 3, whole=False)
    absent = [sha256(b"%d" % number).hexdigest()[:32] for number in range(46)]
    asked = keys(spark, *KEYS[1:4], *absent)
    filters, spared = day_filters.DayFilters(tmp_path), []
    for hashes in (lambda _key: 0, day_filters._hash):
        monkeypatch.setattr(day_filters, "_hash", hashes)
        one = ledger.LedgerReader(spark, postgres.login, 2, filters=filters)
        assert states(one.rows(asked, None)) == dict.fromkeys(KEYS[1:4], "ARCHIVED")
        spared.append(one.spared)
        one.release()
        (made,) = tmp_path.iterdir()
        assert made.stem == "deliveries_20260102", "the newest day that is whole in the archive"
        made.unlink()
    assert spared[0] == 0, "every stranger is admitted, and none is found"
    assert spared[1] >= 45, "hardly any is"


def archived(rows: LedgerRows, day: str, number: int, *, whole: bool = True) -> None:
    """A day of one row, as the archive leaves it."""
    rows.run("CREATE SCHEMA IF NOT EXISTS archive")
    rows.run(f"CREATE TABLE archive.deliveries_{day} (LIKE deliveries INCLUDING ALL)")
    delivery(rows, number)
    rows.run(f"INSERT INTO archive.deliveries_{day} SELECT * FROM deliveries")
    rows.run("DELETE FROM deliveries")
    rows.run("DELETE FROM delivery_keys")
    if whole:
        rows.run(f"COMMENT ON TABLE archive.deliveries_{day} IS 'names removed'")


def test_archived_files_count(spark: SparkSession, sqlite_database: str, tmp_path: Path) -> None:
    rows = LedgerRows(sqlite_database)
    lines = [{"kind": "delivery", "delivery_key": KEYS[1]}, {"kind": "payload", "message_id": "m"}]
    text = "".join(json.dumps(line) + "\n" for line in lines * 2)
    (tmp_path / "deliveries-20260101.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    asked = keys(spark, *KEYS[1:4])
    one = reader(spark, rows, str(tmp_path))
    assert states(one.rows(asked, None)) == {KEYS[1]: "ARCHIVED"}
    assert states(one.rows(asked, date(2026, 2, 1))) == {}
    rows.database.close()


def test_rows_are_counted_by_lane_and_hour(spark: SparkSession, rows: LedgerRows) -> None:
    hour = NOW // HOUR_MS
    start = hour * HOUR_MS
    for number, at in enumerate((start, start, start - 1, start - 3 * HOUR_MS)):
        delivery(rows, number, at)
    delivery(rows, 9, start, lane="email.notice")
    found = reader(spark, rows).counts(start - HOUR_MS).collect()
    assert {(row["lane"], row["hour"]): row["rows"] for row in found} == {
        ("sms.notice", hour): 2,
        ("sms.notice", hour - 1): 1,
        ("email.notice", hour): 1,
    }


def test_open_rows_that_nobody_works_on(spark: SparkSession, rows: LedgerRows) -> None:
    long_ago = NOW - HOUR_MS
    rows.worker("alive", NOW)
    rows.worker("lapsed", long_ago)
    rows.worker("dead", NOW, state="DEAD")
    rows.worker("anew", NOW, epoch=2)
    flying: dict[str, Any] = {"state": "IN_FLIGHT", "updated_at": long_ago}
    for number, owner in enumerate(("alive", "lapsed", "dead", "anew", "nobody")):
        delivery(rows, number, owner=owner, **flying)
    delivery(rows, 5, owner="nobody", state="IN_FLIGHT")  # a moment ago
    waits: dict[str, Any] = {"state": "RETRY", "expires_at": NOW + HOUR_MS}
    delivery(rows, 6, next_at=NOW + 1, **waits)
    delivery(rows, 7, next_at=long_ago, **waits)
    delivery(rows, 8, state="RETRY", next_at=NOW + HOUR_MS, expires_at=long_ago)
    delivery(rows, 9, state="UNKNOWN", next_at=NOW + 1)
    delivery(rows, 10, state="UNKNOWN", next_at=None, updated_at=long_ago)
    delivery(rows, 11, state="UNKNOWN", lane="email.notice", updated_at=long_ago)
    found = reader(spark, rows).open_rows(["sms.notice"], NOW, 60_000).collect()
    assert sorted(KEYS.index(row["delivery_key"]) for row in found) == [1, 2, 3, 4, 7, 8, 10]
    one = next(row for row in found if row["delivery_key"] == KEYS[1])
    assert (one["origin"], one["owner"], one["message_id"]) == ("t/0/1", "lapsed", "m1")


def test_rows_given_back_and_rows_sent(spark: SparkSession, rows: LedgerRows) -> None:
    delivery(rows, 1, state="RETRY", reason="given_back", next_at=NOW - 60_001)
    delivery(rows, 6, state="RETRY", reason="given_back", next_at=NOW - 60_000)
    delivery(rows, 2, state="RETRY", reason="http_503")
    delivery(rows, 3, updated_at=NOW - HOUR_MS)
    delivery(rows, 4, updated_at=NOW - 3 * HOUR_MS)
    delivery(rows, 5, updated_at=NOW - HOUR_MS, state="DELIVERED")
    one = reader(spark, rows)
    (given,) = one.given_back(["sms.notice"], NOW - 60_000).collect()
    assert (given["delivery_key"], given["topic"], given["partition"], given["offset"]) == (
        KEYS[1],
        "t",
        0,
        1,
    )
    sent = one.sent(["sms.notice", "email.notice"], NOW - 2 * HOUR_MS, NOW - 1_000).collect()
    assert [(row["delivery_key"], row["account"]) for row in sent] == [(KEYS[3], "main")]
    assert one.sent([], 0, NOW).collect() == []


def test_the_last_offset_with_a_row_of_a_range(spark: SparkSession, rows: LedgerRows) -> None:
    for number in range(1, 8):
        delivery(rows, number)
    found = reader(spark, rows).last_offsets([("t", 0, 2, 6), ("t", 1, 0, 9), ("t", 0, 8, 20)])
    assert [tuple(row) for row in found.collect()] == [("t", 0, 5)]


def test_the_rows_of_messages_with_any_id(spark: SparkSession, rows: LedgerRows) -> None:
    rows.delivery(KEYS[1], NOW, message_id="o'clock", kafka_offset=1)
    rows.delivery(KEYS[2], NOW, message_id="other", kafka_offset=2)
    names = spark.createDataFrame([("o'clock",), ("') OR 1=1 --",)], "message_id STRING")
    found = reader(spark, rows).messages(names).collect()
    assert [row["delivery_key"] for row in found] == [KEYS[1]]


def test_all_holes_cost_one_read_of_the_ledger(
    spark: SparkSession, postgres: LedgerRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run on a cluster of 30 lanes finds 360 holes: each log begins above its first offset."""
    for number in range(10):
        delivery(postgres, number, kafka_partition=number)
    one, asked = reader(spark, postgres), []
    answer = one._answer

    def counted(*some: Any) -> DataFrame:
        asked.append(some)
        return cast("DataFrame", answer(*some))

    monkeypatch.setattr(one, "_answer", counted)
    found = one.last_offsets([("t", partition, 0, 1_000) for partition in range(360)])
    assert {(row["partition"], row["offset"]) for row in found.collect()} == {
        (number, number) for number in range(10)
    }
    assert len(asked) == 1


def test_recalls_are_read(spark: SparkSession, rows: LedgerRows) -> None:
    rows.insert("recalls", kind="biz", name="order-1", made_at=5, until=9)
    assert [tuple(row) for row in reader(spark, rows).recalls().collect()] == [
        ("biz", "order-1", 5)
    ]


def test_a_replica_that_is_behind_the_positions_gives_no_answer(
    spark: SparkSession, rows: LedgerRows
) -> None:
    from spark_jobs.lost.ledger import LedgerAway

    rows.begun(7, positions="")
    one = reader(spark, rows)
    with pytest.raises(LedgerAway, match="behind: nothing is looked for"):
        one.wait_for(7, 0.1)
    rows.run("UPDATE spark_runs SET positions = '{}'")
    assert one.wait_for(7, 5) < 5_000


@pytest.mark.parametrize(
    "login",
    [
        JdbcLogin("jdbc:postgresql://127.0.0.1:9/none", "org.postgresql.Driver", "u", "S3cret!"),
        JdbcLogin("jdbc:sqlite:/nowhere/at/all.db", "org.sqlite.JDBC"),
    ],
    ids=["postgresql", "sqlite"],
)
def test_a_ledger_that_is_away_is_one_sentence(spark: SparkSession, login: JdbcLogin) -> None:
    from spark_jobs.lost.ledger import LedgerAway, LedgerReader

    with pytest.raises(LedgerAway) as raised:
        LedgerReader(spark, login, 2).recalls()
    said = str(raised.value)
    assert said.startswith("the ledger did not answer, so nothing is looked for in this run")
    assert "\n" not in said
    assert "S3cret!" not in said


def test_a_server_that_says_nothing_ends_the_wait(spark: SparkSession) -> None:
    """Its host may be gone: no answer will ever come."""
    from hongyan.spark.wiring import ANSWER_S, jdbc_login
    from spark_jobs.lost.ledger import LedgerAway, LedgerReader

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        login = jdbc_login(f"postgresql://u:p@127.0.0.1:{port}/d", ".", "database.url")
        url = login.url.replace(f"socketTimeout={ANSWER_S}", "socketTimeout=1")
        assert url != login.url
        with pytest.raises(LedgerAway, match="did not answer"):
            LedgerReader(spark, JdbcLogin(url, login.driver, "u", "p"), 2).recalls()
