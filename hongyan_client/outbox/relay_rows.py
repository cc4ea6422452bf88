"""The relays' signs of life, the backlog that they measure, and the alerts of parked rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, insert, select, text, update

from hongyan_client.outbox.clock import NOW_MS, DatabaseMillis, spelling
from hongyan_client.outbox.store import OutboxStore
from hongyan_client.outbox.tables import PARKED, OutboxTables

COUNTED: Final = 10_000
"""Rows that are counted; a larger backlog shows this number."""
SILENT_MS: Final = 30_000
"""Silence after which a running relay is lost."""
_SOON_MS: Final = 600_000
_LOOKED_AT: Final = 20_000
"""Rows due later than soon that are looked at: most are delayed ones, which do not count."""
_FORGET_MS: Final = 86_400_000
"""A relay without a sign of life for so long is forgotten."""
_WAITING: Final = """
SELECT count(*) AS pending, {now} - min(ready) AS oldest_ms FROM (
    SELECT ready FROM (
        SELECT COALESCE(send_at, created_at) AS ready FROM {t}
         WHERE next_at <= {now} + {soon} AND (send_at IS NULL OR send_at <= {now})
         ORDER BY next_at LIMIT {most}) soon
    UNION ALL
    SELECT COALESCE(send_at, created_at) FROM (
        SELECT send_at, created_at FROM {t} WHERE next_at > {now} + {soon}
         ORDER BY next_at LIMIT {looked_at}) later
     WHERE send_at IS NULL OR send_at <= {now}) waiting"""
"""A row in a long back-off, or in the lease of a relay that died, is due late and waits all the same."""


class OutboxBacklog(NamedTuple):
    """Rows that should have gone and have not."""

    pending: int
    """Counted up to 10,000; delayed ones before their time are left out."""
    oldest_ms: int
    """Age of the oldest of them; 0: none."""
    parked: int
    """Counted up to 10,000."""


class RelayHeartbeat(NamedTuple):
    """A relay's last sign of life."""

    name: str
    host: str
    pid: int
    state: str
    started_at: int
    heartbeat_at: int
    published: int
    pending: int
    oldest_ms: int
    parked: int

    def lost_at(self, now: int) -> bool:
        """Returns whether the relay is silent without having ended."""
        return self.state == "running" and now - self.heartbeat_at > SILENT_MS


class ParkedAlert(NamedTuple):
    """A row that was parked and of which no relay has told yet."""

    id: int
    message_id: str
    topic: str
    text: str


class RelayRows:
    """Reads and writes of one outbox beside claims and marks. Raises OutboxTrouble alone."""

    def __init__(self, store: OutboxStore, tables: OutboxTables) -> None:
        self._store = store
        self._tables = tables
        now = NOW_MS[spelling(store.engine.dialect.name)]
        self._waiting = text(
            _WAITING.format(
                t=store.name, now=now, soon=_SOON_MS, most=COUNTED, looked_at=_LOOKED_AT
            )
        )

    def backlog(self) -> OutboxBacklog:
        """Measures the backlog."""
        with self._store.transaction() as connection:
            return self._backlog(connection)

    def beat(self, name: str, host: str, pid: int, state: str, published: int) -> OutboxBacklog:
        """Measures the backlog and writes the relay's row. Returns the backlog."""
        with self._store.transaction() as connection:
            found = self._backlog(connection)
            values = {"state": state, "published": published, **found._asdict()}
            self._write(connection, name, {"host": host[:255], "pid": pid, **values})
        return found

    def heartbeats(self) -> list[RelayHeartbeat]:
        """Returns the relays of the last day, the newest first."""
        relays = self._tables.relays
        columns = [relays.c[field] for field in RelayHeartbeat._fields]
        with self._store.transaction() as connection:
            rows = connection.execute(select(*columns).order_by(relays.c.heartbeat_at.desc())).all()
        return [RelayHeartbeat(*row) for row in rows]

    def now_ms(self) -> int:
        """Returns the database's time."""
        with self._store.transaction() as connection:
            return int(connection.execute(select(DatabaseMillis())).scalar_one())

    def untold_alerts(self, limit: int = 100) -> list[ParkedAlert]:
        """Returns alerts that no relay has told. Several callers may get the same one."""
        alerts = self._tables.alerts
        asked = select(*(alerts.c[field] for field in ParkedAlert._fields))
        asked = asked.where(alerts.c.told_at.is_(None)).order_by(alerts.c.id).limit(limit)
        with self._store.transaction() as connection:
            return [ParkedAlert(*row) for row in connection.execute(asked)]

    def note_told(self, told: Sequence[ParkedAlert]) -> None:
        """Notes that the alerts were told."""
        alerts = self._tables.alerts
        mine = alerts.c.id.in_([one.id for one in told]), alerts.c.told_at.is_(None)
        with self._store.transaction() as connection:
            connection.execute(update(alerts).where(*mine).values(told_at=DatabaseMillis()))

    def _backlog(self, connection: Connection) -> OutboxBacklog:
        rows = self._tables.rows
        waiting = connection.execute(self._waiting).one()
        some = select(rows.c.id).where(rows.c.state == PARKED).limit(COUNTED).subquery()
        parked = connection.execute(select(func.count()).select_from(some)).scalar_one()
        pending = min(waiting.pending, COUNTED)
        return OutboxBacklog(pending, max(0, int(waiting.oldest_ms or 0)), parked)

    def _write(self, connection: Connection, name: str, values: dict[str, Any]) -> None:
        relays, now = self._tables.relays, DatabaseMillis()
        mine = relays.c.name == bindparam("relay")
        changed = connection.execute(
            update(relays).where(mine).values(heartbeat_at=now, **values), {"relay": name}
        )
        if not changed.rowcount:
            made = insert(relays).values(name=name, started_at=now, heartbeat_at=now, **values)
            connection.execute(made)
            old = relays.c.heartbeat_at < now - _FORGET_MS
            connection.execute(delete(relays).where(old))
