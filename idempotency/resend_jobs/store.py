"""The resend jobs of a ledger: made, read, and moved from state to state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, inspect, text

from idempotency.resend_jobs.contract import (
    Baseline,
    FreezePlace,
    JobFilter,
    JobLimits,
    JobState,
    ResendJob,
    ResendMode,
)
from idempotency.resend_jobs.rows import COLUMNS, JOBS, job_of
from idempotency.transactions import LedgerPart

_NAMES_PAGE: Final = 1_000
_BY_ID: Final = text(f"SELECT {COLUMNS} FROM resend_jobs WHERE id = :id")  # noqa: S608 - ours
_OPEN: Final = text(f"""
SELECT {COLUMNS} FROM resend_jobs
 WHERE state NOT IN ('DONE', 'CANCELLED', 'REFUSED', 'LAPSED')
 ORDER BY created_at, id LIMIT :limit""")  # noqa: S608 - ours
_NEWEST: Final = text(f"""
SELECT {COLUMNS} FROM resend_jobs
 WHERE (created_at, id) < (:before, :before_id)
 ORDER BY created_at DESC, id DESC LIMIT :limit""")  # noqa: S608 - ours
_NAME: Final = text("""
INSERT INTO resend_job_names (job_id, number, name) VALUES (:job, :number, :name)""")
_KEY: Final = text("SELECT signing_key FROM resend_job_key")
_OLD: Final = text("""
SELECT id FROM resend_jobs WHERE state IN ('DONE', 'CANCELLED', 'REFUSED', 'LAPSED')
   AND created_at < :before ORDER BY created_at, id LIMIT 1""")
_PURGE: Final = text("""
DELETE FROM resend_job_items WHERE job_id = :job AND delivery_key IN (
    SELECT delivery_key FROM resend_job_items WHERE job_id = :job ORDER BY delivery_key LIMIT :limit)""")
_PURGE_REST: Final = (
    text("DELETE FROM resend_job_counts WHERE job_id = :job"),
    text("DELETE FROM resend_job_names WHERE job_id = :job"),
    text("DELETE FROM resend_jobs WHERE id = :job"),
)
_LATEST: Final = 2**62
AlsoNoted = Callable[[Connection, ResendJob], None]
"""Writes more in the transaction of a job's change; takes the job after the change."""


def nothing_more(_connection: Connection, _job: ResendJob) -> None:
    """Writes nothing."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to make; the same id twice is the same job."""

    id: str
    mode: ResendMode
    wanted: JobFilter
    limits: JobLimits
    author: str
    reason: str
    names: Sequence[str] = ()
    """Delivery keys and message ids, without repeats."""


class ResendJobStore(LedgerPart):
    """Every method is one transaction and raises LedgerError; a write of a job JobOvertaken, too."""

    def make(self, new: NewJob, also: AlsoNoted = nothing_more) -> ResendJob:
        """Writes a FREEZING job, and calls `also`. Returns the one that is there, if its id is known."""
        with self._begin() as (connection, now):
            found = connection.execute(_BY_ID, {"id": new.id}).one_or_none()
            if found is not None:
                return job_of(found)
            job = _new(new, now)
            JOBS.insert(connection, job)
            for start in range(0, len(new.names), _NAMES_PAGE):
                page = new.names[start : start + _NAMES_PAGE]
                rows = [
                    {"job": new.id, "number": number, "name": name}
                    for number, name in enumerate(page, start + 1)
                ]
                connection.execute(_NAME, rows)
            also(connection, job)
        return job

    def get(self, job_id: str) -> ResendJob | None:
        """Returns a job; None for an unknown id."""
        with self._reading() as connection:
            found = connection.execute(_BY_ID, {"id": job_id}).one_or_none()
        return job_of(found) if found is not None else None

    def open(self, limit: int = 100) -> list[ResendJob]:
        """Returns the jobs that are not over, the oldest first."""
        with self._reading() as connection:
            return [job_of(row) for row in connection.execute(_OPEN, {"limit": limit})]

    def newest(self, limit: int, before: tuple[int, str] = (_LATEST, "")) -> list[ResendJob]:
        """Returns jobs, the newest first; `before` is (created_at, id) of the last one of a page."""
        asked = {"limit": limit, "before": before[0], "before_id": before[1]}
        with self._reading() as connection:
            return [job_of(row) for row in connection.execute(_NEWEST, asked)]

    def advance(self, job: ResendJob, also: AlsoNoted = nothing_more, **changes: Any) -> ResendJob:
        """Writes changes under the job's version. Returns the job after them. Raises ValueError for a move
        that `JOB_MOVES` does not have."""
        with self._begin() as (connection, now):
            moved = JOBS.advance(connection, job, now, **changes)
            also(connection, moved)
            return moved

    def signing_key(self) -> str:
        """Returns the key of the previews' signatures."""
        with self._reading() as connection:
            return str(connection.execute(_KEY).scalar_one())

    def has_templates(self) -> bool:
        """Returns whether rows name their template."""
        with self._transaction() as connection:
            columns = inspect(connection).get_columns("deliveries")
        return "template" in {column["name"] for column in columns}

    def purge(self, before: int, limit: int = 10_000) -> int:
        """Deletes items of the oldest job that is over and was made before that time; with its last items
        the job. Returns the number of items deleted; -1 without such a job."""
        with self._transaction() as connection:
            job = connection.execute(_OLD, {"before": before}).scalar_one_or_none()
            if job is None:
                return -1
            deleted = connection.execute(_PURGE, {"job": job, "limit": limit}).rowcount
            if deleted < limit:
                for statement in _PURGE_REST:
                    connection.execute(statement, {"job": job})
        return deleted


def _new(new: NewJob, now: int) -> ResendJob:
    return ResendJob(
        id=new.id,
        mode=new.mode,
        state=JobState.FREEZING,
        version=1,
        wanted=new.wanted,
        limits=new.limits,
        author=new.author,
        reason=new.reason,
        created_at=now,
        place=FreezePlace(),
        frozen_at=None,
        preview_until=None,
        digest="",
        items=0,
        eligible=0,
        started_by=None,
        started_at=None,
        start_reason=None,
        approved_by=None,
        approved_at=None,
        since=now,
        paced_at=None,
        baseline=Baseline(),
        paused_from=None,
        noted_by=None,
        note=None,
        cancelled=False,
        ended_at=None,
    )
