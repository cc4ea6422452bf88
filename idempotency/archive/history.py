"""Rows that left the ledger with their day, as `hongyan trace` shows them; nothing here writes.

Each day keeps its indexes on PostgreSQL. On SQLite whole files are read. The newest day comes first, and
the search ends with the first day that has the name; a biz_id is looked for in every day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.archive.contract import SCHEMA, folder_of
from idempotency.archive.lookup import files_in, tables_in_postgres
from idempotency.archive.row_files import rows_with
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerUnavailable
from idempotency.lookups import LIMIT, FoundRow

_DAY: Final = re.compile(r"\d{8}")
_MS_PER_DAY: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_OWN: Final = tuple(name for name in FoundRow.__struct_fields__ if name not in ("channel", "kind"))
_NULLABLE: Final = ("biz_id", "reason", "provider_id", "next_at", "resend_of")
# One index each: an OR of three columns would be planned as a scan.
_NAMED: Final = """
(SELECT {columns} FROM archive.{table} WHERE message_id = :name LIMIT :limit) UNION ALL
(SELECT {columns} FROM archive.{table} WHERE delivery_key = :name) UNION ALL
(SELECT {columns} FROM archive.{table} WHERE biz_id = :name AND created_at >= :since
  ORDER BY created_at DESC LIMIT :limit)"""
_LINES: Final = msgspec.json.Decoder(dict[str, Any])
_OF_MESSAGE: Final = "SELECT {columns} FROM archive.{table} WHERE message_id = :name LIMIT :limit"


class PastRow(NamedTuple):
    """One row and its place."""

    row: FoundRow
    where: str
    """Table or file."""


Look = Callable[[str, int], list[PastRow]]
"""Looks for (name, since) in one place."""


class PastDeliveries:
    """Every method raises LedgerError. For one thread."""

    def __init__(self, database: Database, folder: str = "", base: str = ".") -> None:
        """`folder` is `recovery.archive_dir`, relative to `base`; SQLite's files are there."""
        self._database = database
        self._folder = folder_of(database.url.database, folder, base)
        self.damage = ""
        """Sentence about what the last `find` could not read; empty: it read all."""

    def find(self, name: str, since: int = 0, limit: int = LIMIT) -> list[PastRow]:
        """Returns the rows of a message id, of the message of a delivery key, or of a biz_id.

        Of a biz_id: those made since then (epoch milliseconds), newest first, until `limit` messages.
        Raises LedgerUnavailable if none was found and a file is damaged.
        """
        found: list[PastRow] = []
        self.damage = ""
        for place in self._places():
            if _end_of(place) < since:
                break
            some = self._look(place, name, since)
            found += some
            messages = {past.row.message_id for past in found}
            if some and (some[0].row.biz_id != name or len(messages) >= limit):
                break
        if self.damage and not found:
            raise LedgerUnavailable(self.damage)
        return found

    def _places(self) -> list[str]:
        if self._database.is_postgres:
            return tables_in_postgres(self._database)
        return files_in(self._folder)

    def _look(self, place: str, name: str, since: int) -> list[PastRow]:
        if self._database.is_postgres:
            with errors(), self._database.begin() as connection:
                rows = _in_table(connection, place, name, since)
            return [PastRow(row, f"{SCHEMA}.{place}") for row in rows]
        path = self._folder / place
        return [PastRow(row, str(path)) for row in self._in_file(path, name, since)]

    def _in_file(self, path: Path, name: str, since: int) -> list[FoundRow]:
        """A row that was written twice counts once."""

        def run(name: str) -> list[FoundRow]:
            lines, damage = rows_with(path, name, _LINES)
            self.damage = self.damage or damage
            kept = (line for line in lines if line["kind"] == "delivery")
            rows = {line["delivery_key"]: _row(line) for line in kept}
            return [row for row in rows.values() if row.biz_id != name or row.created_at >= since]

        return _chosen(run(name), name, run)


def _end_of(place: str) -> int:
    """Returns the end of the place's day, epoch milliseconds. A row is made on its day."""
    found = _DAY.search(place)
    day = date.fromisoformat(found[0]) if found else date.max
    return ((day - _EPOCH).days + 1) * _MS_PER_DAY


def _in_table(connection: Connection, table: str, name: str, since: int) -> list[FoundRow]:
    columns = ", ".join(_OWN)

    def run(statement: str, name: str) -> list[FoundRow]:
        asked = {"name": name, "since": since, "limit": LIMIT}
        made = text(statement.format(columns=columns, table=table))
        return [_row(dict(row)) for row in connection.execute(made, asked).mappings()]

    return _chosen(run(_NAMED, name), name, lambda message: run(_OF_MESSAGE, message))


def _chosen(
    rows: list[FoundRow], name: str, of_message: Callable[[str], list[FoundRow]]
) -> list[FoundRow]:
    """Returns the rows of the message id, else of the delivery key's message, else of the biz_id."""
    if mine := [row for row in rows if row.message_id == name]:
        return mine
    if key := next((row for row in rows if row.delivery_key == name), None):
        return [row for row in of_message(key.message_id) if row.message_id == key.message_id]
    return [row for row in rows if row.biz_id == name]


def _row(row: Mapping[str, Any]) -> FoundRow:
    """Channel and kind are no columns of the table; a column that is younger than the file is left out."""
    channel, _, kind = row["lane"].partition(".")
    fields: dict[str, Any] = dict.fromkeys(_NULLABLE)
    fields |= {name: row[name] for name in _OWN if row.get(name) is not None}
    return FoundRow(channel=channel, kind=kind, **fields)
