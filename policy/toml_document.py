"""A TOML file as people wrote it: its tables, and what is wrong with them by line.

tomllib reads values and forgets where they were, so the lines are found beside it.
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
        """`file` is what problems call it."""
        self.problems: list[Problem] = []
        self.text = ""
        self.lines: dict[Place, int] = {}
        self._file = file
        self.data = self._parse(content)

    def table(self, around: dict[str, Any], place: Place) -> dict[str, Any]:
        """A copy of the table at the last of `place`; empty where none stands."""
        found = around.get(place[-1], {})
        if isinstance(found, dict):
            return dict(found)
        self.report(place, "must be a table")
        return {}

    def report(self, place: Place, text: str, line: int | None = None) -> None:
        """One more problem, on the line of `place` unless it is known better."""
        self.problems.append(self.problem(place, text, line))

    def problem(self, place: Place, text: str, line: int | None = None) -> Problem:
        """One that is not reported yet."""
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
    """The line, from 1, of every table header and key of a document that tomllib could read."""
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
    """A path stands where it is first named, and so do the tables around it."""
    for end in range(1, len(path) + 1):
        lines.setdefault(path[:end], number)


def line_of(lines: dict[Place, int], path: Sequence[str]) -> int:
    """The line of `path`, else of the nearest table around it; 1 where there is none."""
    wanted = tuple(path)
    while wanted and wanted not in lines:
        wanted = wanted[:-1]
    return lines.get(wanted, 1)


def _path(fragment: str) -> Place:
    """The keys that a header or a key names, unquoted by tomllib itself."""
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
