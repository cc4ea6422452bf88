"""Archiving: days that are over leave the ledger, whole, and never with a row that is still open.

    PostgreSQL   the day's partitions move to the schema `archive`, in one short transaction; then the
                 day's names leave `delivery_keys`, in batches
    SQLite       the day's rows go to a file of compressed JSON lines, batch by batch

Sealed values stay sealed. A name leaves after its row: a record read again in between finds its name and no
row, and waits. Each step may be repeated after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from idempotency.ledger import LedgerError
from message.states import OPEN, State
from policy.schema import Policy
from policy.topic_retention import longest_ttl_ms

SCHEMA: Final = "archive"
_MS_PER_DAY: Final = 86_400_000
_EPOCH = date(1970, 1, 1)


class DayOpen(LedgerError):
    """A row of the day is open: the whole day stays."""


class NotAllowed(LedgerError):
    """The role may not move tables; the text names the remedy."""


class Day(NamedTuple):
    """One day of the ledger."""

    day: int
    """Days since 1970-01-01, by the database's clock when the rows were made."""
    rows: int
    open: int
    """Rows in an open state; with one of them the day stays."""
    parked: int
    """Rows that nobody decided about; they go with their day."""

    @property
    def date(self) -> str:
        """ISO 8601."""
        return date_of(self.day)


class Archived(NamedTuple):
    """One day that left the ledger."""

    day: int
    rows: int
    where: str
    """Table or file."""
    parked: int = 0
    """Rows that nobody decided about."""


class Archive(Protocol):
    """Thread-safe. Every method raises LedgerError and nothing else of the database's."""

    def days(self, keep_days: int) -> list[int]:
        """Returns the days with rows or payloads that are older than `keep_days` whole days, oldest
        first."""

    def survey(self, day: int) -> Day:
        """Returns the day's counts. Reads all of it: for people, not for polling."""

    def has_open(self, day: int) -> bool:
        """Returns whether a row of the day is open, by the indexes of open rows: the day stays then."""

    def archive(self, day: int) -> Archived:
        """Archives the day. Raises DayOpen: then nothing has changed on PostgreSQL; on SQLite the batches
        archived before stay archived."""

    def finish(self) -> int:
        """Completes archiving that began and did not end. Returns the number of names removed."""


def date_of(day: int) -> str:
    """Returns the day in ISO 8601."""
    return (_EPOCH + timedelta(days=day)).isoformat()


def compact(day: int) -> str:
    """Returns the day as `20261121`, for names of tables and files."""
    return f"{_EPOCH + timedelta(days=day):%Y%m%d}"


def least_days(policy: Policy, topic_days: int) -> int:
    """Returns the whole days that the ledger must keep. By then a record that Kafka repeats in `topic_days`
    (backends/kafka/retention.py) or that an operator's retry prolongs is known or expired."""
    return topic_days + -(-longest_ttl_ms(policy) // _MS_PER_DAY) + 1


def open_states() -> Sequence[str]:
    """Returns the open states as SQL has them."""
    return sorted(OPEN)


PARKED: Final = State.PARKED.value


def folder_of(url_database: str | None, configured: str, base: str) -> Path:
    """Returns the folder of SQLite's files: the one configured, relative to `base`, else `archive` beside
    the database."""
    if configured:
        return Path(base) / configured
    return Path(url_database or "hongyan.db").parent / SCHEMA
