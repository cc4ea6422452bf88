"""Rows of resend jobs: reading them, and writing them under their versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from idempotency.resend_jobs.contract import (
    Baseline,
    FreezePlace,
    ItemFate,
    JobCount,
    JobFilter,
    JobLimits,
    JobOvertaken,
    JobState,
    ResendJob,
    ResendMode,
    can_move,
)

COLUMNS: Final = ", ".join(ResendJob.__struct_fields__)
_JSON: Final = {
    "wanted": JobFilter,
    "limits": JobLimits,
    "place": FreezePlace,
    "baseline": Baseline,
}
"""Columns that hold JSON; an empty text is the default value."""
_COUNT: Final = text("""
INSERT INTO resend_job_counts (job_id, lane, account, fate, why, items)
VALUES (:job, :lane, :account, :fate, :why, :items)
ON CONFLICT (job_id, lane, account, fate, why)
DO UPDATE SET items = resend_job_counts.items + excluded.items""")
_DIGEST_BYTES: Final = 16
_DIGEST_MODULUS: Final = 1 << (8 * _DIGEST_BYTES)


def job_of(row: Any) -> ResendJob:
    """Returns the job of a row with COLUMNS."""
    fields = row._asdict()
    for name, kind in _JSON.items():
        fields[name] = msgspec.json.decode(fields[name] or "{}", type=kind)
    fields["mode"], fields["state"] = ResendMode(fields["mode"]), JobState(fields["state"])
    paused = fields["paused_from"]
    fields["paused_from"] = JobState(paused) if paused else None
    fields["cancelled"] = bool(fields["cancelled"])
    return ResendJob(**fields)


def column_value(value: Any) -> Any:
    """Returns a field's value as its column has it."""
    if isinstance(value, msgspec.Struct):
        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, JobState | ResendMode) else value


def advance(connection: Connection, job: ResendJob, now: int, **changes: Any) -> ResendJob:
    """Writes the changes, if the row still has the job's version. Returns the job after them. Raises
    JobOvertaken, and ValueError for a move that `JOB_MOVES` does not have."""
    target = changes.get("state", job.state)
    if target is not job.state:
        if not can_move(job.state, target):
            raise ValueError(f"a job does not go from {job.state} to {target}")
        changes["since"] = now
    changes["version"] = job.version + 1
    spelt = ", ".join(f"{name} = :{name}" for name in changes)
    statement = f"UPDATE resend_jobs SET {spelt} WHERE id = :its_id AND version = :its_version"  # noqa: S608
    values = {name: column_value(value) for name, value in changes.items()}
    values |= {"its_id": job.id, "its_version": job.version}
    if not connection.execute(text(statement), values).rowcount:
        raise JobOvertaken(f"job {job.id} was changed meanwhile: look at it again")
    return msgspec.structs.replace(job, **changes)


def add_counts(connection: Connection, job_id: str, counts: Counter[Any]) -> None:
    """Adds numbers of items, by (lane, account, fate, why), in the order of these."""
    for (lane, account, fate, why), items in sorted(counts.items()):
        if items:
            values = {"job": job_id, "lane": lane, "account": account, "fate": fate, "why": why}
            connection.execute(_COUNT, values | {"items": items})


def digest_of(pairs: Iterable[tuple[str, int]], before: str = "") -> str:
    """Returns the digest of (delivery key, row version), added to the digest before. The order of the pairs
    does not matter, so that pages of any size give the same."""
    total = int(before or "0", 16)
    for key, version in pairs:
        own = sha256(f"{key}\x1f{version}".encode()).digest()[:_DIGEST_BYTES]
        total += int.from_bytes(own, "big")
    return f"{total % _DIGEST_MODULUS:032x}"


def counted_items(rows: Iterable[Any]) -> list[JobCount]:
    """Returns the counts of rows of `resend_job_counts`; leaves out zeros."""
    return [JobCount(r.lane, r.account, ItemFate(r.fate), r.why, r.items) for r in rows if r.items]
