"""Wakes the relay at a NOTIFY of PostgreSQL. Looks at intervals find every row without it, so where a
connection passes no notifications, as behind PgBouncer, that costs time alone."""

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
_POOLED_AGAIN_S: Final = 300.0
"""Pause after which the thread looks whether a pooler is still there."""


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
                self._rest(str(exc), _AGAIN_S)
            except _Pooled as exc:
                self._rest(str(exc), _POOLED_AGAIN_S)

    def _rest(self, cause: str, pause_s: float) -> None:
        log.info("no_notifications", cause=cause)
        self._stop.wait(pause_s)

    def _listen(self) -> None:
        name = self._store.name
        with outbox_errors(name), self._store.engine.connect() as pooled:
            connection: Any = pooled.connection.driver_connection
            pooled.detach()  # it listens, so it must not come back to the pool
            connection.autocommit = True
            try:
                _refuse_pooler(connection)
                connection.execute(f'LISTEN "{name}"')
                while not self._stop.is_set():
                    for _ in connection.notifies(timeout=_TURN_S, stop_after=1):
                        self._wake.set()
            except self._store.engine.dialect.loaded_dbapi.Error as exc:
                raise sa.OperationalError("LISTEN", None, exc) from exc


class _Pooled(Exception):
    """A pooler is in between. It may give each transaction another connection of the server's."""


def _refuse_pooler(connection: Any) -> None:
    """Raises _Pooled where the server's process is not the one that greeted.

    PgBouncer greets with a number of its own. A LISTEN stays with the server's connection. Whoever gets
    that one next, such as a business process, is sent notifications that it never reads (decision 338).
    """
    asked = connection.execute("SELECT pg_backend_pid()").fetchone()
    if asked[0] != connection.info.backend_pid:
        raise _Pooled("a pooler is in between, so the relay looks at intervals alone")
