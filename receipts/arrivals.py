"""Arrivals of receipts by account, for the heartbeat: how many came, when, and how late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from idempotency.fleet.snapshots import ReceiptSnapshot
from idempotency.receipts.rules import Receipt

_MS: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_DIGITS: Final = 1


class _Arrival:
    """One account. `Arrivals` guards it by its lock."""

    def __init__(self) -> None:
        self.taken = 0
        self.last_at: float | None = None
        self.lag_s: float | None = None
        self.asked_at: float | None = None


class Arrivals:
    """Thread-safe. Times are monotonic seconds; a lag compares this machine's clock with the provider's."""

    def __init__(
        self,
        accounts: Iterable[str] = (),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // _NS_PER_MS,
    ) -> None:
        """`accounts` are shown before anything of them arrives."""
        self._monotonic = monotonic
        self._wall_ms = wall_ms
        self._lock = threading.Lock()  # guards the accounts
        self._accounts = {name: _Arrival() for name in accounts}

    def stored(self, receipts: Sequence[Receipt]) -> None:
        """Notes the receipts of one statement, which are durable."""
        now, wall_ms = self._monotonic(), self._wall_ms()
        with self._lock:
            for account in {one.account for one in receipts}:
                of_account = [one for one in receipts if one.account == account]
                arrival = self._accounts.setdefault(account, _Arrival())
                arrival.taken += len(of_account)
                arrival.last_at = now
                if times := [one.at for one in of_account if one.at]:
                    arrival.lag_s = round(max(0, wall_ms - min(times)) / _MS, _DIGITS)

    def answered(self, account: str) -> None:
        """Notes that the provider answered a question for receipts."""
        now = self._monotonic()
        with self._lock:
            self._accounts.setdefault(account, _Arrival()).asked_at = now

    def snapshot(self) -> dict[str, ReceiptSnapshot]:
        """Returns each account as it is now."""
        now = self._monotonic()
        with self._lock:
            return {
                name: ReceiptSnapshot(
                    one.taken, _since(one.last_at, now), one.lag_s, _since(one.asked_at, now)
                )
                for name, one in self._accounts.items()
            }


def _since(at: float | None, now: float) -> int | None:
    return None if at is None else max(0, int(now - at))
