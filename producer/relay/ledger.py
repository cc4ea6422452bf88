"""The ledger beside a relay: heartbeat row, a person's order to drain, the fleet's windows of alerts.

A relay works without it. One that is away when the relay starts is tried again until it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from idempotency.alerts.windows import AlertReport, Post, Raised
from idempotency.ledger import LedgerError, LedgerUnavailable
from idempotency.sql_ledger import SqlLedger
from producer.relay.reporter import EVERY_S
from sending.alerts.notifier import AlertWindow
from sending.runtime.threads import ThreadGroup

log = structlog.get_logger(__name__)
_CLOSE_S: Final = 5.0


class RelayLedger:
    """The thread `ledger` calls `run`, the main thread `start` and `close`, the notifier's the rest: an
    `AlertWindow`. Until the ledger is open that raises LedgerUnavailable, and the notifier uses its own."""

    def __init__(
        self,
        open_ledger: Callable[[], SqlLedger],
        start_heartbeat: Callable[[SqlLedger], Callable[[], None]],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        """`open_ledger` raises LedgerError while the ledger is away. `start_heartbeat` returns the function
        that ends the heartbeat."""
        self._open_ledger = open_ledger
        self._start_heartbeat = start_heartbeat
        self._every_s = every_s
        self._closes: list[Callable[[], None]] = []  # `_opens` writes it, once
        self._windows: AlertWindow | None = None  # `_opens` writes it, once
        self._logged = False  # `_opens` writes it
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None  # `start` writes it

    def start(self) -> None:
        """Tries once, and starts the thread that goes on trying. Its death ends no work. Raises
        SettingsError."""
        if not self._opens():
            self._thread = ThreadGroup().start("ledger", self.run)

    def run(self) -> None:
        """Tries until the ledger is open, or `close`."""
        while not self._ended.wait(self._every_s):
            if self._opens():
                log.info("relay_with_ledger")
                return

    def close(self) -> None:
        """Ends the tries, the heartbeat and the ledger."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)
            if self._thread.is_alive():
                return
        while self._closes:
            self._closes.pop()()

    def note(self, raised: Sequence[Raised], window_ms: int, by: str) -> list[AlertReport]:
        """See `AlertWindow.note`."""
        return self._opened().note(raised, window_ms, by)

    def upkeep(self, window_ms: int, clear_ms: int, by: str) -> list[AlertReport]:
        """See `AlertWindow.upkeep`."""
        return self._opened().upkeep(window_ms, clear_ms, by)

    def claim_post(self, lease_ms: int) -> Post | None:
        """See `AlertWindow.claim_post`."""
        return self._opened().claim_post(lease_ms)

    def posted(self, post: Post) -> None:
        """See `AlertWindow.posted`."""
        self._opened().posted(post)

    def not_posted(self, post: Post, error: str) -> None:
        """See `AlertWindow.not_posted`."""
        self._opened().not_posted(post, error)

    def _opened(self) -> AlertWindow:
        if self._windows is None:
            raise LedgerUnavailable("the ledger has not answered since this relay started")
        return self._windows

    def _opens(self) -> bool:
        try:
            ledger = self._open_ledger()
        except LedgerError as exc:
            if not self._logged:
                log.warning("relay_without_ledger", cause=str(exc), what="tried again")
            self._logged = True
            return False
        self._closes.append(ledger.close)
        self._windows = ledger.alerting()
        self._closes.append(self._start_heartbeat(ledger))
        return True
