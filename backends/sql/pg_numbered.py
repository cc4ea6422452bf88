"""Statements that are too long for psycopg to remember how their named parameters are written.

psycopg keeps what it made of a statement with `%(name)s` only up to 4,096 characters, and reads a longer
one anew each time. One that has the server's own `$1, $2, …` is sent as it is, whatever its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg

_NAMED: Final = re.compile(r"%\((\w+)\)s")


def numbered(statement: str) -> tuple[str, list[str]]:
    """The statement with numbers for `%(name)s`, and the names in their order. Raises ValueError for a
    `%%`, which only psycopg's own way of writing has."""
    if "%%" in statement:
        raise ValueError("write a lone % in a numbered statement, not %%")
    names = list(dict.fromkeys(_NAMED.findall(statement)))
    numbers = {name: number for number, name in enumerate(names, 1)}
    return _NAMED.sub(lambda found: f"${numbers[found[1]]}", statement), names


def fetched(connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
    """The first row that a numbered statement, prepared by the server, gives."""
    with psycopg.RawCursor(connection) as cursor:
        return cursor.execute(statement, parameters, prepare=True).fetchone()
