"""Heartbeat of a process that sends nothing to receivers: receipts, gateway, campaigns, look-back, relay.

Its row in the ledger says that it lives, its version and its backlog, and a person's order to drain reaches
it. Nothing of the process's own work depends on the row: while the ledger is away it goes on.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from backends.program import program_version
from idempotency.fleet.controls import ControlOrders, Controls
from idempotency.fleet.snapshots import BacklogSnapshot, ProcessSnapshot, encoded
from idempotency.ledger import Lease, LedgerError, WorkerInfo
from sending.runtime.threads import ThreadGroup

log = structlog.get_logger(__name__)
EVERY_S: Final = 2.0
LEASE_S: Final = 30.0
"""Silence after which the process counts as lost."""
CLOSE_S: Final = 5.0
_MS: Final = 1_000


class HeartbeatLedger(Protocol):
    """The part of the ledger that a heartbeat needs. Every method raises LedgerError."""

    def register(self, worker: WorkerInfo) -> Lease:
        """See `idempotency.ledger.Ledger.register`."""
        ...

    def heartbeat(self, lease: Lease, state: str = "RUNNING", snapshot: str = "") -> Lease | None:
        """See `idempotency.ledger.Ledger.heartbeat`."""
        ...

    def retire(self, lease: Lease) -> None:
        """See `idempotency.ledger.Ledger.retire`."""
        ...

    def controls(self) -> Controls:
        """Returns the orders of persons."""
        ...


Backlog = Callable[[], BacklogSnapshot | None]
"""Returns what waits in the process; None: it is not known now. Raises LedgerError alone."""


class ProcessHeartbeat:
    """Its thread calls `run`. The main thread calls `close` after that thread's last beat."""

    def __init__(
        self,
        ledger: HeartbeatLedger,
        kind: str,
        name: str,
        stop: threading.Event,
        backlog: Backlog = lambda: None,
        *,
        snapshot: Callable[[], ProcessSnapshot] = ProcessSnapshot,
    ) -> None:
        """`kind` is one of `backends.metrics.families.PROCESSES`. `snapshot` returns what the process shows
        beside its backlog. An order to drain sets `stop`."""
        self._ledger = ledger
        self._controls = ledger.controls()
        self._info = process_info(kind, name)
        self._stop = stop
        self._backlog = backlog
        self._snapshot = snapshot
        self._lease: Lease | None = None  # `beat` writes it, and `close` after the thread's end
        self._since_ms = 0  # `beat` writes it
        self._away = False  # `beat` writes it
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None  # `start` writes it

    def run(self) -> None:
        """Beats until `close`."""
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            self.beat()
            pause_s = EVERY_S

    def beat(self) -> None:
        """Writes one sign of life, and obeys an order to drain. Raises nothing."""
        try:
            self._write()
            self._obey(self._controls.orders(self._info.id, self._since_ms))
            self._away = False
        except LedgerError as exc:
            if not self._away:
                log.warning("heartbeat_failed", cause=str(exc))
            self._away = True

    def start(self) -> None:
        """Starts the thread. Its death ends no work; the row then shows the process as lost."""
        self._thread = ThreadGroup().start("heartbeat", self.run)

    def close(self) -> None:
        """Ends the thread and takes the row out of the list; idempotent. Raises nothing."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():
                return
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            self._ledger.retire(lease)
        except LedgerError as exc:
            log.warning("heartbeat_not_retired", cause=str(exc))

    def _write(self) -> None:
        state = "DRAINING" if self._stop.is_set() else "RUNNING"
        snapshot = encoded(msgspec.structs.replace(self._snapshot(), backlog=self._backlog()))
        renewed = self._ledger.heartbeat(self._lease, state, snapshot) if self._lease else None
        if renewed is None:  # the first beat, or a sweep ended this life
            renewed = self._ledger.register(self._info)
            self._since_ms = self._since_ms or renewed.now_ms
            self._lease = renewed
            renewed = self._ledger.heartbeat(renewed, state, snapshot) or renewed
        self._lease = renewed

    def _obey(self, orders: ControlOrders) -> None:
        if orders.drain is not None and not self._stop.is_set():
            log.warning("drain_ordered", order=orders.drain)
            self._stop.set()
            self._write()


def process_info(kind: str, name: str) -> WorkerInfo:
    """Returns the row of this process. It serves no lane, so no rate is shared with it."""
    host = socket.gethostname()
    lease_ms = int(LEASE_S * _MS)
    return WorkerInfo(name, host, os.getpid(), [], 0, lease_ms, kind, program_version())
