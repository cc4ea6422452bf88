"""Milliseconds per stage of a delivery, null where one of the two times is unknown.

    wait_ms      record appended → read by the worker that read it first
    claim_ms     read → first claim
    queue_ms     claim → start of the call, of the attempt that ended it
    call_ms      start of that call → its end
    settle_ms    end of that call → settled
    total_ms     made by its sender (else appended) → ended
    receipt_ms   ended → first receipt

The times are of different clocks (broker, worker, provider): a difference below 0 counts as 0.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

STAGES: Final = ("wait", "claim", "queue", "call", "settle", "total", "receipt")
"""Columns are `STAGE_ms`, in the order of the pipeline."""


def latencies(end: Column) -> dict[str, Column]:
    """Returns the columns. `end` is the event that ended the delivery; the times of the row are columns."""
    return {
        "wait_ms": _between(F.col("appended_at"), F.col("received_at")),
        "claim_ms": _between(F.col("received_at"), F.col("claimed_at")),
        "queue_ms": _between(end["claimed_at"], end["started_at"]),
        "call_ms": _between(end["started_at"], end["answered_at"]),
        "settle_ms": _between(end["answered_at"], end["at"]),
        "total_ms": _between(F.coalesce("created_at", "appended_at"), F.col("ended_at")),
        "receipt_ms": _between(F.col("ended_at"), F.col("receipt_at")),
    }


def _between(start: Column, end: Column) -> Column:
    return F.when(start.isNotNull() & end.isNotNull(), F.greatest(end - start, F.lit(0)))
