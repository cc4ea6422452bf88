"""The number of workers that share an account, and the thread that keeps rates up to date.

The ledger's heartbeats show which workers live. Sending threads never ask for the count, and others rarely:
it matters only while Redis is away, and then an old one serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import structlog

from idempotency.ledger import LedgerUnavailable

REFRESH_S: Final = 10.0
"""Interval between two counts of the live workers."""
TIDY_S: Final = 0.5
"""Interval between two looks for unused tokens."""
_log = structlog.get_logger(__name__)


class SendingLanes(Protocol):
    """The ledger's heartbeats."""

    def sending_lanes(self) -> list[frozenset[str]]:
        """See `idempotency.ledger.Ledger`."""
        ...


class FleetSize:
    """`open_quotas`, then the thread of `LimitsMaintenance`, call `refresh`; any thread may read."""

    def __init__(self, ledger: SendingLanes, lanes: Mapping[str, Collection[str]]) -> None:
        """`lanes` has for each account the lanes that send through it."""
        self._ledger = ledger
        self._workers: dict[str, int] = {}
        self.serve(lanes)

    def serve(self, lanes: Mapping[str, Collection[str]]) -> None:
        """Sets the lanes of each account, from the next count on."""
        self._lanes = {account: frozenset(names) for account, names in lanes.items()}

    def workers(self, account: str) -> int:
        """Returns the live workers that serve a lane of this account, and the recoveries that send now,
        with this one; 1 before any count."""
        return self._workers.get(account, 1)

    def refresh(self) -> None:
        """Counts anew; keeps the last count while the ledger is away."""
        try:
            living = self._ledger.sending_lanes()
        except LedgerUnavailable as exc:
            _log.debug("fleet_not_counted", cause=str(exc))
            return
        self._workers = {
            account: max(1, sum(not names.isdisjoint(lanes) for lanes in living))
            for account, names in self._lanes.items()
        }


class LimitsMaintenance:
    """Runs in a thread of its own: it may wait for Redis and the database, sending threads may not."""

    def __init__(
        self,
        refresh: Callable[[], None],
        tidy: Callable[[], None],
        close: Callable[[], None],
        bell: threading.Event | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`FleetSize.refresh`, `RateLimiter.tidy`, `RateLimiter.close` and `RateLimiter.bell`."""
        self._refresh = refresh
        self._tidy = tidy
        self._close = close
        self._bell = bell or threading.Event()
        self._monotonic = monotonic
        self._stop = threading.Event()

    def run(self) -> None:
        """Runs until `stop`; then gives the unused tokens back to the fleet."""
        refresh_at = self._monotonic() + REFRESH_S
        while True:
            self._bell.wait(TIDY_S)
            self._bell.clear()
            if self._stop.is_set():
                break
            self._tidy()
            if (now := self._monotonic()) >= refresh_at:
                refresh_at = now + REFRESH_S
                self._refresh()
        self._close()

    def stop(self) -> None:
        """Ends the thread; idempotent, safe before `run`."""
        self._stop.set()
        self._bell.set()
