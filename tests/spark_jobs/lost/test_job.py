"""The whole job on a small warehouse and a real ledger."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from hongyan.spark import lost
from idempotency.lost.runs import Runs
from idempotency.sql_ledger import clock_of
from message.envelope import Notification, encode
from message.keys import delivery_key
from spark_jobs.positions import PartitionPosition, Positions
from tests.spark_jobs.conftest import config_for, copy_of
from tests.spark_jobs.lost.rows import HOUR_MS, LedgerRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hongyan.spark.wiring import JobContext
    from spark_jobs.warehouse import Warehouse

TOPIC, ID = "hongyan.dispatch.sms.notice", "id-1"
DEAD = "hongyan.dead"
NOW = int(time.time() * 1000)
TODAY = datetime.fromtimestamp(NOW / 1000, UTC).date()
KEYS = [f"{number:02x}" * 16 for number in range(200)]
COMMITTED, FIRST, END = 20, 4, 100


def positions(committed: int = COMMITTED, first: int = FIRST) -> Positions:
    return Positions(
        NOW, [PartitionPosition(TOPIC, ID, "sms.notice", 0, committed, first, END, [(23, 24)])]
    )


def record(offset: int, **changes: Any) -> dict[str, Any]:
    return {
        "day": TODAY,
        "topic": TOPIC,
        "topic_id": ID,
        "partition": 0,
        "offset": offset,
        "timestamp": NOW - HOUR_MS,
        "message_id": f"m{offset}",
        "biz_id": f"order-{offset}",
        "lane": "sms.notice",
        "created_at": NOW - HOUR_MS,
        "deliveries": [(KEYS[offset], "+86***", None)],
        "body": bytearray(b"sealed"),
        **changes,
    }


def event(offset: int, stage: str = "settled", **changes: Any) -> dict[str, Any]:
    return {
        "day": TODAY,
        "timestamp": NOW - HOUR_MS,
        "id": f"e/{offset}/{stage}",
        "at": NOW - HOUR_MS,
        "stage": stage,
        "message_id": f"m{offset}",
        "biz_id": f"order-{offset}",
        "delivery_key": KEYS[offset],
        "lane": "sms.notice",
        "state": "SENT",
        "account": "main",
        "origin": f"{TOPIC}/0/{offset}",
        "policy_version": "default",
        "claimed_at": NOW - HOUR_MS,
        "created_at": NOW - HOUR_MS,
        **changes,
    }


def write(warehouse: Warehouse, table: str, *rows: dict[str, Any]) -> None:
    from spark_jobs.warehouse import schema_of

    schema = schema_of(table)
    values = [tuple(row.get(name) for name in schema.names) for row in rows]
    frame = warehouse.spark.createDataFrame(values, schema).coalesce(1)
    warehouse.append(table, frame, "test", warehouse.version(table, "test") + 1)


class Bench:
    """One ledger, one warehouse, and runs of the job as the program has them."""

    def __init__(self, rows: LedgerRows, warehouse: Warehouse, tmp_path: Path) -> None:
        self.rows, self.warehouse = rows, warehouse
        self.settings = Settings(
            database=DatabaseSettings(url=rows.settings.database.url), base=str(tmp_path)
        )
        self.runs = Runs(rows.database, clock_of(rows.database))
        self.config = config_for(warehouse.root, ledger=rows.login, connections=2)

    def context(self, at: Positions, later: Positions | None = None) -> JobContext:
        run = self.runs.begin("lost", "me")
        self.runs.positions(run, at.as_json())
        return cast(
            "JobContext",
            SimpleNamespace(
                settings=self.settings,
                config=self.config,
                spark=self.warehouse.spark,
                warehouse=self.warehouse,
                run_id=run,
                positions=at,
                database=self.rows.database,
                positions_now=lambda: later or at,
            ),
        )

    def run(self, at: Positions | None = None, later: Positions | None = None) -> dict[str, Any]:
        """One run to its end. Returns its figures."""
        context = self.context(at or positions(), later)
        result = lost.run_job(context)
        self.runs.done(context.run_id, NOW, result.figures, result.also)
        return dict(result.figures)

    def found(self) -> dict[str, tuple[str, str]]:
        """LossCause and status by offset, or by the subject that is no key."""
        found = self.rows.rows("SELECT subject, cause, status FROM lost_findings ORDER BY id")
        return {
            str(KEYS.index(subject)) if subject in KEYS else subject: (cause, status)
            for subject, cause, status in found
        }


ON_POSTGRES = pytest.mark.parametrize("rows", ["postgresql"], indirect=True)
"""The first test runs on both databases; a job takes half a minute."""


@pytest.fixture
def bench(rows: LedgerRows, warehouse: Warehouse, tmp_path: Path) -> Bench:
    return Bench(rows, warehouse, tmp_path)


def read_records(warehouse: Warehouse) -> None:
    """The ingest read these, and found one hole."""
    day_ago = NOW - 30 * HOUR_MS
    write(
        warehouse,
        "records",
        *(record(offset) for offset in (1, 2, 5, 6, 7, 8, 9, 10, 11, 21, 23, 30)),
        record(24, created_at=day_ago),
        record(25, created_at=day_ago),
        record(12, problem="not_json", deliveries=None, body=None),
        record(13, lane="nobody.knows"),
        # Two receivers, one of them lost.
        record(14, deliveries=[(KEYS[114], "a", None), (KEYS[115], "b", None)]),
        # A receiver that is not canonical: the ledger has one row for two.
        record(15, deliveries=[(KEYS[116], "a", None), (None, "b", None)]),
    )
    read = {"day": TODAY, "run": 0, "topic": TOPIC, "topic_id": ID, "partition": 0}
    write(warehouse, "ranges", {**read, "first": 0, "next": END, "at": NOW})
    # Offsets 60 to 69 were gone before the ingest; a worker had read up to 63.
    hole = {"day": TODAY, "run": 1, "topic": TOPIC, "topic_id": ID, "lane": "sms.notice"}
    hole |= {"partition": 0, "first": 60, "next": 70, "at": NOW, "reason": "removed"}
    # Partition 1 was of a topic that was deleted.
    gone = {**hole, "partition": 1, "first": 5, "next": None, "before": NOW}
    write(warehouse, "holes", hole, {**gone, "reason": "topic_gone"})


def traced(warehouse: Warehouse) -> None:
    """Events and dead letters."""
    write(warehouse, "dead_letters", {"day": TODAY, "timestamp": NOW, "origin": f"{TOPIC}/0/9"})
    write(
        warehouse,
        "events",
        event(10),
        event(11, "held", state="RETRY"),
        # Settled in the trace, and the row is gone: 10 and 11 are, too.
        event(40),
        event(41),
        # Sent two days ago through an account that reports, and no receipt.
        *(
            event(offset, at=NOW - 48 * HOUR_MS, claimed_at=NOW - 48 * HOUR_MS)
            for offset in (50, 51, 52)
        ),
        event(51, "receipt", state="DELIVERED"),
        event(60, "accepted", state="", origin=f"{TOPIC}/0/60"),
        event(61, "accepted", state="", origin=f"{TOPIC}/0/61"),
        event(62, "accepted", state="", origin=f"{TOPIC}/1/5"),
    )


def claimed(rows: LedgerRows) -> None:
    """Rows that answer for records and events."""
    rows.delivery(KEYS[2], NOW, message_id="m2")  # claimed before Kafka removed it
    rows.delivery(KEYS[6], NOW, state="DROPPED", message_id="m6")
    rows.delivery(KEYS[7], NOW, state="RETRY", next_at=NOW + HOUR_MS, message_id="m7")
    rows.delivery(KEYS[25], NOW, state="EXPIRED", message_id="m25")
    rows.delivery(KEYS[114], NOW, message_id="m14")
    rows.delivery(KEYS[116], NOW, message_id="m15")
    rows.insert("recalls", kind="message", name="m8", made_at=NOW, until=NOW + HOUR_MS)
    rows.delivery(KEYS[41], NOW, message_id="m41")
    for offset in (50, 51):
        rows.delivery(KEYS[offset], NOW - 48 * HOUR_MS, message_id=f"m{offset}")
    rows.delivery(KEYS[52], NOW - 48 * HOUR_MS, state="DELIVERED", message_id="m52")
    rows.delivery(KEYS[61], NOW, message_id="m61", kafka_topic=TOPIC, kafka_offset=63)


def left_open(rows: LedgerRows) -> None:
    """Rows that nobody works on, and two whose record waits for its next reader."""
    over = {"expires_at": NOW - HOUR_MS, "updated_at": NOW - HOUR_MS, "policy_version": "v9:none"}
    rows.delivery(KEYS[70], NOW - 2 * HOUR_MS, state="IN_FLIGHT", owner="gone", **over)
    rows.delivery(KEYS[71], NOW - 2 * HOUR_MS, state="RETRY", next_at=NOW - HOUR_MS, **over)
    rows.delivery(
        KEYS[72],
        NOW,
        state="RETRY",
        reason="given_back",
        next_at=NOW - HOUR_MS,
        kafka_topic=TOPIC,
        kafka_offset=3,
    )
    rows.delivery(
        KEYS[73],
        NOW,
        state="RETRY",
        reason="given_back",
        next_at=NOW - HOUR_MS,
        kafka_topic=TOPIC,
        kafka_offset=30,
    )


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Records, a hole, events and dead letters: the same for both databases."""
    from spark_jobs.warehouse import Warehouse

    warehouse = Warehouse(spark, str(tmp_path_factory.mktemp("ingested")))
    read_records(warehouse)
    traced(warehouse)
    return warehouse


@pytest.mark.soak(
    small="tests/spark_jobs/lost/test_places_and_causes.py::test_an_event_after_the_claim_shows_the_row"
)
def test_every_cause_is_found_and_nothing_else(
    rows: LedgerRows, ingested: Warehouse, tmp_path: Path
) -> None:
    # A run rewrites records whose bodies may go, so each database gets a copy.
    bench = Bench(rows, copy_of(ingested, tmp_path / "warehouse"), tmp_path)
    claimed(rows)
    left_open(rows)
    figures = bench.run()
    assert bench.found() == {
        "1": ("removed", "NEW"),
        "5": ("passed", "NEW"),
        "23": ("passed", "NEW"),
        "115": ("passed", "NEW"),
        "24": ("unread", "ASKED"),
        "10": ("forgotten", "ASKED"),
        "11": ("forgotten", "ASKED"),
        "40": ("forgotten", "ASKED"),
        "50": ("silent", "ASKED"),
        "60": ("hole", "ASKED"),
        "62": ("hole", "ASKED"),
        "70": ("open", "ASKED"),
        "71": ("open", "ASKED"),
        "72": ("open", "ASKED"),
        f"{TOPIC}/0/15-15": ("passed", "ASKED"),
        f"{TOPIC}/0/64-69": ("hole", "ASKED"),
    }
    assert figures["findings"] == {
        "forgotten": 3,
        "hole": 3,
        "open": 3,
        "passed": 4,
        "removed": 1,
        "silent": 1,
        "unread": 1,
    }
    detail = dict(rows.rows("SELECT subject, detail FROM lost_findings WHERE cause = 'open'"))
    assert detail[KEYS[71]] == (
        "RETRY past its time: recovery is not at work; no text of policy v9:none, default counts"
    )
    # The second run finds the same. What the ledger has by now is gone, without a look at old records.
    rows.delivery(KEYS[5], NOW, message_id="m5")
    rows.run("UPDATE deliveries SET state = 'UNDELIVERED' WHERE message_id = 'm50'")
    second = bench.run()
    assert second["undecided"] == 5, "21, 23, 24, 25 and 30"
    found = bench.found()
    assert {name for name, (_, status) in found.items() if status == "GONE"} == {"5", "50"}
    assert sum(status == "GONE" for _, status in found.values()) == 2


@ON_POSTGRES
@pytest.mark.soak(small="tests/recovery/lost/test_job.py::test_a_certain_loss_is_entered_and_due")
def test_candidates_of_a_killed_run_are_no_findings(bench: Bench) -> None:
    write(bench.warehouse, "records", record(5), record(6))
    killed = bench.context(positions())
    lost.run_job(killed)
    assert len(bench.rows.rows("SELECT subject FROM lost_candidates")) == 2
    bench.rows.delivery(KEYS[6], NOW, message_id="m6")
    bench.run()
    assert bench.found() == {"5": ("passed", "NEW")}
    assert {run for (run,) in bench.rows.rows("SELECT run_id FROM lost_candidates")} == {
        killed.run_id + 1
    }


@ON_POSTGRES
@pytest.mark.soak(small="tests/spark_jobs/lost/test_job.py::test_a_new_identity_is_a_restore")
def test_after_a_restore_nothing_older_is_surely_lost(bench: Bench) -> None:
    """A worker that died before the restore wrote no event, and the backup has no row of its send."""
    write(bench.warehouse, "records", record(5), record(23))
    bench.run(positions(committed=6))
    assert bench.found() == {"5": ("passed", "NEW"), "23": ("passed", "NEW")}
    bench.rows.run("UPDATE ledger_identity SET id = 'restored-1'")
    later = NOW + HOUR_MS
    write(bench.warehouse, "records", record(6), record(7, timestamp=later))
    certain = "SELECT origin, certain FROM lost_findings ORDER BY id"
    for _ in range(2):  # 23 lies above the committed offset: each run decides about it
        bench.run()
        assert {int(origin.split("/")[2]): sure for origin, sure in bench.rows.rows(certain)} == {
            5: 0,
            6: 0,
            7: 1,
            23: 0,
        }
    assert bench.found()["6"] == ("passed", "ASKED")
    assert bench.found()["7"] == ("passed", "NEW")


@ON_POSTGRES
def test_offsets_committed_after_the_positions_were_read_prove_nothing(bench: Bench) -> None:
    """Else a record whose worker claims and commits while the job asks would be found."""
    write(bench.warehouse, "records", record(21), record(22))
    bench.run(positions(), later=positions(committed=60))
    assert bench.found() == {}


@ON_POSTGRES
@pytest.mark.soak(
    small="tests/spark_jobs/lost/test_places_and_causes.py::test_an_event_after_the_claim_shows_the_row"
)
def test_a_trace_that_shows_all_settled_leaves_the_ledger_alone(bench: Bench) -> None:
    offsets = range(5, 20)
    write(bench.warehouse, "records", *(record(offset) for offset in offsets))
    write(bench.warehouse, "events", *(event(offset) for offset in offsets))
    for offset in offsets:
        bench.rows.delivery(KEYS[offset], NOW - HOUR_MS, message_id=f"m{offset}")
    figures = bench.run()
    assert figures["asked"] == 0
    # One row: the count of the lane's hour. And one that shows that the run is there.
    assert figures["ledger_rows"] == (3 if bench.rows.is_postgres else 2)
    assert bench.found() == {}


@pytest.mark.parametrize("rows", ["sqlite"], indirect=True)
@pytest.mark.soak(
    small="tests/spark_jobs/lost/test_receivers.py::test_a_receiver_in_two_forms_has_one_row"
)
def test_a_receiver_in_two_forms_is_not_lost(bench: Bench) -> None:
    mobile, other = "+8613800000001", "+8613800000002"

    def listed(offset: int, *receivers: str) -> dict[str, Any]:
        notification = Notification(
            channel="sms",
            kind="notice",
            receivers=list(receivers),
            content={"text": "hello"},
            id=f"m{offset}",
            created_at=NOW,
        )
        forms = [(None, "***", None), (key_of(offset, mobile), "+86***", None)]
        return record(offset, deliveries=forms, body=bytearray(encode(notification)))

    def key_of(offset: int, receiver: str) -> str:
        return delivery_key(f"m{offset}", "sms", receiver)

    write(
        bench.warehouse,
        "records",
        listed(5, f"tel:{mobile}", mobile),
        listed(6, f"tel:{other}", mobile),
    )
    for offset in (5, 6):
        bench.rows.delivery(
            key_of(offset, mobile), NOW - HOUR_MS, message_id=f"m{offset}", kafka_offset=offset
        )
    bench.run()
    assert bench.found() == {f"{TOPIC}/0/6-6": ("passed", "ASKED")}


@ON_POSTGRES
@pytest.mark.soak(
    small="tests/spark_jobs/ingest/test_job.py::test_bodies_leave_once_the_ledger_has_their_deliveries"
)
def test_bodies_may_go_once_the_ledger_has_every_delivery(bench: Bench) -> None:
    from spark_jobs.lost.job import OWNED, run
    from spark_jobs.lost.scope import RunScope

    both = [(KEYS[106], "a", None), (KEYS[107], "b", None)]
    one = [(KEYS[108], "a", None), (KEYS[109], "b", None)]
    write(
        bench.warehouse,
        "records",
        record(5),
        record(6, deliveries=both),
        record(7, deliveries=one),
        record(8, body=None),
        record(30),
    )
    write(bench.warehouse, "events", event(5), event(8))
    for key in (KEYS[106], KEYS[107], KEYS[108]):
        bench.rows.delivery(key, NOW, message_id=key)
    context = bench.context(positions())
    seen: list[Any] = []

    def on_owned(found: DataFrame) -> None:
        assert tuple(found.columns) == OWNED
        seen.extend(row["offset"] for row in found.collect())

    from hongyan.spark.policy_terms import lane_policies

    run(
        context.spark,
        context.warehouse,
        context.config,
        context.run_id,
        context.positions,
        lane_policies(bench.settings, bench.rows.database).terms,
        scope=RunScope(),
        book=bench.rows.login,
        on_owned=on_owned,
    )
    assert sorted(seen) == [5, 6]


@ON_POSTGRES
def test_a_replica_that_is_behind_ends_the_run_without_a_finding(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_jobs.lost.ledger import LedgerAway

    monkeypatch.setattr("spark_jobs.lost.job.PATIENCE_S", 0.1)
    write(bench.warehouse, "records", record(5))
    context = bench.context(positions())
    with bench.rows.database.begin() as connection:
        connection.execute(text("UPDATE spark_runs SET positions = ''"))
    with pytest.raises(LedgerAway):
        lost.run_job(context)
    assert bench.rows.rows("SELECT * FROM lost_candidates") == []


@pytest.mark.parametrize(
    ("last", "identity", "hours_from"),
    [
        ({}, "a", 0),
        ({"identity": "a"}, "b", 0),
        ({"identity": "a"}, "a", (NOW // HOUR_MS - 1) * HOUR_MS),
        ({"identity": "a", "compared": 2_000_000}, "a", None),
    ],
    ids=["first", "another identity", "the last hours", "many in this hour"],
)
def test_hours_are_compared_from_the_last_run_on(
    last: dict[str, Any], identity: str, hours_from: int | None
) -> None:
    noon = NOW // HOUR_MS * HOUR_MS + 1_000
    midday = noon - noon % (24 * HOUR_MS) + 12 * HOUR_MS + 1_000
    shift = midday - noon
    at = Positions(midday, [])
    run = SimpleNamespace(id=3, positions=at.as_json(), figures=last, watermark=midday)
    scope = lost.scope_of(cast(Any, run), identity, midday + 1_000, 3)
    assert scope.hours_from == (hours_from + shift if hours_from else hours_from)
    assert scope.decided is not None
    assert (scope.run, scope.decided.taken_at) == (3, midday)


@pytest.mark.parametrize(
    ("last", "restored_at"),
    [
        ({}, 0),
        ({"identity": "a"}, 0),
        ({"identity": "b"}, NOW),
        ({"identity": "b", "restored_at": 5}, NOW),
        ({"identity": "a", "restored_at": 5}, 5),
    ],
)
def test_a_new_identity_is_a_restore(last: dict[str, Any], restored_at: int) -> None:
    at = Positions(NOW - 1, []).as_json()
    run = SimpleNamespace(id=3, positions=at, figures=last, watermark=NOW)
    assert lost.scope_of(cast(Any, run), "a", NOW, 3).restored_at == restored_at


def test_many_deliveries_are_compared_once_an_hour() -> None:
    noon = NOW // (24 * HOUR_MS) * 24 * HOUR_MS + 12 * HOUR_MS
    figures: dict[str, Any] = {"identity": "a", "compared": 2_000_000, "compared_at": noon}
    compared = []
    for at in range(noon + 60_000, noon + 2 * HOUR_MS, 10 * 60_000):
        last_at = Positions(at - 60_000, []).as_json()
        run = SimpleNamespace(id=3, positions=last_at, figures=figures, watermark=noon)
        scope = lost.scope_of(cast(Any, run), "a", at, 3)
        found = 2_000_000 if scope.hours_from is not None else 0
        figures = {"identity": "a", "compared": found}
        figures |= lost.compared_by(cast(Any, run), scope, at)
        if found:
            compared.append((at - noon) // HOUR_MS)
            assert scope.hours_from == noon - HOUR_MS
    assert compared == [1]


def test_the_days_read_begin_with_the_oldest_undecided_record() -> None:
    def since(**figures: Any) -> date | None:
        at = Positions(NOW, []).as_json()
        run = SimpleNamespace(id=3, positions=at, figures=figures, watermark=NOW)
        return lost.scope_of(cast(Any, run), "a", NOW, 3).since

    yesterday = date.fromordinal(TODAY.toordinal() - 1)
    assert since() == yesterday
    assert since(oldest_day="2026-01-03") == date(2026, 1, 2)
    assert lost.scope_of(None, "a", NOW, 3).since is None
