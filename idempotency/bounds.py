"""How far a row's counters go. The columns hold 32 bits in PostgreSQL, and SQLite follows.

Only damage or a hand in the database brings one there. Counting on would fail the whole statement, and with
it every row of the batch, at each try.
"""

from __future__ import annotations

from typing import Any, Final

MOST: Final = 2**31 - 1
_USABLE: Final = MOST - 100
"""A row that is begun with has room for all that follows before it is looked at again."""


def next_version(table: str = "") -> str:
    """SQL for the next version of a row; at the bound it stays as it is."""
    column = f"{table}.version" if table else "version"
    return f"CASE WHEN {column} < {MOST} THEN {column} + 1 ELSE {column} END"


def counted(version: int) -> int:
    """What `next_version` makes of it."""
    return version + 1 if version < MOST else version


NEXT_VERSION: Final = next_version()


def usable(table: str = "") -> str:
    """SQL for whether a row can be begun with."""
    dot = f"{table}." if table else ""
    return f"{dot}version < {_USABLE} AND {dot}attempt < {_USABLE}"


def is_usable(row: Any) -> bool:
    """Whether a row can be begun with."""
    return bool(0 <= row.version < _USABLE and 0 <= row.attempt < _USABLE)
