"""templates.toml as it is read: its tables, the files it names, and what is wrong with it, by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from policy.loading import digest
from policy.toml_document import Place as Place
from policy.toml_document import TomlDocument, line_of

NUL: Final = "\0"


class Page(TomlDocument):
    """One file being read; a file that cannot be read is a problem, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, str] = {}
        """Texts of the files that it names, by the names it uses."""
        self.chat = False
        """The template that is being read is of a chat channel: its values call on nobody."""
        content, trouble = b"", ""
        try:
            content = path.read_bytes()
        except OSError as exc:
            trouble = exc.strerror or str(exc)
        super().__init__(str(path), content)
        if trouble:
            self.report(("templates", "file"), trouble)

    def version(self) -> str:
        """Of all that was read: `file:` and the first 12 hex digits of SHA-256."""
        read = NUL.join((self.text, *self.files.values()))
        return f"file:{digest(read.encode())}"

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
        line = line_of(self.lines, place)
        written = self.text.splitlines()[line - 1].rstrip()
        return line + written.endswith(('"""', "'''"))
