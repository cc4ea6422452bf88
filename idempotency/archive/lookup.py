"""Searches for a delivery that left the ledger with its day (docs/archive.md); nothing here writes.

PostgreSQL   the tables of the schema `archive`, the newest day first; each keeps its indexes
SQLite       the compressed files, the newest day first, a batch of rows at a time
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.archive.contract import SCHEMA
from idempotency.archive.row_files import FileRows, rows_with
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerUnavailable
from idempotency.lookups import LIMIT, KeptRow
from idempotency.payload_cipher import PayloadCipher

_NAMED: Final = re.compile(r"deliveries_\d{8}")
_DAY: Final = re.compile(r"\d{8}")
_TABLES: Final = text("""
SELECT relname FROM pg_class
 WHERE relnamespace = to_regnamespace('archive') AND relkind = 'r' ORDER BY relname DESC""")
_COLUMNS: Final = "d.delivery_key, d.message_id, d.lane, d.state, d.reason, d.receiver"
_ROWS: Final = """
SELECT {columns}, {payload} AS payload FROM archive.{table} AS d {join}
 WHERE d.delivery_key = :name OR d.message_id = :name LIMIT :limit"""
_JOIN: Final = """LEFT JOIN archive.{payloads} AS p
    ON p.message_id = d.message_id AND p.body_digest = d.body_digest AND p.day = d.day"""


class ArchivedRow(NamedTuple):
    """One delivery in the archive. Payload and receiver are sealed as in the ledger."""

    delivery_key: str
    message_id: str
    lane: str
    state: str
    reason: str
    receiver: bytes
    payload: bytes
    where: str
    """Table or file."""


class ArchivedDeliveries:
    """Every method raises LedgerError, and `kept` PayloadUnreadable too."""

    def __init__(
        self,
        find: Callable[[str], list[ArchivedRow]],
        places: Callable[[], list[str]],
        sealer: PayloadCipher,
    ) -> None:
        """`find` is `find_in_postgres` or `find_in_files`, bound to its place; `places` names its tables or
        files, the newest day first."""
        self._find = find
        self._places = places
        self._sealer = sealer

    def newest(self) -> date | None:
        """Returns the newest day that left, in UTC; None if none has."""
        found = (_DAY.search(place) for place in self._places())
        day = next((match[0] for match in found if match), None)
        return date.fromisoformat(day) if day else None

    def find(self, name: str) -> list[ArchivedRow]:
        """Returns the rows of a delivery key or message id, from the newest day that has it."""
        return self._find(name)

    def kept(self, row: ArchivedRow) -> KeptRow:
        """Returns the contents needed to send it again, opened."""
        receiver = self._sealer.open(row.receiver, row.message_id).decode()
        return KeptRow(self._sealer.open(row.payload, row.message_id), receiver)


def tables_in_postgres(database: Database) -> list[str]:
    """Returns the days' tables, the newest first."""
    with errors(), database.begin() as connection:
        return [t for t in connection.execute(_TABLES).scalars() if _NAMED.fullmatch(t)]


def files_in(folder: Path) -> list[str]:
    """Returns the names of the days' files, the newest first."""
    return [path.name for path in _files(folder)]


def find_in_postgres(database: Database, name: str) -> list[ArchivedRow]:
    """Looks into each day's indexes. Returns the rows of the newest day that has any."""
    with errors(), database.begin() as connection:
        tables = list(connection.execute(_TABLES).scalars())
        for table in tables:
            if _NAMED.fullmatch(table) and (found := _rows(connection, table, tables, name)):
                return found
    return []


def find_in_files(folder: Path, name: str) -> list[ArchivedRow]:
    """Reads whole files. Returns the rows of the newest day that has any. Raises LedgerUnavailable if none
    was found and a file is damaged, or if a row's contents may be in the damage."""
    damage = ""
    for path in _files(folder):
        found = _of_file(path, name)
        if found.damage and not all(row.payload for row in found.rows):
            raise LedgerUnavailable(found.damage)
        if found.rows:
            return found.rows
        damage = damage or found.damage
    if damage:
        raise LedgerUnavailable(damage)
    return []


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("deliveries-*.jsonl.gz"), reverse=True)


def _rows(connection: Connection, table: str, tables: list[str], name: str) -> list[ArchivedRow]:
    payloads = table.replace("deliveries", "payloads")
    shared = payloads in tables
    statement = _ROWS.format(
        columns=_COLUMNS,
        payload="coalesce(d.payload, p.payload)" if shared else "d.payload",
        table=table,
        join=_JOIN.format(payloads=payloads) if shared else "",
    )
    found = connection.execute(text(statement), {"name": name, "limit": LIMIT})
    return [_archived(row, row.payload, f"{SCHEMA}.{table}") for row in found]


def _of_file(path: Path, name: str) -> FileRows[ArchivedRow]:
    """Returns the file's rows of that name; a row that was written twice counts once."""
    lines, damage = rows_with(path, name, _LINES)
    found = {
        line.delivery_key: line
        for line in lines
        if line.kind == "delivery" and name in (line.delivery_key, line.message_id)
    }
    shared = {
        (line.message_id, line.body_digest): line.payload
        for message_id in {row.message_id for row in found.values() if row.payload is None}
        for line in rows_with(path, message_id, _LINES).rows
        if line.kind == "payload"
    }
    rows = [
        _archived(row, row.payload or shared.get((row.message_id, row.body_digest)), str(path))
        for row in found.values()
    ]
    return FileRows(rows, damage)


class _Line(msgspec.Struct, frozen=True):
    """The fields of a file's line that are needed."""

    kind: str
    message_id: str
    body_digest: bytes
    payload: bytes | None = None
    delivery_key: str = ""
    lane: str = ""
    state: str = ""
    reason: str | None = None
    receiver: bytes = b""


_LINES: Final = msgspec.json.Decoder(_Line)


def _archived(row: Any, payload: bytes | None, where: str) -> ArchivedRow:
    return ArchivedRow(
        row.delivery_key,
        row.message_id,
        row.lane,
        row.state,
        row.reason or "",
        bytes(row.receiver),
        bytes(payload or b""),
        where,
    )
