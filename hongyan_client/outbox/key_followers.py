"""Wakes rows that wait behind a recalled one, in the business's transaction, which must not fail for it.

The follower's row is locked only if that needs no wait. Relays change it while it is held, so at a level
with one snapshot for the whole transaction the lock may fail:

- PostgreSQL, REPEATABLE READ: a savepoint takes the failure, and the transaction goes on.
- MariaDB with `innodb_snapshot_isolation`, REPEATABLE READ: the server would undo the whole transaction.
- SERIALIZABLE, except on SQLite: reading the key's rows would let more transactions fail.

In the last two nobody is woken, and the follower comes up by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

from sqlalchemy import Connection, Table, bindparam, func, select, text, update
from sqlalchemy import exc as sa

from hongyan_client.outbox.clock import POSTGRESQL, SQLITE, DatabaseMillis, spelling
from hongyan_client.outbox.tables import RECALLED

_HELD: Final = text("state = 'PENDING' AND held > 0")
_REPEATABLE: Final = "REPEATABLE READ"


class KeyFollowers:
    """Any thread may use it."""

    def __init__(self, rows: Table) -> None:
        c = rows.c
        self._keys = (
            select(c.key_hash)
            .distinct()
            .where(
                c.message_id == bindparam("asked_id"), c.state == RECALLED, c.key_hash.is_not(None)
            )
        )
        of_keys = c.key_hash.in_(bindparam("keys", expanding=True))
        self._next = select(func.min(c.id)).where(of_keys, _HELD).group_by(c.key_hash)
        these = c.id.in_(bindparam("ids", expanding=True))
        self._lock = select(c.id).where(these).with_for_update(skip_locked=True)
        self._wake = update(rows).where(these, _HELD).values(next_at=DatabaseMillis(), held=0)

    def wake(self, connection: Connection, message_id: str) -> None:
        """Makes the next held row of each key of a recalled notification due."""
        keys = connection.execute(self._keys, {"asked_id": message_id}).scalars().all()
        if not keys:
            return
        level = connection.get_isolation_level()
        if _is_harmful(connection, level):
            return
        guarded = level == _REPEATABLE and connection.dialect.name == POSTGRESQL
        try:
            with connection.begin_nested() if guarded else nullcontext():
                self._wake_next(connection, keys)
        except sa.DBAPIError as exc:
            if not guarded or exc.connection_invalidated:
                raise

    def _wake_next(self, connection: Connection, keys: Sequence[str]) -> None:
        ids = connection.execute(self._next, {"keys": keys}).scalars().all()
        if ids:
            ids = connection.execute(self._lock, {"ids": ids}).scalars().all()
        if ids:
            connection.execute(self._wake, {"ids": ids})


def _is_harmful(connection: Connection, level: str) -> bool:
    """Returns whether a lock on a row could make the business's transaction fail as a whole."""
    dialect = connection.dialect.name
    if level == "SERIALIZABLE":
        return dialect != SQLITE
    if level != _REPEATABLE or spelling(dialect) != "mysql":
        return False
    found = connection.execute(text("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")).first()
    return found is not None and found[1] == "ON"
