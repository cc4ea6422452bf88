"""Rows of resend jobs: reading them, and writing them under their versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

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
from idempotency.versioned_rows import RowKind, fields_of

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


JOBS: Final = RowKind("resend_jobs", "job", can_move, JobOvertaken)


def job_of(row: Any) -> ResendJob:
    """Returns the job of a row with COLUMNS."""
    fields = fields_of(row, _JSON)
    fields["mode"], fields["state"] = ResendMode(fields["mode"]), JobState(fields["state"])
    paused = fields["paused_from"]
    fields["paused_from"] = JobState(paused) if paused else None
    fields["cancelled"] = bool(fields["cancelled"])
    return ResendJob(**fields)


def add_counts(connection: Connection, job_id: str, counts: Counter[Any]) -> None:
    """Adds numbers of items, by (lane, account, fate, why), in the order of these."""
    for (lane, account, fate, why), items in sorted(counts.items()):
        if items:
            values = {"job": job_id, "lane": lane, "account": account, "fate": fate, "why": why}
            connection.execute(_COUNT, values | {"items": items})


def digest_of(pairs: Iterable[tuple[str, int]], before: str = "") -> str:
    """Returns the digest of (delivery key, row version), added to the digest before. The order of the pairs
    does not matter, so that pages of any size give the same."""
    return digest_after(before, digest_sum(pairs))


def digest_sum(pairs: Iterable[tuple[str, int]]) -> int:
    """Returns what the pairs add to a digest."""
    total = 0
    for key, version in pairs:
        own = sha256(f"{key}\x1f{version}".encode()).digest()[:_DIGEST_BYTES]
        total += int.from_bytes(own, "big")
    return total


def digest_after(before: str, total: int) -> str:
    """Returns the digest with a sum added to it."""
    return f"{(int(before or '0', 16) + total) % _DIGEST_MODULUS:032x}"


def counted_items(rows: Iterable[Any]) -> list[JobCount]:
    """Returns the counts of rows of `resend_job_counts`; leaves out zeros."""
    return [JobCount(r.lane, r.account, ItemFate(r.fate), r.why, r.items) for r in rows if r.items]
