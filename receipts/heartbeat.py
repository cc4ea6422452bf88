"""The heartbeat of a receipts process: its row among those of workers and recoveries.

The row has no lanes: the process sends nothing, so it counts for no rate, and no lane waits for it. It ends
nobody's life: deliveries in doubt are the business of workers and recoveries.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Final

import structlog

from backends.program import program_version
from idempotency.fleet.snapshots import ProcessSnapshot, encoded
from idempotency.ledger import RECEIPTS, Lease, LedgerError, WorkerInfo
from idempotency.sql_ledger import SqlLedger

log = structlog.get_logger(__name__)

LEASE_S: Final = 30.0
"""Without a heartbeat for so long, the process counts as lost."""
EVERY_S: Final = LEASE_S / 6
_MS: Final = 1_000


class ReceiptHeartbeat:
    """`run` is a thread of its own. `start` comes before it; any thread may call `close`."""

    def __init__(
        self,
        ledger: SqlLedger,
        name: str,
        snapshot: Callable[[], ProcessSnapshot],
        *,
        every_s: float = EVERY_S,
    ) -> None:
        self.since_ms = 0
        """Time of the first registration by the database's clock; `start` writes it."""
        self._ledger = ledger
        self._snapshot = snapshot
        self._every_s = every_s
        self._lease: Lease | None = None
        self._stop = threading.Event()
        self._away = False
        self._beating = threading.Lock()
        """A beat under way must not register again what `close` just took out."""
        self._info = WorkerInfo(
            id=name,
            host=socket.gethostname(),
            pid=os.getpid(),
            lanes=[],
            threads=0,
            lease_ms=int(LEASE_S * _MS),
            kind=RECEIPTS,
            program=program_version(),
        )

    def start(self) -> None:
        """Registers, and starts the thread. Raises LedgerError."""
        self._lease = self._ledger.register(self._info)
        self.since_ms = self._lease.now_ms
        self.beat()
        threading.Thread(target=self.run, name="heartbeat", daemon=True).start()

    def run(self) -> None:
        """Beats until `close`."""
        while not self._stop.wait(self._every_s):
            self.beat()

    def beat(self) -> None:
        """Writes one heartbeat; registers again after somebody ended its life. Receipts are taken all the
        same while the database is away."""
        with self._beating:
            if self._stop.is_set():
                return
            try:
                self._beat()
            except LedgerError as exc:
                if not self._away:
                    log.warning("heartbeat_failed", cause=str(exc))
                self._away = True
            else:
                self._away = False

    def _beat(self) -> None:
        lease = self._lease or self._ledger.register(self._info)
        renewed = self._ledger.heartbeat(lease, "RUNNING", encoded(self._snapshot()))
        self._lease = renewed  # None: the next beat registers again

    def close(self) -> None:
        """Takes the row out of the list, if the database is there; idempotent."""
        self._stop.set()
        with self._beating:
            lease, self._lease = self._lease, None
            if lease is None:
                return
            try:
                self._ledger.retire(lease)
            except LedgerError as exc:
                log.warning("heartbeat_failed", cause=str(exc))
