"""Waiting for what must come to be: a condition and a deadline, never a bare sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from confluent_kafka import KafkaException

T = TypeVar("T")

DEADLINE_S = 60.0
"""Generous: on a busy machine a condition comes late, and only a broken program waits it out."""
_NOT_YET = (AssertionError, OSError, KafkaException, psycopg.OperationalError)
_FIRST_S, _LONGEST_S = 0.01, 0.25


class TimedOut(AssertionError):
    """The condition never held; the text says which, and what it answered last."""


def await_(
    condition: Callable[[], T],
    timeout: float = DEADLINE_S,
    what: str | Callable[[], str] = "",
) -> T:
    """Ask until the answer is true, and give it back; raises TimedOut after `timeout` seconds.

    `what` names the condition in the failure. A failed assertion and a server that does not answer
    count as "not yet".
    """
    deadline = time.monotonic() + timeout
    pause = _FIRST_S
    last: object = None
    while True:
        try:
            answer = condition()
            if answer:
                return answer
            last = answer
        except _NOT_YET as exc:
            last = exc
        if time.monotonic() >= deadline:
            said = _said(what) or getattr(condition, "__name__", "it")
            raise TimedOut(f"not within {timeout:g} s: {said}; at last: {last!r}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_S)


def _said(what: str | Callable[[], str]) -> str:
    """The condition's name; asking for it may fail where the condition itself could not be asked."""
    try:
        return what() if callable(what) else what
    except _NOT_YET as exc:
        return f"it (and to say what failed too: {exc!r})"
