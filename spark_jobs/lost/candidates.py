"""Candidates: what a run proposes as lost. They count for nothing until the run has ended.

Spark's JDBC writer has no upsert, and a repeated task writes its rows twice. The rows therefore carry the
run's number, and the transaction that ends the run makes findings of them (idempotency/lost/candidates.py).
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from message.loss import LossCause
from spark_jobs.config import JdbcLogin
from spark_jobs.lost.frames import empty

TABLE: Final = "lost_candidates"
BATCH: Final = 5_000
CANDIDATE: Final = """
subject STRING, cause STRING, lane STRING, message_id STRING, biz_id STRING, receiver STRING, origin STRING,
created_at BIGINT, expires_at BIGINT, certain SMALLINT, detail STRING, body BINARY"""


def as_candidates(
    frame: DataFrame,
    *,
    cause: LossCause | Column,
    detail: Column,
    subject: str = "delivery_key",
    certain: Column | None = None,
) -> DataFrame:
    """Returns the frame with the columns of CANDIDATE, missing ones null. `certain`: none is."""
    schema = StructType.fromDDL(CANDIDATE)
    assert isinstance(schema, StructType)
    made: dict[str, Column] = {
        "subject": f.col(subject),
        "cause": f.lit(cause.value) if isinstance(cause, LossCause) else cause,
        "certain": (f.lit(False) if certain is None else certain).cast("int"),
        "detail": detail,
    }
    for field in schema:
        if field.name not in made:
            there = field.name in frame.columns
            made[field.name] = f.col(field.name) if there else f.lit(None)
    return frame.select(*(made[one.name].cast(one.dataType).alias(one.name) for one in schema))


def union_of(spark: SparkSession, frames: list[DataFrame]) -> DataFrame:
    """Returns all of them, one row for each subject and cause."""
    return reduce(DataFrame.unionByName, frames, empty(spark, CANDIDATE)).dropDuplicates(
        ["subject", "cause"]
    )


def write(candidates: DataFrame, run_id: int, book: JdbcLogin, connections: int) -> None:
    """Adds the candidates to the ledger's database under the run, over at most so many connections."""
    rows = candidates.withColumn("run_id", f.lit(run_id).cast("bigint"))
    is_postgres = book.url.startswith("jdbc:postgresql:")
    writer = rows.coalesce(connections if is_postgres else 1).write.format("jdbc").mode("append")
    options = {
        "url": book.url,
        "driver": book.driver,
        "dbtable": TABLE,
        "batchsize": str(BATCH),
        **({"user": book.user, "password": book.password} if book.user else {}),
        **({"reWriteBatchedInserts": "true"} if is_postgres else {"busy_timeout": "10000"}),
    }
    writer.options(**options).save()
