"""templates.toml as it is read: its tables, the files it names, and what is wrong with it, by line."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from backends.toml_text import TomlTrouble, parsed
from policy.loading import Problem
from policy.toml_lines import key_lines, line_of

Place = tuple[str, ...]
_DIGEST: Final = 12
NUL: Final = "\0"


class Page:
    """One file being read; gathers problems instead of stopping at the first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.files: dict[str, str] = {}
        """Texts of the files that it names, by the names it uses."""
        self.chat = False
        """The template that is being read is of a chat channel: its values call on nobody."""
        self._text = ""
        self._lines: dict[Place, int] = {}
        self.data = self._parse()

    def version(self) -> str:
        """Of all that was read: `file:` and the first 12 hex digits of SHA-256."""
        read = NUL.join((self._text, *self.files.values()))
        return f"file:{digest(read.encode())}"

    def table(self, around: dict[str, Any], place: Place) -> dict[str, Any]:
        """The table at the last of `place`; empty where there is none or something else stands."""
        found = around.get(place[-1], {})
        if isinstance(found, dict):
            return dict(found)
        self.report(place, "must be a table")
        return {}

    def string(self, table: dict[str, Any], key: str, place: Place) -> str:
        """The text at `key`; empty where there is none."""
        found = table.get(key, "")
        if isinstance(found, str):
            return found
        self.report((*place, key), "must be a text")
        return ""

    def file(self, name: str, place: Place) -> str:
        """The text of a file beside this one; empty where it cannot be read."""
        try:
            text = self.files[name] = (self.path.parent / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "is not UTF-8"
            self.report(place, f"{name}: {reason}")
            return ""
        return text

    def text_line(self, place: Place) -> int:
        """Where a text begins: behind its key, or on the next line where quotes alone open it."""
        line = line_of(self._lines, place)
        written = self._text.splitlines()[line - 1].rstrip()
        return line + written.endswith(('"""', "'''"))

    def report(self, place: Place, text: str, line: int | None = None) -> None:
        """One more problem, on the line of `place` unless it is known better."""
        line = line_of(self._lines, place) if line is None else line
        self._problem(line, ".".join(_quoted(part) for part in place), text)

    def _parse(self) -> dict[str, Any]:
        try:
            self._text = self.path.read_bytes().decode("utf-8")
            data = parsed(self._text)
        except OSError as exc:
            self._problem(1, "templates.file", exc.strerror or str(exc))
        except UnicodeDecodeError:
            self._problem(1, "the file", "is not UTF-8")
        except TomlTrouble as exc:
            self._problem(exc.line or 1, "the file", str(exc))
        else:
            self._lines = key_lines(self._text)
            return data
        return {}

    def _problem(self, line: int, key: str, text: str) -> None:
        self.problems.append(Problem(str(self.path), line, key, text))


def digest(content: bytes) -> str:
    """The first 12 hex digits of SHA-256."""
    return sha256(content).hexdigest()[:_DIGEST]


def did_you_mean(found: object, known: Iterable[str]) -> str:
    """A hint, where something is near."""
    close = get_close_matches(str(found), sorted(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _quoted(part: str) -> str:
    return f'"{part}"' if "." in part or " " in part else part
