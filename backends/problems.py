"""A problem of a configuration file or a variable, with its place and its key."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """One problem."""

    file: str
    """The file, or the environment variable."""
    line: int
    """From 1; 0: there is no line."""
    key: str
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.text}"
