"""`hongyan spark rebuild`: the program's side of spark_jobs/rebuild."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from hongyan.spark.wiring import JobContext, JobResult
from idempotency.lost.runs import Runs
from idempotency.lost.trace_hours import (
    TraceDouble,
    TraceGap,
    TraceHour,
    put_doubles,
    put_gaps,
    replace_hours,
)
from idempotency.payload_cipher import PayloadCipher, PayloadUnreadable
from idempotency.sql_ledger import clock_of
from message.envelope import EnvelopeError, decode
from message.keys import delivery_key, normalise_receiver
from message.vocabulary import LANES
from policy.active import in_force
from policy.schema import TraceLevel
from policy.versions import Versions

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from spark_jobs.rebuild.job import RebuildFigures
    from spark_jobs.rebuild.missing import TraceLevels
    from spark_jobs.rebuild.unkeyed import SealedRecord


def run_job(context: JobContext) -> JobResult:
    """Runs one rebuild. Returns its figures, and what is to be written with the run's end."""
    from spark_jobs.rebuild.job import Surroundings, run

    runs = Runs(context.database, clock_of(context.database))
    newest, ingest = runs.newest("rebuild"), runs.newest("ingest")
    around = Surroundings(
        earlier=newest.figures if newest else None,
        levels=_levels(context),
        keys_of=keys_by(context.settings.database.payload_key),
    )
    figures = run(context.spark, context.warehouse, context.config, around)
    return JobResult(
        figures=figures.as_json(),
        watermark=ingest.watermark if ingest is not None else None,
        also=_writer(context.run_id, figures),
    )


def keys_by(payload_key: str) -> Callable[[SealedRecord], Sequence[str]]:
    """Returns a function that opens a record's body and returns its receivers' delivery keys."""
    cipher = PayloadCipher(payload_key)

    def keys_of(record: SealedRecord) -> Sequence[str]:
        try:
            notification = decode(cipher.open(record.body, record.message_id))
        except (EnvelopeError, PayloadUnreadable):
            return ()
        channel = notification.channel
        return [
            delivery_key(notification.id, channel, normalise_receiver(channel, receiver))
            for receiver in notification.receivers
        ]

    return keys_of


def _levels(context: JobContext) -> TraceLevels:
    """Returns the lanes whose policy, as it is now, leaves events out of the trace."""
    from spark_jobs.rebuild.missing import TraceLevels

    policy = in_force(context.settings, Versions(context.database)).policy
    level = {lane.name: policy.of(lane).trace for lane in LANES}
    return TraceLevels(
        trouble=[name for name, one in level.items() if one is TraceLevel.TROUBLE],
        none=[name for name, one in level.items() if one is TraceLevel.NONE],
    )


def _writer(run_id: int, figures: RebuildFigures) -> Callable[[Connection], None]:
    days = [_start(day) for day in figures.days]
    hours = [TraceHour(*hour) for hour in figures.hours]
    gaps = [TraceGap(*gap) for gap in figures.gaps]
    doubles = [TraceDouble(*double) for double in figures.doubles]

    def write(connection: Connection) -> None:
        replace_hours(connection, run_id, days, hours)
        put_gaps(connection, run_id, gaps)
        put_doubles(connection, run_id, doubles)

    return write


def _start(day: date) -> int:
    return int(datetime.combine(day, datetime.min.time(), UTC).timestamp() * 1000)
