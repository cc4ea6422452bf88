"""Terms of the lanes that decide what is lost, by policy version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

BEST_EFFORT: Final = "best_effort"
TRACED_ALL: Final = "all"

TERMS: Final = """
policy_version STRING, lane STRING, guarantee STRING, horizon_ms BIGINT"""
LANES: Final = """
lane STRING, ttl_ms BIGINT, max_ttl_ms BIGINT, receipt_lag_ms BIGINT, horizon_ms BIGINT, version STRING,
best_effort_until BIGINT"""


@dataclass(frozen=True)
class LaneTerms:
    """One lane under one policy version. Times are milliseconds."""

    policy_version: str
    lane: str
    guarantee: str
    trace: str
    """all | trouble | none."""
    ttl_ms: int
    max_ttl_ms: int
    horizon_ms: int
    """Age past which nothing is tried again."""
    receipt_lag_ms: int
    """Time after SENT within which a receipt comes."""
    lost: str
    """resend | ask."""
    since: int = 0
    """Epoch milliseconds from which the version was in force last; 0: unknown, or ever since."""
    current: bool = False
    """Whether the version is in force now."""
    alone_since: int = 0
    """Epoch milliseconds until which a worker may have served the lane under an earlier version; 0: none
    is known."""


def in_force(terms: Sequence[LaneTerms]) -> dict[str, LaneTerms]:
    """Returns the current terms of each lane."""
    return {one.lane: one for one in terms if one.current}


def untraced(terms: Sequence[LaneTerms]) -> list[str]:
    """Returns the lanes with a ledger whose good sends are not in the trace."""
    kept = [one for one in in_force(terms).values() if one.guarantee != BEST_EFFORT]
    return sorted(one.lane for one in kept if one.trace != TRACED_ALL)


def best_effort_until(terms: Sequence[LaneTerms], now: int) -> dict[str, int]:
    """Returns, by lane, the last moment at which it had no ledger. Lanes that always had one are left out.

    A record from before that moment may have been sent without a row, so nothing is proved by its absence.
    The moment is `now` for a version in force that no time places after the one without a ledger.
    """
    until: dict[str, int] = {}
    for lane in {one.lane for one in terms}:
        own = sorted((one for one in terms if one.lane == lane), key=lambda t: (t.current, t.since))
        for one, later in zip(own, [*own[1:], None], strict=True):
            if one.guarantee != BEST_EFFORT:
                continue
            ended = now
            if later is not None and later.since > one.since:
                ended = max(later.since, later.alone_since)
            until[lane] = max(until.get(lane, 0), ended)
    return until


def terms_frame(spark: SparkSession, terms: Sequence[LaneTerms]) -> DataFrame:
    """Returns every version of every lane, with the columns of TERMS."""
    rows = {(one.policy_version, one.lane): (one.guarantee, one.horizon_ms) for one in terms}
    return spark.createDataFrame([(*name, *row) for name, row in rows.items()], TERMS)


def lanes_frame(spark: SparkSession, terms: Sequence[LaneTerms], now: int) -> DataFrame:
    """Returns the lanes as they are now, with the columns of LANES."""
    until: Mapping[str, int] = best_effort_until(terms, now)
    rows = [
        (
            lane,
            one.ttl_ms,
            one.max_ttl_ms,
            one.receipt_lag_ms,
            one.horizon_ms,
            one.policy_version,
            until.get(lane),
        )
        for lane, one in in_force(terms).items()
    ]
    return spark.createDataFrame(rows, LANES)
