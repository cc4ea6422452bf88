"""Terms of the lanes by policy version, for the lost job: from the texts that the database keeps, and the
lives of the workers that served under them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import structlog
from sqlalchemy import text

from backends.settings import Settings
from backends.sql.database import Database
from idempotency.ledger import WORKER
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
_LIVES: Final = text("""
SELECT lanes, epoch, started_at, heartbeat_at + lease_ms AS ends_at FROM workers WHERE kind = :kind""")
ROLLING_MS: Final = 3_600_000
"""Longest time in which the workers of a fleet start again one after the other, under a new version."""


class WorkerLife(NamedTuple):
    """The newest life of a worker. Times are epoch milliseconds."""

    lanes: frozenset[str]
    again: bool
    """Whether an earlier life had its name."""
    started_at: int
    ends_at: int
    """End of its lease, which a worker at work renews."""

    def end_before(self, since: int) -> int:
        """Returns when a life under a version from before `since` ended, at the latest; 0 without one.

        A life that began soon after `since` may have followed one that went on until then.
        """
        if self.started_at < since:
            return self.ends_at
        return self.started_at if self.again and self.started_at <= since + ROLLING_MS else 0


class LanePolicies(NamedTuple):
    """Terms of all policy versions, for the lost job."""

    terms: list[LaneTerms]
    resending: list[str]
    """Lanes whose surely lost deliveries recovery sends by itself."""


def lane_policies(settings: Settings, database: Database) -> LanePolicies:
    """Returns the terms of all lanes in all versions on record. A text that this program cannot read is
    left out and logged. Raises PolicyError for the policy in force, SqlError."""
    current = in_force(settings, Versions(database)).policy
    terms = [*_terms(current, 0, [], current=True)]
    with database.begin() as connection:
        rows = connection.execute(_TEXTS, {"limit": MOST}).all()
        lives = [
            WorkerLife(frozenset(row.lanes.split(",")), row.epoch > 1, row.started_at, row.ends_at)
            for row in connection.execute(_LIVES, {"kind": WORKER})
        ]
    for row in rows:
        try:
            policy = parse(row.version, row.text.encode(), None, version=row.version)
        except PolicyError as exc:
            log.warning("policy_text_not_read", version=row.version, cause=str(exc))
            continue
        if row.version == current.version:
            terms = [*_terms(current, row.at, lives, current=True), *terms[len(LANES) :]]
        else:
            terms += _terms(policy, row.at, lives, current=False)
    resending = [lane.name for lane in LANES if current.of(lane).resends_lost]
    return LanePolicies(terms, resending)


def _terms(
    policy: Policy, since: int, lives: Sequence[WorkerLife], *, current: bool
) -> Iterator[LaneTerms]:
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
            alone_since=max(
                (one.end_before(since) for one in lives if lane.name in one.lanes), default=0
            ),
        )
