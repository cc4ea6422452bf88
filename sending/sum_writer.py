"""Writes a process's sums every few seconds, in its own thread: a slow write must not delay a heartbeat.

A process that is killed loses what it had not written: EVERY_S seconds at most. While the database is away
the sums wait in memory, an hour of them at most.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

import structlog

from idempotency.ledger import LedgerError
from idempotency.sums.counter import MinuteSums
from idempotency.sums.rollup import SumRollup
from idempotency.sums.store import SumStore

log = structlog.get_logger(__name__)

EVERY_S: Final = 5.0
DUTY: Final = "sums"
DUTY_LEASE_MS: Final = 60_000
_WRITES_A_ROLLUP: Final = 3
_WRITES_A_FORGET: Final = 720


class SumWriter:
    """One thread runs `run`; another one calls `close` at the end."""

    def __init__(
        self,
        sums: MinuteSums,
        store: SumStore,
        process: str,
        *,
        upkeep: Callable[[], None] = lambda: None,
        every_s: float = EVERY_S,
    ) -> None:
        """`process` names this process; its life gets a name of its own. `upkeep` runs after each write."""
        self._sums = sums
        self._store = store
        self._life = f"{process}/{secrets.token_hex(4)}"
        self._upkeep = upkeep
        self._every_s = every_s
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._away = False
        self._lost = 0

    def run(self) -> None:
        """Writes again and again until `close`."""
        while not self._stop.wait(self._every_s):
            if self.write():
                self._attempt(self._upkeep)

    def close(self) -> None:
        """Ends `run` and writes the rest, unless the database is known to be away. Idempotent."""
        self._stop.set()
        if not self._away:
            self.write()

    def write(self) -> bool:
        """Writes what changed. Returns False if the database did not take it: the next call tries again."""
        with self._writing:
            rows = self._sums.unwritten()
            done = self._attempt(lambda: self._store.put(self._life, rows))
            if not done:
                self._sums.not_written(rows)
        if self._sums.lost != self._lost:
            self._lost = self._sums.lost
            log.warning("sums_lost", deliveries=self._lost, what="pages show too few of them")
        return done

    def _attempt(self, act: Callable[[], None]) -> bool:
        """Returns whether it went well. Nothing raises: sums never end a process."""
        try:
            act()
        except Exception as exc:
            if not self._away:
                known = isinstance(exc, LedgerError)
                log.warning("sums_wait", cause=str(exc), exc_info=None if known else exc)
            self._away = True
            return False
        self._away = False
        return True


class SumUpkeep:
    """Rolls sums up and removes old ones, as `upkeep` of one process's writer at a time."""

    def __init__(self, rollup: SumRollup, hold: Callable[[str, int], bool]) -> None:
        """`hold` is `Recovery.hold`."""
        self._rollup = rollup
        self._hold = hold
        self._writes = 0
        self._more = False  # whether `forget` left sums that are too old

    def __call__(self) -> None:
        """Runs what is due after one write. Raises LedgerError."""
        number, self._writes = self._writes, self._writes + 1
        if number % _WRITES_A_ROLLUP or not self._hold(DUTY, DUTY_LEASE_MS):
            return
        self._rollup.run()
        if self._more or number % _WRITES_A_FORGET == 0:
            self._more = self._rollup.forget()
