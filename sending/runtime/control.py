"""Control: a person's orders to this process, asked for once a second in a thread of its own.

A pause holds until the database answers that it is over, or until its planned end. While the database is
away, the orders stay as they are: lanes with a ledger claim nothing then, paused or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import Final

import structlog

from idempotency.fleet.controls import ControlOrders
from idempotency.ledger import LedgerError

LOOK_S: Final = 1.0
_MS: Final = 1_000
log = structlog.get_logger(__name__)


class ControlWatcher:
    """One thread calls `look`; any thread may read `paused` and call `stop`."""

    def __init__(
        self,
        ask: Callable[[], ControlOrders],
        obey: Callable[[frozenset[str]], None],
        drain: Callable[[], None],
        *,
        monotonic: Callable[[], float],
        look_s: float = LOOK_S,
    ) -> None:
        """`obey` gets the names of all paused lanes after each change; `drain`
        asks the process to end."""
        self.paused: frozenset[str] = frozenset()
        """Names of the paused lanes; `look` replaces it."""
        self._ask = ask
        self._obey = obey
        self._drain = drain
        self._monotonic = monotonic
        self._look_s = look_s
        self._ends: dict[str, float] = {}
        """Lane to the monotonic end of its pause."""
        self._away = False
        self._draining = False
        self._stop = threading.Event()

    def run(self) -> None:
        """Looks again and again until `stop`."""
        while not self._stop.wait(self._look_s):
            self.look()

    def stop(self) -> None:
        """Obeys nothing more; idempotent, safe before `run`."""
        self._stop.set()

    def look(self) -> None:
        """Reads the orders and obeys them."""
        asked_at = self._monotonic()
        try:
            orders = self._ask()
        except Exception as exc:  # after any error the orders before still hold
            self._note_away(exc)
        else:
            self._note_back()
            self._ends = {
                lane: inf if left_ms is None else asked_at + left_ms / _MS
                for lane, left_ms in orders.paused.items()
            }
            self._drain_if(orders.drain)
        self._follow()

    def _follow(self) -> None:
        now = self._monotonic()
        paused = frozenset(lane for lane, end in self._ends.items() if end > now)
        if paused == self.paused or self._stop.is_set():
            return
        for lane in sorted(paused ^ self.paused):
            log.warning("lane_paused" if lane in paused else "lane_resumed", lane=lane)
        self.paused = paused
        self._obey(paused)

    def _drain_if(self, order: str | None) -> None:
        if order is not None and not self._draining:
            self._draining = True
            log.warning("drain_ordered", by=order)
            self._drain()

    def _note_away(self, exc: Exception) -> None:
        if not self._away:
            self._away = True
            log.warning(
                "control_not_watched",
                cause=str(exc),
                exc_info=None if isinstance(exc, LedgerError) else exc,
                what="the last orders still hold",
            )

    def _note_back(self) -> None:
        if self._away:
            self._away = False
            log.info("control_watched_again")
