"""Finds the line of each table and key of a TOML text. tomllib gives no lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

Place = tuple[str, ...]

_HEADER = re.compile(r"\s*(\[[^\[\]]+\])\s*(#.*)?")
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = re.compile(rf"\s*({_KEY_PART}(?:\s*\.\s*{_KEY_PART})*)\s*=")


def key_lines(text: str) -> dict[Place, int]:
    """Returns the line, from 1, of every table header and key of a valid document."""
    lines: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            table = _path(header[1])
            _note(lines, table, number)
        elif key := _KEY.match(line):
            _note(lines, table + _path(f"{key[1]} = {{}}"), number)
    return lines


def _note(lines: dict[Place, int], path: Place, number: int) -> None:
    """Notes the line where a path, and each table around it, is first named."""
    for end in range(1, len(path) + 1):
        lines.setdefault(path[:end], number)


def line_of(lines: dict[Place, int], path: Sequence[str]) -> int:
    """Returns the line of `path`, else of the nearest table around it; 1 without any."""
    wanted = tuple(path)
    while wanted and wanted not in lines:
        wanted = wanted[:-1]
    return lines.get(wanted, 1)


def _path(fragment: str) -> Place:
    """Returns the keys that a header or a key names, unquoted by tomllib itself."""
    try:
        table: dict[str, Any] = tomllib.loads(fragment)
    except tomllib.TOMLDecodeError:
        return ()  # a line inside a longer string that only looks like one
    path = []
    while table:
        key, table = next(iter(table.items()))
        path.append(key)
    return tuple(path)
