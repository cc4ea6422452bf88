"""A problem of a configuration file or a variable, with its place and its key; the error of several."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """One problem."""

    file: str
    """The file, or the environment variable."""
    line: int
    """From 1; 0: there is no line."""
    key: str
    """Empty: the text is about the whole file or variable."""
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


class SettingsError(ValueError):
    """A configuration that cannot be used. Its text is the first problem; `texts` has all."""

    def __init__(self, *texts: object) -> None:
        count = len(texts) - 1
        more = f" (and {count} more; see `hongyan config check`)" if count > 0 else ""
        super().__init__(f"{texts[0] if texts else ''}{more}")
        self.texts = tuple(map(str, texts))
