"""Archiving: days that are over leave the ledger, whole, and never with a row that is still open.

    PostgreSQL   the day's partitions move to the schema `archive`, in one short transaction; then the
                 day's names leave `delivery_keys`, in batches
    SQLite       the day's rows go to a file of compressed JSON lines, batch by batch

What is sealed stays sealed. A name leaves only once its row has left: a record read again in between
finds its name and no row, and waits. Each step may be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from idempotency.ledger import LedgerError
from message.states import OPEN, State
from policy.schema import DEFAULTS, Policy

SCHEMA: Final = "archive"
_MS_PER_DAY: Final = 86_400_000
_EPOCH = date(1970, 1, 1)


class DayOpen(LedgerError):
    """A row of the day is open: it stays, with all of its day."""


class NotAllowed(LedgerError):
    """The role may not move tables; the text says what to do."""


class Day(NamedTuple):
    """One day of the ledger."""

    day: int
    """Days since 1970-01-01, by the database's clock when the rows were made."""
    rows: int
    open: int
    """In a state in which the platform still owes something; with one of them the day stays."""
    parked: int
    """Nobody decided about these; they go with their day."""

    @property
    def date(self) -> str:
        """ISO 8601."""
        return date_of(self.day)


class Archived(NamedTuple):
    """One day that left."""

    day: int
    rows: int
    where: str
    """Table or file."""
    parked: int = 0
    """Nobody decided about these."""


class Archive(Protocol):
    """Thread-safe. Every method raises LedgerError and nothing else of the database's."""

    def days(self, keep_days: int) -> list[int]:
        """Days with rows that are older than so many whole days, oldest first."""
        ...

    def survey(self, day: int) -> Day:
        """What the day has. Reads all of it: for people, not for polling."""
        ...

    def archive(self, day: int) -> Archived:
        """Let the day leave. Raises DayOpen; then nothing has changed on PostgreSQL, and on SQLite what
        left before the row was opened stays where it is."""
        ...

    def finish(self) -> int:
        """Complete what an earlier one began and did not end; names removed."""
        ...


def date_of(day: int) -> str:
    """ISO 8601."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def compact(day: int) -> str:
    """`20261121`, for names of tables and files."""
    return f"{_EPOCH + timedelta(days=day):%Y%m%d}"


def least_days(policy: Policy, topic_days: int) -> int:
    """Whole days that the ledger must keep: whatever Kafka may give again within `topic_days`
    (backends/kafka/retention.py), or an operator's retry prolong, is known or past its TTL by then."""
    longest_ms = max(lane.max_ttl_ms for lane in {**DEFAULTS, **policy.lanes}.values())
    return topic_days + -(-longest_ms // _MS_PER_DAY) + 1


def open_states() -> Sequence[str]:
    """As SQL has them."""
    return sorted(OPEN)


PARKED: Final = State.PARKED.value


def folder_of(url_database: str | None, configured: str, base: str) -> Path:
    """Where SQLite's files go: the folder named, relative to the configuration's, else `archive` beside
    the database."""
    if configured:
        return Path(base) / configured
    return Path(url_database or "hongyan.db").parent / SCHEMA
