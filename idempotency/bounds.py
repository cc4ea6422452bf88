"""Bounds of a row's counters. The columns hold 32 bits in PostgreSQL, and SQLite follows.

Only damage or a manual change brings a counter there. Counting on would fail the whole statement, and with
it every row of the batch, at each try.
"""

from __future__ import annotations

from typing import Any, Final

MOST: Final = 2**31 - 1
_USABLE: Final = MOST - 100
"""A counter below it has room for all that follows until the row is checked again."""


def next_version(table: str = "") -> str:
    """Returns SQL for the next version of a row; at the bound it stays as it is."""
    column = f"{table}.version" if table else "version"
    return f"CASE WHEN {column} < {MOST} THEN {column} + 1 ELSE {column} END"


def counted(version: int) -> int:
    """Returns the version after this one, as `next_version` counts."""
    return version + 1 if version < MOST else version


NEXT_VERSION: Final = next_version()


def usable(table: str = "") -> str:
    """Returns SQL that is true for a row whose counters have room."""
    dot = f"{table}." if table else ""
    return f"{dot}version < {_USABLE} AND {dot}attempt < {_USABLE}"


def is_usable(row: Any) -> bool:
    """Returns True if the row's counters have room."""
    return bool(0 <= row.version < _USABLE and 0 <= row.attempt < _USABLE)
