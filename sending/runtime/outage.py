"""Repeats ledger calls until the ledger answers, and knows who waits for it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_when_event_set
from tenacity.wait import wait_base

from idempotency.ledger import LedgerUnavailable

log = structlog.get_logger(__name__)
T = TypeVar("T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0


class Outage:
    """Whether the ledger gives any of its users no answer; the source pauses its lanes then."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        """Set when the worker stops to wait."""
        self._causes: dict[str, str] = {}  # written by each user's thread, for itself

    @property
    def on(self) -> bool:
        """Whether a user of the ledger is waiting for it."""
        return bool(self._causes)

    @property
    def cause(self) -> str | None:
        """Why the ledger last gave no answer to the user who waits longest; None while nobody waits."""
        return next(iter(list(self._causes.values())), None)

    def until_available(self, who: str, call: Callable[[], T]) -> T:
        """Repeats `call` until the ledger answers. Raises LedgerUnavailable only after `stop`.

        Calls are repeatable by contract, so one whose reply was lost is made again.
        """
        try:
            return call()
        except LedgerUnavailable as exc:
            self._note(who, exc)
        retrying = Retrying(
            retry=retry_if_exception_type(LedgerUnavailable),
            wait=_pause(),
            stop=stop_when_event_set(self.stop),
            sleep=self._sleep,
            before_sleep=partial(self._renew, who),
            reraise=True,
        )
        self._sleep(_FIRST_PAUSE_S)
        result = retrying(call)
        self._causes.pop(who, None)
        log.info("ledger_back", stage=who)
        return result

    def _sleep(self, seconds: float) -> None:
        self.stop.wait(seconds)

    def _renew(self, who: str, state: RetryCallState) -> None:
        """Keeps the cause of the latest failure."""
        self._causes[who] = str(state.outcome.exception() if state.outcome else "")

    def _note(self, who: str, cause: LedgerUnavailable) -> None:
        log.error("ledger_away", stage=who, cause=str(cause))
        self._causes[who] = str(cause)


class _pause(wait_base):  # noqa: N801 (tenacity's waits are named like functions)
    """Exponential with full jitter, capped."""

    def __call__(self, retry_state: RetryCallState) -> float:
        ceiling = min(_FIRST_PAUSE_S * 2 ** min(retry_state.attempt_number, 10), _LONGEST_PAUSE_S)
        return random.uniform(_FIRST_PAUSE_S / 2, ceiling)  # noqa: S311 (no secret)
