"""Numbered parameters for statements that are too long for psycopg's cache of named ones.

psycopg caches the conversion of `%(name)s` for statements of up to 4,096 characters, and converts a longer
one each time. A statement with the server's own `$1, $2, …` needs no conversion.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg

_NAMED: Final = re.compile(r"%\((\w+)\)s")


def numbered(statement: str) -> tuple[str, list[str]]:
    """Returns the statement with numbers for `%(name)s`, and the names in that order. Raises ValueError for
    `%%`, which only named parameters need."""
    if "%%" in statement:
        raise ValueError("write a lone % in a numbered statement, not %%")
    names = list(dict.fromkeys(_NAMED.findall(statement)))
    numbers = {name: number for number, name in enumerate(names, 1)}
    return _NAMED.sub(lambda found: f"${numbers[found[1]]}", statement), names


def fetched(connection: Any, statement: str, parameters: Sequence[Any]) -> Any:
    """Returns the first row of a numbered statement, prepared by the server."""
    with psycopg.RawCursor(connection) as cursor:
        return cursor.execute(statement, parameters, prepare=True).fetchone()
