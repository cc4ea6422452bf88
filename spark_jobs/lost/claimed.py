"""Deliveries that the trace shows as owned by the ledger: nobody needs to ask about these."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tracing.events import Stage

_WITHOUT_A_ROW: Final = (
    Stage.ACCEPTED,
    Stage.RECALL_ASKED,
    Stage.DEAD_LETTER,
    Stage.REMOVED,
    Stage.HANDED_OVER,
)
"""Stages of a delivery that no ledger may know. Every other one is written after its row."""
_AT_CLAIM: Final = (
    Stage.SETTLED,
    Stage.EXPIRED,
    Stage.DROPPED,
    Stage.PARKED,
    Stage.HELD,
    Stage.BEHIND,
)
_RECEIPTS: Final = (Stage.RECEIPT, Stage.RECEIPT_CONTRADICTED)
HOUR_MS: Final = 3_600_000
KEY: Final = "^[0-9a-f]{32}$"
"""A delivery key. The trace topic may hold foreign text: none of it goes into a statement."""


def has_key() -> Column:
    """Returns whether the row names a delivery."""
    return f.col("delivery_key").rlike(KEY)


def claimed(events: DataFrame) -> DataFrame:
    """Returns the delivery keys that have a row, or had one when their event was written."""
    return events.where(has_key() & ~f.col("stage").isin(*_WITHOUT_A_ROW)).select("delivery_key")


def claims_by_hour(events: DataFrame, versions: DataFrame) -> DataFrame:
    """Returns one row per delivery that entered the ledger: delivery_key, lane, hour (its start, by the
    claim), and the fields that describe it to a person.

    `versions` has the columns of `terms.TERMS`. Deliveries of a version without a ledger are left out.
    """
    without = versions.where(f.col("guarantee") == "best_effort").select("policy_version", "lane")
    at = f.coalesce(f.when(f.col("claimed_at") > 0, f.col("claimed_at")), f.col("at"))
    entered = events.where(has_key() & f.col("stage").isin(*_AT_CLAIM))
    entered = entered.join(f.broadcast(without), ["policy_version", "lane"], "left_anti")
    return entered.groupBy("delivery_key").agg(
        f.min_by("lane", at).alias("lane"),
        f.floor(f.min(at) / HOUR_MS).alias("hour"),
        *(
            f.max_by(name, "at").alias(name)
            for name in ("message_id", "biz_id", "receiver", "origin", "state")
        ),
        f.max("created_at").alias("created_at"),
    )


def sent(events: DataFrame) -> DataFrame:
    """Returns one row per delivery that the trace shows as SENT, without a receipt and not recalled."""
    names = ("lane", "account", "message_id", "biz_id", "receiver", "origin", "created_at")
    over = events.where(f.col("stage").isin(*_RECEIPTS, Stage.RECALLED)).select("delivery_key")
    found = events.where(has_key() & (f.col("state") == "SENT"))
    return (
        found.where(f.col("stage").isin(Stage.SETTLED, Stage.RESOLVED))
        .groupBy("delivery_key")
        .agg(
            f.max("at").alias("sent_at"),
            *(f.max_by(name, "at").alias(name) for name in names),
        )
        .join(over, "delivery_key", "left_anti")
    )


def reporting(events: DataFrame) -> DataFrame:
    """Returns the accounts that have had receipts."""
    receipts = events.where(f.col("stage").isin(*_RECEIPTS) & (f.col("account") != ""))
    return receipts.select("account").distinct()
