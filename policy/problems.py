"""Problems of a policy, with file, line and key."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """One problem of the file."""

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: {self.text}"


class PolicyError(ValueError):
    """A policy file that cannot be used; the text has the first problem, `problems` has all."""

    def __init__(self, problems: list[Problem]) -> None:
        more = (
            f" (and {len(problems) - 1} more; see `hongyan policy check`)" if problems[1:] else ""
        )
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems
