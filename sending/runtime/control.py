"""Control: a person's orders to this process, asked for once a second in a thread of its own.

A pause holds until the database answers that it is over, or until its planned end. While the database is
away, the orders stay as they are: lanes with a ledger claim nothing then, paused or not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
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
        hold: Callable[[frozenset[str]], None] = lambda _accounts: None,
    ) -> None:
        """`obey` gets the names of all paused lanes after each change, `hold` those of all paused accounts;
        `drain` asks the process to end."""
        self.paused: frozenset[str] = frozenset()
        """Names of the paused lanes; `look` replaces it."""
        self.held: frozenset[str] = frozenset()
        """Names of the paused accounts; `look` replaces it."""
        self._ask = ask
        self._obey = obey
        self._drain = drain
        self._hold = hold
        self._monotonic = monotonic
        self._look_s = look_s
        self._ends: dict[str, float] = {}
        """Lane to the monotonic end of its pause."""
        self._account_ends: dict[str, float] = {}
        """Account to the monotonic end of its pause."""
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
            self._ends = _ends(orders.paused, asked_at)
            self._account_ends = _ends(orders.accounts, asked_at)
            self._drain_if(orders.drain)
        self._follow()

    def _follow(self) -> None:
        if self._stop.is_set():
            return
        now = self._monotonic()
        self._follow_accounts(now)
        paused = frozenset(lane for lane, end in self._ends.items() if end > now)
        if paused == self.paused:
            return
        for lane in sorted(paused ^ self.paused):
            log.warning("lane_paused" if lane in paused else "lane_resumed", lane=lane)
        self.paused = paused
        self._obey(paused)

    def _follow_accounts(self, now: float) -> None:
        held = frozenset(name for name, end in self._account_ends.items() if end > now)
        if held == self.held:
            return
        for account in sorted(held ^ self.held):
            event = "account_paused" if account in held else "account_resumed"
            log.warning(event, account=account)
        self.held = held
        self._hold(held)

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


def _ends(orders: Mapping[str, int | None], asked_at: float) -> dict[str, float]:
    """Returns name to the monotonic end of its pause; infinite without a planned one."""
    return {
        name: inf if left_ms is None else asked_at + left_ms / _MS
        for name, left_ms in orders.items()
    }
