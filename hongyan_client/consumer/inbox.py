"""Applies each outcome event once to a row of the business that other writers change, too.

    read the row and its version ─▶ compute the change ─▶ one transaction:
        insert the event's id               a second one: it was applied before
        update ... where version = seen     none matched: another writer was first; read again

A repeat is known by its `event_id` alone. A version that moved proves no repeat: another honest writer
changed the row, and this event is still to be applied (docs/consumers.md). So the id and the change are one
transaction, and after a conflict both are taken back and made anew.

PostgreSQL, MySQL, MariaDB and SQLite. Offsets are committed after `apply` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from time import time
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError

TABLE: Final = "hongyan_applied_events"
VERSION: Final = "version"
_MS: Final = 1_000
_TRIES: Final = 10

RowChange = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Gets the row, returns the new values; None: the event changes nothing. It may be called again with a
newer row, so it must do nothing else."""


class InboxStatus(StrEnum):
    """The result of one event."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """It was applied before."""
    UNCHANGED = "unchanged"
    """It changes nothing, and is remembered."""


class InboxError(Exception):
    """The event was not applied; do not commit its offset."""


class RowMissing(InboxError):
    """The business has no such row."""


class RowContended(InboxError):
    """Other writers were first at each try."""


class VersionedRow(NamedTuple):
    """The row of one event: `table` has a column `version` that each of its writers raises by one."""

    table: sa.Table
    column: str
    value: Any

    def matches(self) -> sa.ColumnElement[bool]:
        """Returns the condition for the row."""
        condition: sa.ColumnElement[bool] = self.table.c[self.column] == self.value
        return condition


def applied_table(metadata: sa.MetaData, name: str = TABLE) -> sa.Table:
    """Returns the table of applied events, added to `metadata`; the business makes it."""
    return sa.Table(
        name,
        metadata,
        sa.Column("event_id", sa.String(64), primary_key=True),
        sa.Column("applied_at", sa.BigInteger, nullable=False, index=True),
    )


class EventInbox:
    """Safe from any thread and from any number of processes."""

    def __init__(
        self,
        engine: Engine,
        applied: sa.Table | None = None,
        *,
        tries: int = _TRIES,
        now: Callable[[], float] = time,
    ) -> None:
        self._engine = engine
        self.applied = applied_table(sa.MetaData()) if applied is None else applied
        self._tries = tries
        self._now = now

    def apply(self, event_id: str, row: VersionedRow, change: RowChange) -> InboxStatus:
        """Applies one event. Raises RowMissing, RowContended, and the database's errors; each of them
        leaves everything as it was."""
        for _ in range(self._tries):
            found = self._read(event_id, row)
            if found is None:
                return InboxStatus.REPEATED
            values = change(found)
            try:
                return self._write(event_id, row, found[VERSION], values)
            except _MovedOn:
                continue
        raise RowContended(
            f"{row.table.name} {row.value!r} was changed by others at each of {self._tries} tries;"
            " read the event again later"
        )

    def forget_before(self, connection: Connection, applied_at_ms: int) -> int:
        """Deletes older event ids, and returns their number. Keep them longer than Kafka keeps the topic:
        a consumer that begins anew reads everything again."""
        old = sa.delete(self.applied).where(self.applied.c.applied_at < applied_at_ms)
        result: Any = connection.execute(old)
        return int(result.rowcount)

    def _read(self, event_id: str, row: VersionedRow) -> Mapping[str, Any] | None:
        """Returns the row as it is now; None if the event was applied before. Raises RowMissing."""
        before = sa.select(sa.exists().where(self.applied.c.event_id == event_id))
        with self._engine.begin() as connection:
            if connection.execute(before).scalar_one():
                return None
            found = connection.execute(sa.select(row.table).where(row.matches())).mappings().first()
        if found is None:
            raise RowMissing(f"{row.table.name} has no row with {row.column} = {row.value!r}")
        return {str(name): value for name, value in found.items()}

    def _write(
        self, event_id: str, row: VersionedRow, seen: int, values: Mapping[str, Any] | None
    ) -> InboxStatus:
        """Writes id and change in one transaction. Raises _MovedOn."""
        with self._engine.begin() as connection:
            if not self._remembered(connection, event_id):
                return InboxStatus.REPEATED
            if values is None:
                return InboxStatus.UNCHANGED
            of_seen = sa.and_(row.matches(), row.table.c[VERSION] == seen)
            update = sa.update(row.table).where(of_seen).values({**values, VERSION: seen + 1})
            if connection.execute(update).rowcount != 1:
                raise _MovedOn  # the transaction takes the event's id back
        return InboxStatus.APPLIED

    def _remembered(self, connection: Connection, event_id: str) -> bool:
        """Inserts the event's id. Returns False, with the transaction ended, if it is there already."""
        values = {"event_id": event_id, "applied_at": int(self._now() * _MS)}
        try:
            connection.execute(sa.insert(self.applied).values(values))
        except IntegrityError:
            connection.rollback()
            return False
        return True


class _MovedOn(Exception):
    """Another writer changed the row after it was read."""
