"""The ledger's rows by offsets, grouped in the database: one row comes back per run of offsets.

PostgreSQL finds a row's run by `width_bucket` over the partition's bounds: a search by halves. SQLite joins
the runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.audit.counts import OffsetRun
from spark_jobs.config import JdbcLogin, JobConfig

RUNS_PER_QUESTION: Final = 2_000
_DAY_MS: Final = 86_400_000
_ROWS: Final = "number BIGINT, rows BIGINT, fresh BIGINT"
_FINDINGS: Final = "origin STRING, cause STRING, findings BIGINT"
_READ_ONLY: Final = "SELECT set_config('default_transaction_read_only', 'on', false)"
_POSTGRES: Final = """
SELECT number, count(*) AS rows, count(*) FILTER (WHERE updated_at >= {fresh}) AS fresh FROM (
    SELECT b.numbers[(width_bucket(d.kafka_offset, b.bounds) + 1) / 2] AS number,
           width_bucket(d.kafka_offset, b.bounds) % 2 AS inside, d.updated_at
      FROM deliveries AS d
      JOIN (VALUES {bounds}) AS b (topic, partition, bounds, numbers)
        ON d.kafka_topic = b.topic AND d.kafka_partition = b.partition
     WHERE d.day >= {day}) AS placed
 WHERE inside = 1 GROUP BY number"""
_SQLITE: Final = """
SELECT r.number AS number, count(*) AS rows, coalesce(sum(d.updated_at >= {fresh}), 0) AS fresh
  FROM (SELECT column1 AS number, column2 AS topic, column3 AS partition, column4 AS first,
               column5 AS next FROM (VALUES {runs})) AS r
  JOIN deliveries AS d
    ON d.kafka_topic = r.topic AND d.kafka_partition = r.partition
   AND d.kafka_offset >= r.first AND d.kafka_offset < r.next
 WHERE d.day >= {day} GROUP BY r.number"""
_OPEN_FINDINGS: Final = """
SELECT origin, cause, count(*) AS findings FROM lost_findings
 WHERE status <> 'GONE' AND origin IS NOT NULL
   AND cause IN ('passed', 'removed', 'forgotten', 'silent')
 GROUP BY origin, cause"""


class RunRows(NamedTuple):
    """The ledger's rows of one run of offsets."""

    run: OffsetRun
    rows: int
    fresh: int
    """Rows that were written after the trace was read."""


def rows_of_runs(
    spark: SparkSession, config: JobConfig, runs: Sequence[OffsetRun], fresh_since: int
) -> list[RunRows]:
    """Returns the ledger's counts of these runs. A row is made on its record's day or later. Raises the
    database's errors as Spark's."""
    found: list[RunRows] = []
    for start in range(0, len(runs), RUNS_PER_QUESTION):
        some = runs[start : start + RUNS_PER_QUESTION]
        statement = statement_of(some, fresh_since, is_postgres=_is_postgres(config.ledger))
        rows = _answer(spark, config.ledger, statement, _ROWS).collect()
        counts = {row["number"]: (row["rows"], row["fresh"]) for row in rows}
        found += [RunRows(run, *counts.get(number, (0, 0))) for number, run in enumerate(some, 1)]
    return found


def findings(spark: SparkSession, login: JdbcLogin) -> DataFrame:
    """Returns the findings of the lost job by record and cause: the delivery is known to be missing."""
    return _answer(spark, login, _OPEN_FINDINGS, _FINDINGS)


def statement_of(runs: Sequence[OffsetRun], fresh_since: int, *, is_postgres: bool) -> str:
    """Returns the statement for these runs, numbered from 1."""
    day = min(run.hour for run in runs) // _DAY_MS - 1
    if not is_postgres:
        values = ", ".join(
            f"({number}, '{run.topic}', {run.partition}, {run.first}, {run.next})"
            for number, run in enumerate(runs, 1)
        )
        return _SQLITE.format(fresh=int(fresh_since), runs=values, day=day)
    bounds = ", ".join(_bounds(runs))
    return _POSTGRES.format(fresh=int(fresh_since), bounds=bounds, day=day)


def _bounds(runs: Sequence[OffsetRun]) -> Iterator[str]:
    """Returns a row per partition: the first and next offsets of its runs in order, and their numbers."""
    by_partition: dict[tuple[str, int], list[tuple[int, OffsetRun]]] = defaultdict(list)
    for number, run in enumerate(runs, 1):
        by_partition[run.topic, run.partition].append((number, run))
    for (topic, partition), some in by_partition.items():
        ordered = sorted(some, key=lambda one: one[1].first)
        offsets = chain.from_iterable((run.first, run.next) for _, run in ordered)
        numbers = ", ".join(str(number) for number, _ in ordered)
        yield (
            f"('{topic}', {partition}, ARRAY[{', '.join(map(str, offsets))}]::bigint[],"
            f" ARRAY[{numbers}]::bigint[])"
        )


def _is_postgres(login: JdbcLogin) -> bool:
    return login.url.startswith("jdbc:postgresql:")


def _answer(spark: SparkSession, login: JdbcLogin, statement: str, schema: str) -> DataFrame:
    properties = {"driver": login.driver, "customSchema": schema}
    if login.user:
        properties |= {"user": login.user, "password": login.password}
    if _is_postgres(login):
        properties["sessionInitStatement"] = _READ_ONLY
    return spark.read.jdbc(login.url, f"({statement}) AS asked", properties=properties)
