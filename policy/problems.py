"""What is wrong with a policy: every problem, with file, line and key."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True, order=True):
    """One thing wrong with the file."""

    file: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.key}: {self.text}"


class PolicyError(ValueError):
    """A policy file that cannot be used; says the first problem, and keeps all of them."""

    def __init__(self, problems: list[Problem]) -> None:
        more = (
            f" (and {len(problems) - 1} more; see `hongyan policy check`)" if problems[1:] else ""
        )
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems
