"""An outbox in a fresh database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, MetaData, Row, select, text

from hongyan_client.outbox import Outbox
from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.operator_orders import OutboxOperator
from hongyan_client.outbox.relay_rows import RelayRows
from hongyan_client.outbox.store import OutboxStore

KINDS = {"sqlite": "sqlite_database", "postgres": "database", "mariadb": "mariadb_database"}
"""Databases, and the fixtures that make one."""
LEASE_MS = 30_000


class OutboxPlace:
    """One database with an outbox in it."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        self.engine = engine
        self.outbox = Outbox()
        self.store = OutboxStore(engine)
        self.rows = RelayRows(self.store, self.outbox.tables)
        self.operator = OutboxOperator(self.store, self.outbox.tables)

    def add(self, key: str | None = None, **options: Any) -> str:
        with self.engine.begin() as connection:
            return self.outbox.add(connection, notice(key), **options).id

    def states(self) -> dict[str, str]:
        """The state of each notification."""
        rows = self.outbox.tables.rows
        with self.engine.begin() as connection:
            return {r.message_id: r.state for r in connection.execute(select(rows))}

    def row(self, message_id: str) -> Row[Any]:
        rows = self.outbox.tables.rows
        with self.engine.begin() as connection:
            return connection.execute(select(rows).where(rows.c.message_id == message_id)).one()

    def set(self, message_id: str, assignments: str) -> None:
        """Changes a row behind everybody's back, as the passing of time would."""
        with self.engine.begin() as connection:
            connection.execute(
                text(f"UPDATE hongyan_outbox SET {assignments} WHERE message_id = :asked"),
                {"asked": message_id},
            )

    def end_lease(self, message_id: str) -> None:
        self.set(message_id, "next_at = next_at - 1000000")

    def claimed(self, limit: int = 100) -> list[str]:
        return [row.message_id for row in self.store.claim_due("r", LEASE_MS, limit).rows]


def notice(key: str | None = None) -> dict[str, Any]:
    return {
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+8613800000001"],
        "template": {"id": "order-shipped", "params": {"order": "1001"}},
        "ordering_key": key,
    }


@contextmanager
def opened(url: str) -> Iterator[OutboxPlace]:
    engine = outbox_engine(url)
    place = OutboxPlace(url, engine)
    with engine.begin() as connection:
        MetaData.create_all(place.outbox.tables.rows.metadata, connection)
    try:
        yield place
    finally:
        engine.dispose()
