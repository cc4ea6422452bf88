"""Access tokens in the ledger's database, table access_tokens; see `backends.redis.token_cache`.

Without Redis this is the fleet's store; with Redis it takes over during an outage.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Row, TextClause, text
from sqlalchemy.engine import URL

from backends.redis.token_cache import Busy, CacheAway, Leased, StoredToken, new_fence
from backends.sql.database import Database
from backends.sql.errors import SqlError

_CONNECTIONS: Final = 2
_MS: Final = 1_000_000
_COLUMNS: Final = "digest, sealed, fetched_at, expires_at, lease_until"
_READ: Final = text(f"SELECT {_COLUMNS} FROM access_tokens WHERE name = :name")  # noqa: S608
_NEW: Final = text("INSERT INTO access_tokens (name) VALUES (:name) ON CONFLICT DO NOTHING")
_LEASE: Final = text(
    "UPDATE access_tokens SET fence = :fence, lease_until = :until WHERE name = :name"
)
_PUT: Final = text(
    """
UPDATE access_tokens
   SET digest = :digest, sealed = :sealed, fetched_at = :now, expires_at = :expires,
       fence = '', lease_until = 0
 WHERE name = :name AND fence = :fence AND lease_until > :now"""
)
_GIVE_UP: Final = text(
    "UPDATE access_tokens SET fence = '', lease_until = 0 WHERE name = :name AND fence = :fence"
)


class SqlTokenCache:
    """One short transaction a call, on PostgreSQL or SQLite; see `TokenCache`."""

    def __init__(self, url: URL) -> None:
        """Connects to nothing yet."""
        self._database = Database(url, pool_size=_CONNECTIONS)
        self._locked = text(f"{_READ.text}{' FOR UPDATE' * self._database.is_postgres}")

    def take(
        self, name: str, stale: str, fresh_ms: int, lease_ms: int
    ) -> StoredToken | Leased | Busy:
        """See `TokenCache.take`; a usable token is read without a lock."""
        fence = new_fence()

        def look(connection: Connection) -> StoredToken | None:
            return _usable(*self._row(connection, name, _READ), stale, fresh_ms)

        def lease(connection: Connection) -> StoredToken | Leased | Busy:
            connection.execute(_NEW, {"name": name})
            row, now = self._row(connection, name, self._locked)
            if (kept := _usable(row, now, stale, fresh_ms)) is not None:
                return kept
            if row is not None and row.lease_until > now:
                return Busy(row.lease_until - now)
            until = {"fence": fence, "until": now + lease_ms, "name": name}
            connection.execute(_LEASE, until)
            return Leased(fence)

        taken: StoredToken | Leased | Busy = self._run(look, writes=False) or self._run(lease)
        return taken

    def put(self, name: str, fence: str, token: StoredToken) -> bool:

        def put(connection: Connection) -> bool:
            now = self._now(connection)
            values = {"digest": token.digest, "sealed": token.sealed, "now": now}
            values |= {"expires": now + token.left_ms, "name": name, "fence": fence}
            return connection.execute(_PUT, values).rowcount == 1

        return bool(self._run(put))

    def give_up(self, name: str, fence: str) -> None:
        self._run(lambda connection: connection.execute(_GIVE_UP, {"name": name, "fence": fence}))

    def close(self) -> None:
        self._database.close()

    def _run(self, work: Callable[[Connection], Any], *, writes: bool = True) -> Any:
        try:
            if writes:
                with self._database.begin() as connection:
                    return work(connection)
            with self._database.errors(), self._database.engine.connect() as connection:
                # In autocommit: a reader must not wait for SQLite's one writer.
                return work(connection.execution_options(isolation_level="AUTOCOMMIT"))
        except SqlError as exc:
            raise CacheAway(f"database: {exc}") from exc

    def _row(
        self, connection: Connection, name: str, query: TextClause
    ) -> tuple[Row[Any] | None, int]:
        row = connection.execute(query, {"name": name}).one_or_none()
        return row, self._now(connection)

    def _now(self, connection: Connection) -> int:
        """Returns epoch milliseconds by the database's clock, else ours. Read after the lock, since the
        wait for it may be long and PostgreSQL's hongyan_now() is constant within a transaction."""
        if self._database.is_postgres:
            clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
            return int(connection.execute(text(clock)).scalar_one())
        return time.time_ns() // _MS


def _usable(row: Row[Any] | None, now: int, stale: str, fresh_ms: int) -> StoredToken | None:
    if row is None or row.sealed is None or row.expires_at <= now:
        return None
    age = max(0, now - row.fetched_at)
    if row.digest == stale and age >= fresh_ms:
        return None
    return StoredToken(bytes(row.sealed), row.digest, row.expires_at - now, age)
