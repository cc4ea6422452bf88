"""A TOML file with line numbers: its tables, and their problems by line.

tomllib gives no lines, so they are found apart.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from backends.toml_text import TomlTrouble, parsed
from policy.problems import Problem

Place = tuple[str, ...]

_HEADER = re.compile(r"\s*(\[[^\[\]]+\])\s*(#.*)?")
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_KEY = re.compile(rf"\s*({_KEY_PART}(?:\s*\.\s*{_KEY_PART})*)\s*=")


class TomlDocument:
    """One file being read; gathers problems instead of stopping at the first."""

    def __init__(self, file: str, content: bytes) -> None:
        """`file`: its name in problems."""
        self.problems: list[Problem] = []
        self.text = ""
        self.lines: dict[Place, int] = {}
        self._file = file
        self.data = self._parse(content)

    def table(self, around: dict[str, Any], place: Place) -> dict[str, Any]:
        """Returns a copy of the table at the last part of `place`; empty without one. Reports a value that
        is no table."""
        found = around.get(place[-1], {})
        if isinstance(found, dict):
            return dict(found)
        self.report(place, "must be a table")
        return {}

    def report(self, place: Place, text: str, line: int | None = None) -> None:
        """Adds a problem, on the line of `place` unless `line` is given."""
        self.problems.append(self.problem(place, text, line))

    def problem(self, place: Place, text: str, line: int | None = None) -> Problem:
        """Returns a problem without adding it."""
        line = line_of(self.lines, place) if line is None else line
        return Problem(self._file, line, ".".join(_quoted(part) for part in place), text)

    def _parse(self, content: bytes) -> dict[str, Any]:
        try:
            self.text = content.decode("utf-8")
            data = parsed(self.text)
        except UnicodeDecodeError:
            self.problems.append(Problem(self._file, 1, "the file", "is not UTF-8"))
            return {}
        except TomlTrouble as exc:
            self.problems.append(Problem(self._file, exc.line or 1, "the file", str(exc)))
            return {}
        self.lines = key_lines(self.text)
        return data


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


def _quoted(part: str) -> str:
    return f'"{part}"' if "." in part or " " in part else part
