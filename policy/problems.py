"""Problems of a policy, with file, line and key."""

from __future__ import annotations

from backends.problems import Problem as Problem


class PolicyError(ValueError):
    """A policy file that cannot be used; the text has the first problem, `problems` has all."""

    def __init__(self, problems: list[Problem]) -> None:
        more = (
            f" (and {len(problems) - 1} more; see `hongyan policy check`)" if problems[1:] else ""
        )
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems
