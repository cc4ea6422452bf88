"""Wakes the relay at a NOTIFY of PostgreSQL. Looks at intervals find every row without it, so a pooler that
passes no notifications (PgBouncer) costs time alone."""

from __future__ import annotations

from typing import Any, Final

import structlog
from sqlalchemy import exc as sa

from hongyan_client.outbox.errors import OutboxTrouble, outbox_errors
from hongyan_client.outbox.store import OutboxStore
from producer.relay.relay import RelaySignals

log = structlog.get_logger(__name__)
_TURN_S: Final = 1.0
_AGAIN_S: Final = 5.0


class Wakeups:
    """Its own thread calls `run`. Notifications that come together wake once."""

    def __init__(self, store: OutboxStore, signals: RelaySignals) -> None:
        self._store = store
        self._stop, self._wake = signals

    def run(self) -> None:
        """Listens until `stop` is set, and opens a lost connection again."""
        while not self._stop.is_set():
            try:
                self._listen()
            except OutboxTrouble as exc:
                log.info("no_notifications", cause=str(exc))
                self._stop.wait(_AGAIN_S)

    def _listen(self) -> None:
        name = self._store.name
        with outbox_errors(name), self._store.engine.connect() as pooled:
            connection: Any = pooled.connection.driver_connection
            pooled.detach()  # it listens, so it must not come back to the pool
            connection.autocommit = True
            try:
                connection.execute(f'LISTEN "{name}"')
                while not self._stop.is_set():
                    for _ in connection.notifies(timeout=_TURN_S, stop_after=1):
                        self._wake.set()
            except self._store.engine.dialect.loaded_dbapi.Error as exc:
                raise sa.OperationalError("LISTEN", None, exc) from exc
