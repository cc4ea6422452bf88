"""templates.toml: its tables, the files it names, and their problems by line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from policy.loading import digest
from policy.toml_document import Place as Place
from policy.toml_document import TomlDocument, line_of

NUL: Final = "\0"


class TemplateSource(NamedTuple):
    """The texts of a templates.toml."""

    text: str
    files: Mapping[str, str]
    """Texts of the files that it names, by those names."""


class Page(TomlDocument):
    """One templates.toml; an unreadable file is a problem, too."""

    def __init__(self, path: Path, source: TemplateSource | None = None) -> None:
        """Reads the file; with `source` no file is read, and `path` is a name for problems."""
        self.path = path
        self._source = source
        self.files: dict[str, str] = {}
        """Texts of the files that it names, by those names."""
        self.chat = False
        """Whether the current template is of a chat channel, whose values must not mention persons."""
        content, trouble = b"", ""
        try:
            content = path.read_bytes() if source is None else source.text.encode()
        except OSError as exc:
            trouble = exc.strerror or str(exc)
        super().__init__(str(path), content)
        if trouble:
            self.report(("templates", "file"), trouble)

    def version(self) -> str:
        """Returns the version of all texts read: `file:` and the first 12 hex digits of SHA-256."""
        read = NUL.join((self.text, *self.files.values()))
        return f"file:{digest(read.encode())}"

    def string(self, table: dict[str, Any], key: str, place: Place) -> str:
        """Returns the text at `key`; empty without one. Reports another type."""
        found = table.get(key, "")
        if isinstance(found, str):
            return found
        self.report((*place, key), "must be a text")
        return ""

    def file(self, name: str, place: Place) -> str:
        """Returns the text of a file beside this one; empty if it cannot be read, with a problem."""
        if self._source is not None:
            return self._kept(name, place, self._source.files)
        try:
            text = self.files[name] = (self.path.parent / name).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "is not UTF-8"
            self.report(place, f"{name}: {reason}")
            return ""
        return text

    def _kept(self, name: str, place: Place, files: Mapping[str, str]) -> str:
        """Returns the text of a file that the source has."""
        if name not in files:
            self.report(place, f"{name}: there is no such file in this version")
            return ""
        self.files[name] = files[name]
        return files[name]

    def text_line(self, place: Place) -> int:
        """Returns the line where a text begins: its key's, or the next one after bare opening quotes."""
        line = line_of(self.lines, place)
        written = self.text.splitlines()[line - 1].rstrip()
        return line + written.endswith(('"""', "'''"))
