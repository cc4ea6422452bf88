"""A TOML file with line numbers: its tables, and their problems by line."""

from __future__ import annotations

from typing import Any

from backends.toml_lines import Place as Place
from backends.toml_lines import key_lines as key_lines
from backends.toml_lines import line_of as line_of
from backends.toml_text import TomlTrouble, parsed
from policy.problems import Problem


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


def _quoted(part: str) -> str:
    return f'"{part}"' if "." in part or " " in part else part
