"""Errors of the checks.

CheckFailed    the endpoint gave no answer that can be used
CheckNotMade   nobody was asked: the endpoint's breaker is open, it has its fill, or the request was refused
"""

from __future__ import annotations


class CheckFailed(Exception):
    """No answer, or none that can be used; the text is fit to be shown. `GuardedCheck` makes it UNKNOWN."""


class CheckNotMade(Exception):
    """Nobody was asked, so it counts as no attempt. `wait_s`: the time after which to try again; 0: not
    known."""

    def __init__(self, text: str, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.wait_s = wait_s
