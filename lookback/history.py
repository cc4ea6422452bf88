"""Transactions that left the table with their day; nothing here writes. Bodies stay sealed.

A tx_id names its day, so one table or file is read. A biz_id is looked for in every archived day.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import text

from backends.sql.database import Database
from idempotency.archive.contract import compact, folder_of
from idempotency.archive.row_files import FileRows, rows_with
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerUnavailable
from lookback.archive import KIND
from lookback.sql import LIGHT
from lookback.states import TxState
from lookback.transaction import TxRow
from message.lookback import day_of, is_tx_id

_TABLES: Final = text("""
SELECT relname FROM pg_class
 WHERE relnamespace = to_regnamespace('archive') AND relkind = 'r' ORDER BY relname DESC""")
_NAMED: Final = re.compile(r"lookback_transactions_\d{8}")
_LINES: Final = msgspec.json.Decoder(dict[str, Any])
_FIND: Final = """
(SELECT {columns} FROM archive.{table} WHERE tx_id = :name)
 UNION ALL
(SELECT {columns} FROM archive.{table} WHERE biz_id = :name AND tx_id <> :name LIMIT :limit)"""


class PastTransactions:
    """Every method raises LedgerError."""

    def __init__(self, database: Database, folder: str = "", base: str = ".") -> None:
        """`folder` is `lookback.archive_dir`, relative to `base`; SQLite's files are there."""
        self._database = database
        self._folder = folder_of(database.url.database, folder, base)

    def find(self, name: str, limit: int) -> list[TxRow]:
        """Returns the transactions with this tx_id or biz_id, the newest day first. Raises
        LedgerUnavailable if none was found and a file is damaged."""
        found: list[TxRow] = []
        damage = ""
        for place in self._places():
            if is_tx_id(name) and compact(day_of(name)) not in place:
                continue
            some = self._look(place, name, limit)
            found, damage = found + some.rows, damage or some.damage
            if len(found) >= limit:
                break
        if damage and not found:
            raise LedgerUnavailable(damage)
        return found[:limit]

    def _places(self) -> list[str]:
        if not self._database.is_postgres:
            files = self._folder.glob(f"{KIND}-*.jsonl.gz")
            return sorted((path.name for path in files), reverse=True)
        with errors(), self._database.begin() as connection:
            return [t for t in connection.execute(_TABLES).scalars() if _NAMED.fullmatch(t)]

    def _look(self, place: str, name: str, limit: int) -> FileRows[TxRow]:
        if not self._database.is_postgres:
            return _in_file(self._folder / place, name)
        statement = text(_FIND.format(columns=LIGHT, table=place))
        with errors(), self._database.begin() as connection:
            found = connection.execute(statement, {"name": name, "limit": limit}).mappings()
            return FileRows([past_row(row) for row in found], "")


def past_row(found: Any) -> TxRow:
    """Returns the row without its body; a column that is younger than the archive has its default."""
    known = {name: found[name] for name in TxRow.__struct_fields__ if name in found}
    return TxRow(**known | {"state": TxState(found["state"]), "body": None})


def _in_file(path: Path, name: str) -> FileRows[TxRow]:
    """Raises LedgerUnavailable. A row that was written twice counts once, the first time."""
    lines, damage = rows_with(path, name, _LINES)
    found: dict[str, TxRow] = {}
    for row in lines:
        if name in (row["tx_id"], row["biz_id"]):
            found.setdefault(row["tx_id"], past_row(row))
    return FileRows(list(found.values()), damage)
