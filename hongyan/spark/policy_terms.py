"""Terms of the lanes by policy version, for the lost job: from the texts that the database keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import structlog
from sqlalchemy import text

from backends.settings import Settings
from backends.sql.database import Database
from message.vocabulary import LANES
from policy.active import in_force
from policy.loading import PolicyError, parse
from policy.schema import Policy
from policy.versions import Versions
from spark_jobs.lost.terms import LaneTerms

log = structlog.get_logger(__name__)
MOST: Final = 500
"""Newest versions that are read; rows of older ones count by the current."""
_TEXTS: Final = text("""
SELECT version, at, text FROM (
    SELECT name AS version, at, text FROM policy_versions
     UNION ALL SELECT version, at, text FROM policy_texts) AS texts
 ORDER BY at DESC LIMIT :limit""")


class LanePolicies(NamedTuple):
    """Terms of all policy versions, for the lost job."""

    terms: list[LaneTerms]
    resending: list[str]
    """Lanes whose surely lost deliveries recovery sends by itself."""


def lane_policies(settings: Settings, database: Database) -> LanePolicies:
    """Returns the terms of all lanes in all versions on record. A text that this program cannot read is
    left out and logged. Raises PolicyError for the policy in force, SqlError."""
    current = in_force(settings, Versions(database)).policy
    terms = [*_terms(current, since=0, current=True)]
    with database.begin() as connection:
        rows = connection.execute(_TEXTS, {"limit": MOST}).all()
    for row in rows:
        try:
            policy = parse(row.version, row.text.encode(), None, version=row.version)
        except PolicyError as exc:
            log.warning("policy_text_not_read", version=row.version, cause=str(exc))
            continue
        if row.version == current.version:
            terms = [*_terms(current, since=row.at, current=True), *terms[len(LANES) :]]
        else:
            terms += _terms(policy, since=row.at, current=False)
    resending = [lane.name for lane in LANES if current.of(lane).resends_lost]
    return LanePolicies(terms, resending)


def _terms(policy: Policy, *, since: int, current: bool) -> Iterator[LaneTerms]:
    for lane in LANES:
        own = policy.of(lane)
        yield LaneTerms(
            policy_version=policy.version,
            lane=lane.name,
            guarantee=own.guarantee.value,
            trace=own.trace.value,
            ttl_ms=own.ttl_ms,
            max_ttl_ms=own.max_ttl_ms,
            horizon_ms=own.retry.horizon_ms,
            receipt_lag_ms=own.receipt_lag_ms,
            lost="resend" if own.resends_lost else "ask",
            since=since,
            current=current,
        )
