"""`/archive`: the ledger's days, which of them leave and why others stay, and what left. Read only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from litestar import get
from litestar.params import FromQuery

from admin.access import Role, needs
from admin.pages.policy.draft import policy_now
from admin.parts import ConsoleParts
from admin.web.errors import Missing
from admin.web.given import GivenParts, GivenView
from admin.web.view import Page
from idempotency.archive.contract import Archive, date_of, folder_of
from idempotency.archive.lookup import files_in, tables_in_postgres
from idempotency.archive.postgres import PostgresArchive
from idempotency.archive.sqlite import SqliteArchive

MOST_DAYS: Final = 400
"""Days and places that one page shows."""
_MS_PER_DAY: Final = 86_400_000


class LedgerDay(NamedTuple):
    """One day of the ledger."""

    day: int
    date: str
    leaves: str
    """Date from which it may leave; empty: it may leave now."""
    open: bool
    """Whether an open row keeps it."""


@get("/archive", opt=needs(Role.VIEWER), sync_to_thread=True)
def archive_page(view: GivenView, parts: GivenParts, count: FromQuery[str] = "") -> Page:
    """The days, and the counts of one that is asked for. Raises Missing."""
    archive = archive_of(parts)
    keep_days = policy_now(parts).policy.retention_days
    days = archive.days(-1)[:MOST_DAYS]
    wanted = next((day for day in days if date_of(day) == count), None)
    if count and wanted is None:
        raise Missing(count)
    return view.page(
        "archive.html",
        keep_days=keep_days,
        days=_days(parts, archive, days, keep_days),
        survey=archive.survey(wanted) if wanted is not None else None,
        places=_places(parts)[:MOST_DAYS],
    )


def archive_of(parts: ConsoleParts) -> Archive:
    """Returns the archive over the pages' connections, for reading."""
    reads, clock = parts.databases.reads, parts.databases.reads_clock
    if reads.is_postgres:
        return PostgresArchive(reads, clock)
    settings = parts.settings
    folder = folder_of(reads.url.database, settings.recovery.archive_dir, settings.base)
    return SqliteArchive(reads, clock, folder)


def _days(
    parts: ConsoleParts, archive: Archive, days: Sequence[int], keep_days: int
) -> list[LedgerDay]:
    """Returns the days; only those that are old enough are asked for open rows."""
    today = parts.wall_ms() // _MS_PER_DAY
    found = []
    for day in days:
        may_leave = day < today - keep_days
        leaves = "" if may_leave else date_of(day + keep_days + 1)
        found.append(LedgerDay(day, date_of(day), leaves, may_leave and archive.has_open(day)))
    return found


def _places(parts: ConsoleParts) -> list[str]:
    """Returns the tables or files of the days that left, the newest first."""
    reads, settings = parts.databases.reads, parts.settings
    if reads.is_postgres:
        return [f"archive.{name}" for name in tables_in_postgres(reads)]
    return files_in(folder_of(reads.url.database, settings.recovery.archive_dir, settings.base))


HANDLERS = [archive_page]
