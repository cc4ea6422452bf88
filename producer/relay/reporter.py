"""Writes the relay's heartbeat row, measures the backlog, and tells of parked and late rows."""

from __future__ import annotations

import os
import socket
import threading
from typing import Final

import structlog

from hongyan_client.outbox.errors import OutboxTrouble
from hongyan_client.outbox.relay_rows import OutboxBacklog, RelayRows
from producer.relay.metrics import RelayMetrics
from sending.alerts.notifier import Alert, AlertNotifier

log = structlog.get_logger(__name__)
EVERY_S: Final = 5.0
_MS: Final = 1_000
RUNNING, DRAINING, ENDED = "running", "draining", "ended"


class RelayReporter:
    """Its own thread calls `run`; `report` of the end is the main thread's, after that one has ended."""

    def __init__(
        self,
        rows: RelayRows,
        metrics: RelayMetrics,
        alerts: AlertNotifier,
        *,
        name: str,
        table: str,
        late_s: float,
        stop: threading.Event,
    ) -> None:
        """`late_s`: age of the oldest row from which an alert goes out; 0: never."""
        self._rows = rows
        self._metrics = metrics
        self._alerts = alerts
        self._name = name
        self._table = table
        self._late_s = late_s
        self._stop = stop
        self._late = False  # whether the last look found it late; `report` writes it

    def run(self) -> None:
        """Reports until `stop` is set."""
        while not self._stop.is_set():
            self.report(RUNNING)
            self._stop.wait(EVERY_S)
        self.report(DRAINING)

    def report(self, state: str) -> None:
        """Writes one sign of life. Raises nothing."""
        host, published = socket.gethostname(), self._metrics.published
        try:
            found = self._rows.beat(self._name, host, os.getpid(), state, published)
            self._metrics.backlog = found
            self._raise_parked()
            self._raise_late(found)
        except OutboxTrouble as exc:
            self._metrics.backlog = None
            log.warning("backlog_not_measured", cause=str(exc))
        self._alerts.flush()

    def _raise_parked(self) -> None:
        """Tells of parked rows, then notes it. A relay that is killed in between leaves them to the next
        look of any relay: they may be told twice."""
        untold = self._rows.untold_alerts()
        for one in untold:
            log.error("parked", message=one.message_id, topic=one.topic, cause=one.text)
            text = (
                f"{one.message_id} for {one.topic}: {one.text}; see `hongyan outbox list --parked`"
            )
            self._alerts.raise_(Alert("outbox_parked", "", self._table, text))
        if untold:
            self._alerts.flush()
            self._rows.note_told(untold)

    def _raise_late(self, found: OutboxBacklog) -> None:
        late = bool(self._late_s) and found.oldest_ms >= self._late_s * _MS
        if late:
            text = (
                f"{found.pending:,} notifications in {self._table} are not in Kafka, the oldest for"
                f" {found.oldest_ms / _MS:,.0f} s"
            )
            alert = Alert("outbox_late", "", self._table, text)
            self._alerts.raise_(alert, count=int(not self._late))
        self._late = late
