"""Deliveries that a provider accepted twice, each attempt under a claim of its own."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.states import State
from tracing.events import Stage

MOST: Final = 10_000
"""Doubles that one run reports at most; figures count all."""
_FIELDS: Final = (
    "at", "stage", "attempt", "worker", "account", "provider_id", "claimed_at", "started_at",
    "answered_at", "reason",
)  # fmt: skip


class DoubleSend(NamedTuple):
    """One delivery. `attempts` are the accepted ones in their order."""

    delivery_key: str
    lane: str
    at: int
    """Time of the second acceptance, epoch milliseconds."""
    attempts: list[dict[str, Any]]


def doubles(rows: DataFrame) -> DataFrame:
    """Returns (delivery_key, lane, at, attempts) of each double send among rows of `deliveries`."""
    # The statistics of `acceptances` pass over almost every file: no other timeline is read.
    several = rows.where(F.col("acceptances") > 1)
    return several.select(
        "delivery_key", "lane", F.filter("timeline", accepted).alias("accepted")
    ).select(
        "delivery_key",
        "lane",
        F.get(F.col("accepted.at"), F.lit(1)).alias("at"),
        F.transform("accepted", lambda e: F.struct(*[e[name] for name in _FIELDS])).alias(
            "attempts"
        ),
    )


def claims_in(timeline: Column) -> Column:
    """Returns the number of claims under which a provider accepted the delivery."""
    found = F.filter(timeline, accepted)
    direct = F.filter(found, lambda e: ~_is_resolved(e))
    # A doubt that was resolved is the attempt that it was about, not one more.
    doubts = F.array_except(
        F.transform(F.filter(found, _is_resolved), _attempt), F.transform(direct, _attempt)
    )
    return F.size(F.array_distinct(F.transform(direct, _claim))) + F.size(doubts)


def read(found: DataFrame) -> list[DoubleSend]:
    """Returns the double sends, `MOST` at most."""
    rows = found.orderBy("delivery_key").limit(MOST).collect()
    return [
        DoubleSend(
            row["delivery_key"], row["lane"] or "", row["at"], [_bare(e) for e in row["attempts"]]
        )
        for row in rows
    ]


def accepted(event: Column) -> Column:
    """Returns whether a provider accepted the attempt.

    A fenced attempt with a provider's id was accepted, too: only its row was another's by
    then.
    """
    stage, sent = event["stage"], event["state"] == State.SENT.value
    ours = stage.isin([Stage.SETTLED.value, Stage.RESOLVED.value]) & sent
    return F.coalesce(
        ours | ((stage == Stage.FENCED.value) & event["provider_id"].isNotNull()), F.lit(False)
    )


def _is_resolved(event: Column) -> Column:
    return event["stage"] == Stage.RESOLVED.value


def _attempt(event: Column) -> Column:
    return F.coalesce(event["attempt"], F.lit(0))


def _claim(event: Column) -> Column:
    claimed = F.coalesce(event["claimed_at"], event["started_at"])
    return F.struct(_attempt(event), claimed, event["worker"])


def _bare(attempt: Any) -> dict[str, Any]:
    return {name: value for name, value in attempt.asDict().items() if value is not None}
