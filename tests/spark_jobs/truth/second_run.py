"""The same day twice: once undisturbed, once with the driver killed at random moments and the records of
the trace doubled and shuffled. Both begin with an empty warehouse and a copy of the ledger."""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from deltalake import DeltaTable, QueryBuilder
from psycopg import sql

from idempotency.lost.runs import DUTY
from message.vocabulary import trace_topic
from tests.harness.books import Books
from tests.harness.databases import connected, copy_database, named
from tests.spark_jobs.truth.program import Program
from tests.spark_jobs.truth.scene import Scene

_RUN = ("spark", "run")
"""Every job once. It fails for a job that failed, and not for findings."""
_MOMENTS_S = (4.0, 40.0)
"""A driver is killed so long after its start: from the first job on until long after the last commit."""
_EMPTIED = (
    "spark_runs",
    "lost_candidates",
    "lost_findings",
    "trace_hours",
    "trace_gaps",
    "trace_audits",
    "trace_doubles",
)
_TABLES = {
    "lost_findings": "subject, cause, lane, message_id, biz_id, receiver, origin, created_at, expires_at,"
    " certain, detail, body IS NOT NULL, status",
    "trace_hours": "hour, lane, template, account, counts, latencies",
    "trace_gaps": "life, first_at, last_at, events, missing, dropped, ended",
    "trace_doubles": "delivery_key, lane, at, attempts",
}
"""Their columns that no run's number and no clock decides."""
_ENOUGH = 30
"""Starts after a kill before the run is given up: the duty of a killed driver has to lapse first."""

Fingerprint = dict[str, str]


def fingerprint_of_two_runs(scene: Scene) -> tuple[Fingerprint, Fingerprint]:
    """Returns the hashes of tables and findings: undisturbed, then killed, doubled and shuffled."""
    for recovery in scene.fleet.recoveries:
        recovery.stop()
    scene.pass_by()  # so that there is something certain to be found
    with _copy(scene) as (url, books):
        undisturbed = _Day(scene, "undisturbed", url, books)
        undisturbed.finish()
        first = undisturbed.fingerprint()
    double_and_shuffle(scene)
    with _copy(scene) as (url, books):
        killed = _Day(scene, "killed", url, books)
        killed.kill_drivers(scene.extent.driver_kills)
        killed.finish()
        second = killed.fingerprint()
    return first, second


class _Day:
    """One run of the day, in a warehouse of its own."""

    def __init__(self, scene: Scene, name: str, url: str, books: Books) -> None:
        self._warehouse = scene.fleet.folder / f"warehouse-{name}"
        self._name = name
        self._books = books
        self._luck = random.Random(f"{name}/{scene.extent.seed}")
        self._program = Program(
            scene.fleet.config, DATABASE__URL=url, SPARK__WAREHOUSE=str(self._warehouse)
        )

    def kill_drivers(self, count: int) -> None:
        """Starts the loop and kills it, so many times."""
        for _ in range(count):
            with self._program.start(f"day-{self._name}", *_RUN, "--every", "1s") as driver:
                driver.wait(self._luck.uniform(*_MOMENTS_S))
            self._books.query("DELETE FROM duties WHERE name = %s", DUTY)  # as the lease's end does

    def finish(self) -> None:
        """Runs every job to its end; again while a killed driver still holds the duty."""
        said = ""
        for _ in range(_ENOUGH):
            with self._program.start(f"day-{self._name}", *_RUN) as driver:
                if driver.wait(900.0) == 0:
                    return
                said = driver.tail()
        raise AssertionError(f"the jobs never ended well\n{said}")

    def fingerprint(self) -> Fingerprint:
        """Returns a hash per table."""
        found = {table: self._of_table(table, columns) for table, columns in _TABLES.items()}
        return found | {"deliveries": rows_hash(_delta_rows(self._warehouse / "deliveries"))}

    def _of_table(self, table: str, columns: str) -> str:
        return rows_hash(map(tuple, self._books.query(f"SELECT {columns} FROM {table}")))


def rows_hash(rows: Any) -> str:
    """Returns one hash of the rows, whatever their order."""
    lines = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
    return f"{len(lines)} rows {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def double_and_shuffle(scene: Scene) -> None:
    """Produces every record of the trace once more, in another order, with the time that it had."""
    wire = scene.fleet.wire
    messages = list(wire.read(trace_topic(wire.prefix)))
    random.Random(f"shuffle/{scene.extent.seed}").shuffle(messages)
    producer = Producer({"bootstrap.servers": scene.fleet.ground.bootstrap, "log_level": 2})
    for message in messages:
        _, at = message.timestamp()
        producer.produce(message.topic(), message.value(), headers=message.headers(), timestamp=at)
        producer.poll(0)
    assert producer.flush(60.0) == 0, "not all copies were acknowledged"


def _delta_rows(path: Path) -> Iterator[Sequence[Any]]:
    """Yields the rows of a Delta table, read by another implementation than the one that wrote them."""
    reader = (
        QueryBuilder().register("written", DeltaTable(str(path))).execute("SELECT * FROM written")
    )
    for batch in reader:
        names = sorted(batch.schema.names)
        columns = (batch.column(name).to_pylist() for name in names)
        yield from zip(*columns, strict=True)


@contextmanager
def _copy(scene: Scene) -> Iterator[tuple[str, Books]]:
    """Yields the URL and the books of a copy of the ledger without anything that Spark jobs wrote; dropped
    afterwards."""
    source = scene.fleet.ground.database_url
    copy = f"t_{uuid.uuid4().hex[:16]}"
    url = named(source, copy)
    with connected(named(source, "postgres")) as server:
        copy_database(server, source.rpartition("/")[2], copy)
        try:
            with closing(Books(url)) as books:
                for table in _EMPTIED:
                    books.query(f"TRUNCATE {table}")
                yield url, books
        finally:
            dropped = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            server.execute(dropped.format(sql.Identifier(copy)))
