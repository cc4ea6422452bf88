"""The ingest on real Kafka: exact offsets, killed anywhere, records removed, no key in sight."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from backends.settings import KafkaSettings
from hongyan.spark.kafka_options import kafka_options
from hongyan.spark.positions import read_positions
from message.keys import delivery_key
from spark_jobs.config import JobConfig
from spark_jobs.ingest import job
from spark_jobs.ingest.bodies import drop_bodies
from spark_jobs.ingest.kafka_source import kafka_records
from spark_jobs.ingest.plan import make_plan
from spark_jobs.ingest.records import records_of
from spark_jobs.ingest.secrets import with_secrets
from spark_jobs.jvm import jvm_of
from spark_jobs.positions import Positions
from spark_jobs.warehouse import Warehouse
from tests.spark_jobs.conftest import config_for
from tests.spark_jobs.ingest.making import envelope
from tracing.events import Stage, TraceEvent
from tracing.record_headers import record_headers

PAYLOAD_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
HASH_KEY = "a-hash-key-that-nobody-may-ever-see-anywhere"
LIFE = "worker-1/00000000000000aa"


class Topics:
    """A lane's topic of two partitions, the trace and the dead letters."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.settings = KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self.producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
        self.lane = f"{prefix}.dispatch.sms.notice"
        self.trace, self.dead = f"{prefix}.trace", f"{prefix}.dead"
        self.sent = self.traced = self.letters = 0

    def make(self, topic: str, partitions: int) -> None:
        for done in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            done.result(10)

    def produce(self, records: int, events: int, letters: int = 0) -> None:
        """Messages m-0, m-1, …; events of one life, two a record; dead letters."""
        for _ in range(records):
            record = json.dumps(envelope(id=f"m-{self.sent}", created_at=now_ms()))
            self.producer.produce(self.lane, record, partition=self.sent % 2)
            self.sent += 1
        for _ in range(0, events, 2):
            value = msgspec.json.encode([event(self.traced), event(self.traced + 1)])
            numbers = dict[str, str | bytes | None](record_headers(LIFE, self.traced, 0))
            self.producer.produce(self.trace, value, headers=numbers)
            self.traced += 2
        for _ in range(letters):
            marks: dict[str, str | bytes | None] = {
                "hongyan-dead-reason": b"not_json",
                "hongyan-dead-origin": f"{self.lane}/0/{self.letters}".encode(),
            }
            self.producer.produce(self.dead, b"x", headers=marks)
            self.letters += 1
        assert self.producer.flush(10) == 0

    def positions(self) -> Positions:
        return read_positions(self.settings)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def event(number: int) -> TraceEvent:
    return TraceEvent(at=now_ms(), stage=Stage.SETTLED, message_id=f"m-{number}", state="SENT")


@pytest.fixture
def topics(kafka_bootstrap: str, topic_prefix: str) -> Topics:
    made = Topics(kafka_bootstrap, topic_prefix)
    made.make(made.lane, 2)
    made.make(made.trace, 1)
    made.make(made.dead, 1)
    return made


@pytest.fixture
def config(topics: Topics, tmp_path: Path) -> JobConfig:
    return config_for(
        str(tmp_path / "warehouse"),
        topic_prefix=topics.settings.topic_prefix,
        kafka=kafka_options(topics.settings),
        payload_key=PAYLOAD_KEY,
        hash_key=HASH_KEY,
    )


pytestmark = pytest.mark.timeout(600)  # a commit takes a second and more on a busy machine


class Killed(BaseException):
    """The process ends here."""


class MortalWarehouse(Warehouse):
    """Ends the process before one of its commits."""

    before: str | None = None

    def append(self, table: str, frame: Any, app: str, version: int) -> None:
        if table == self.before:
            raise Killed
        super().append(table, frame, app, version)


@pytest.mark.soak(
    small="tests/spark_jobs/test_warehouse.py::test_the_same_version_again_changes_nothing"
)
def test_killed_anywhere_and_run_again_gives_each_row_once(
    spark: SparkSession, topics: Topics, config: JobConfig
) -> None:
    warehouse = MortalWarehouse(spark, config.warehouse)
    for run_id, table in enumerate(("records", "trace_records", "ranges"), start=1):
        topics.produce(3, 4, letters=1 if table == "ranges" else 0)
        warehouse.before = table
        with pytest.raises(Killed):
            job.run(spark, warehouse, config, run_id, topics.positions())
        topics.produce(1, 2)  # comes in between: no part of the step that is done again
    warehouse.before = None
    positions = topics.positions()
    figures = job.run(spark, warehouse, config, 9, positions)
    assert figures.watermark == positions.taken_at
    assert figures.steps == 2  # the one that was left open, and one for the rest
    _assert_exact(warehouse, topics)
    again = job.run(spark, warehouse, config, 10, topics.positions())
    assert (again.steps, again.rows) == (0, {})


def _assert_exact(warehouse: Warehouse, topics: Topics) -> None:
    records = warehouse.read("records").collect()
    assert sorted(row.message_id for row in records) == sorted(f"m-{n}" for n in range(topics.sent))
    keys = {row.message_id: [one.delivery_key for one in row.deliveries] for row in records}
    assert all(keys[m] == [delivery_key(m, "sms", "+8613800000001")] for m in keys)
    ids = [row.id for row in warehouse.read("events").select("id").collect()]
    assert sorted(ids) == sorted(f"{LIFE}:{n}" for n in range(topics.traced))
    lives = warehouse.read("trace_records").select("first", "events").collect()
    assert sorted((row.first, row.events) for row in lives) == [
        (first, 2) for first in range(0, topics.traced, 2)
    ]
    assert warehouse.read("dead_letters").count() == topics.letters
    assert warehouse.read("holes").count() == warehouse.read("foreign").count() == 0
    _assert_contiguous(warehouse.read("ranges").collect(), topics)


def _assert_contiguous(rows: Sequence[Any], topics: Topics) -> None:
    """Every offset is in one range, and no other offset is in any."""
    for one in topics.positions().partitions:
        mine = sorted(
            (r.first, r.next) for r in rows if (r.topic, r.partition) == (one.topic, one.partition)
        )
        assert [o for first, next_ in mine for o in range(first, next_)] == list(range(one.end))


def test_records_removed_while_it_reads_are_a_hole_and_it_goes_on(
    spark: SparkSession, topics: Topics, config: JobConfig, warehouse: Warehouse
) -> None:
    topics.produce(8, 2)
    asked: list[Positions] = []

    def positions_now() -> Positions:
        asked.append(topics.positions())
        return asked[-1]

    positions = topics.positions()
    deleted = topics.admin.delete_records([TopicPartition(topics.lane, 1, 3)])
    assert [done.result(10).low_watermark for done in deleted.values()] == [3]
    figures = job.run(spark, warehouse, config, 1, positions, positions_now)
    assert len(asked) == 1
    assert (figures.holes, figures.rows["records"]) == (1, 5)
    (hole,) = warehouse.read("holes").collect()
    assert (hole.topic, hole.lane, hole.partition) == (topics.lane, "sms.notice", 1)
    assert (hole.first, hole.next, hole.reason, hole.run) == (0, 3, "removed", 1)
    assert hole.topic_id == next(p.topic_id for p in positions.partitions if p.topic == topics.lane)
    assert {(r.partition, r.offset) for r in warehouse.read("records").collect()} == {
        *((0, offset) for offset in range(4)),
        (1, 3),
    }


def test_no_key_is_in_any_plan_event_log_or_log(
    spark: SparkSession,
    topics: Topics,
    config: JobConfig,
    warehouse: Warehouse,
    driver_output: Callable[[], Iterator[bytes]],
) -> None:
    topics.produce(2, 0)
    spark.sparkContext.setLogLevel("DEBUG")
    try:
        job.run(spark, warehouse, config, 1, topics.positions())
        records = records_of(
            with_secrets(spark, config, kafka_records(spark, config, _ranges(topics)))
        )
        plans = [
            records._jdf.queryExecution().explainString(mode).encode() for mode in _modes(spark)
        ]
    finally:
        spark.sparkContext.setLogLevel("WARN")
    (first, *_others) = warehouse.read("records").collect()
    assert first.body[:1] == b"\x01"  # they were at work
    assert first.deliveries[0].receiver_hash
    written = [*plans, *driver_output()]
    assert any(
        b"seal_key" in text for text in written[len(plans) :]
    )  # the logs do tell of the plan
    for secret in _spellings():
        assert not any(secret in text for text in written), secret


def _ranges(topics: Topics) -> Any:
    return make_plan([], topics.positions(), topics.settings.topic_prefix, version=0, run=0).ranges


def _modes(spark: SparkSession) -> list[Any]:
    names = ("simple", "extended", "codegen", "cost", "formatted")
    kind = jvm_of(spark).org.apache.spark.sql.execution.ExplainMode
    return [kind.fromString(name) for name in names]


def _spellings() -> Iterator[bytes]:
    """The keys as text, bytes, hex, base64, and as a Java array is printed."""
    import base64

    for raw in (base64.b64decode(PAYLOAD_KEY), HASH_KEY.encode()):
        yield raw
        yield base64.b64encode(raw)
        yield raw.hex().encode()
        yield raw.hex().upper().encode()
        yield ", ".join(map(str, raw)).encode()
        yield " ".join(f"{byte:02X}" for byte in raw).encode()
    for pad in (0x36, 0x5C):
        yield bytes(byte ^ pad for byte in HASH_KEY.encode())


def test_bodies_leave_once_the_ledger_has_their_deliveries(
    spark: SparkSession, topics: Topics, config: JobConfig, warehouse: Warehouse
) -> None:
    topics.produce(6, 0)
    job.run(spark, warehouse, config, 1, topics.positions())
    records = warehouse.read("records")
    owned = records.where("message_id IN ('m-0', 'm-3', 'm-4')")
    assert drop_bodies(warehouse, owned) == 3
    left = {row.message_id: row.body is not None for row in warehouse.read("records").collect()}
    assert left == {f"m-{n}": n not in (0, 3, 4) for n in range(6)}
    assert drop_bodies(warehouse, owned) == 0
