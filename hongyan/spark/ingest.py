"""The job `ingest` (spark_jobs/ingest/job.py)."""

from __future__ import annotations

from hongyan.spark.wiring import JobContext, JobResult
from spark_jobs.positions import Positions


def run_job(context: JobContext) -> JobResult:
    """Reads everything up to the context's positions. Raises SparkTrouble, KafkaUnavailable."""
    from spark_jobs.errors import SparkTrouble
    from spark_jobs.ingest.job import run

    if is_embedded(context.positions):
        raise SparkTrouble(
            "Spark's Kafka client cannot read the embedded Kafka, which knows only a part of the protocol;"
            " the jobs need a real broker (`make up` starts one)"
        )
    figures = run(
        context.spark,
        context.warehouse,
        context.config,
        context.run_id,
        context.positions,
        context.positions_now,
    )
    return JobResult(figures.as_json(), figures.watermark)


def is_embedded(positions: Positions) -> bool:
    """Returns True for positions of the embedded Kafka: its topics have no ids."""
    there = positions.partitions
    return bool(there) and not any(one.topic_id for one in there)
