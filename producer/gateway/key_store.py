"""API keys in the ledger's database, for `hongyan keys`, the console and the gateway."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock
from message.ids import new_id
from producer.gateway.api_keys import (
    ApiKey,
    KeyRefused,
    KeyScope,
    KeyTerms,
    check_name,
    new_secret,
)

_DAY_MS: Final = 86_400_000
_KEPT_DAYS: Final = 90
"""Days for which a revoked or expired key is listed."""
_ADD: Final = text("""
INSERT INTO api_keys (id, name, scopes, lanes, rate_per_s, burst, created_at, created_by, expires_at)
VALUES (:id, :name, :scopes, :lanes, :rate, :burst, :now, :by, :expires)
ON CONFLICT DO NOTHING RETURNING id""")
_ADD_SECRET: Final = text("""
INSERT INTO api_key_secrets (prefix, key_id, digest, created_at, ends_at)
VALUES (:prefix, :key, :digest, :now, NULL)""")
_END_OLD: Final = text("""
UPDATE api_key_secrets SET ends_at = :ends
 WHERE key_id = :key AND (ends_at IS NULL OR ends_at > :ends)""")
_FORGET_ENDED: Final = text("DELETE FROM api_key_secrets WHERE key_id = :key AND ends_at <= :now")
_FOR_CHANGE: Final = """
SELECT id, name, expires_at, revoked_at FROM api_keys WHERE name = :name"""
_REVOKE: Final = text("UPDATE api_keys SET revoked_at = :now WHERE id = :key")
_FORGET_SECRETS: Final = text("DELETE FROM api_key_secrets WHERE key_id = :key")
_LIVE: Final = text("""
SELECT s.prefix, s.digest, s.ends_at, k.id, k.name, k.scopes, k.lanes, k.rate_per_s, k.burst, k.expires_at
  FROM api_key_secrets AS s JOIN api_keys AS k ON k.id = s.key_id
 WHERE k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > :now)
   AND (s.ends_at IS NULL OR s.ends_at > :now)""")
_LIST: Final = text("""
SELECT id, name, scopes, lanes, rate_per_s, burst, created_at, created_by, expires_at, revoked_at
  FROM api_keys
 WHERE coalesce(revoked_at, expires_at, :now) > :since
 ORDER BY name""")
_SECRETS: Final = text(
    "SELECT key_id, prefix, ends_at FROM api_key_secrets"
    " WHERE ends_at IS NULL OR ends_at > :now ORDER BY created_at, prefix"
)


class KeySecretShown(msgspec.Struct, frozen=True):
    """A secret in a list: never the secret itself."""

    prefix: str
    ends_at: int | None


class KeyShown(msgspec.Struct, frozen=True):
    """A key in a list. Times are epoch milliseconds."""

    id: str
    name: str
    state: str
    """active, expired or revoked."""
    scopes: list[str]
    lanes: list[str]
    rate_per_s: float
    burst: int
    created_at: int
    created_by: str
    expires_at: int | None
    revoked_at: int | None
    secrets: list[KeySecretShown]


class KeyMade(msgspec.Struct, frozen=True):
    """A new secret of a key, shown once."""

    name: str
    prefix: str
    token: str
    """The whole key."""
    old_ends_at: int | None = None
    """End of the secret before; None for a key's first one."""


class KeyStore:
    """Changes take the caller's transaction, so that a change and its audit are one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock

    def add(
        self,
        connection: Connection,
        name: str,
        terms: KeyTerms,
        *,
        by: str,
        life_ms: int | None = None,
    ) -> KeyMade:
        """Makes a key; `life_ms` None: without end. Raises KeyRefused."""
        check_name(name)
        now, made = self._clock(connection), new_secret()
        values = {
            "id": new_id(),
            "name": name,
            "scopes": ",".join(terms.scopes),
            "lanes": ",".join(terms.lanes),
            "rate": terms.rate_per_s,
            "burst": terms.burst,
            "now": now,
            "by": by,
            "expires": None if life_ms is None else now + life_ms,
        }
        key = connection.execute(_ADD, values).scalar()
        if key is None:
            raise KeyRefused(
                "name_taken", f"there is a key {name!r} already: rotate it, or choose another name"
            )
        self._add_secret(connection, str(key), made.prefix, made.digest, now)
        return KeyMade(name, made.prefix, made.token)

    def rotate(self, connection: Connection, name: str, *, overlap_ms: int) -> KeyMade:
        """Adds a secret; those before end after `overlap_ms`. Raises KeyRefused."""
        key = self._active(connection, name)
        now, made = self._clock(connection), new_secret()
        connection.execute(_FORGET_ENDED, {"key": key, "now": now})
        ends = now + overlap_ms
        connection.execute(_END_OLD, {"key": key, "ends": ends})
        self._add_secret(connection, key, made.prefix, made.digest, now)
        return KeyMade(name, made.prefix, made.token, ends)

    def revoke(self, connection: Connection, name: str) -> None:
        """Ends a key with all of its secrets, for ever. Raises KeyRefused."""
        key = self._active(connection, name)
        connection.execute(_REVOKE, {"key": key, "now": self._clock(connection)})
        connection.execute(_FORGET_SECRETS, {"key": key})

    def live(self) -> dict[str, ApiKey]:
        """Returns prefix to key, of all that are valid now. Raises LedgerError."""
        with errors(), self.database.begin() as connection:
            now = self._clock(connection)
            rows = connection.execute(_LIVE, {"now": now}).all()
        return {row.prefix: _key(row) for row in rows}

    def now_ms(self) -> int:
        """Returns the database's time, epoch milliseconds. Raises LedgerError."""
        with errors(), self.database.begin() as connection:
            return self._clock(connection)

    def shown(self) -> list[KeyShown]:
        """Returns all keys by name, without those that ended long ago. Raises LedgerError."""
        with errors(), self.database.begin() as connection:
            now = self._clock(connection)
            asked = {"now": now, "since": now - _KEPT_DAYS * _DAY_MS}
            rows = connection.execute(_LIST, asked).mappings().all()
            secrets: dict[str, list[KeySecretShown]] = {}
            for row in connection.execute(_SECRETS, {"now": now}):
                secrets.setdefault(row.key_id, []).append(KeySecretShown(row.prefix, row.ends_at))
        return [_shown(row, now, secrets.get(row["id"], [])) for row in rows]

    def _active(self, connection: Connection, name: str) -> str:
        locked = " FOR UPDATE" if self.database.is_postgres else ""
        row = connection.execute(text(_FOR_CHANGE + locked), {"name": name}).first()
        if row is None:
            raise KeyRefused(
                "not_active", f"there is no key {name!r}: `hongyan keys list` has their names"
            )
        if row.revoked_at is not None:
            raise KeyRefused("not_active", f"key {name!r} is revoked for ever: make another one")
        if row.expires_at is not None and row.expires_at <= self._clock(connection):
            raise KeyRefused("not_active", f"key {name!r} has expired: make another one")
        return str(row.id)

    def _add_secret(
        self, connection: Connection, key: str, prefix: str, digest: str, now: int
    ) -> None:
        values = {"prefix": prefix, "key": key, "digest": digest, "now": now}
        connection.execute(_ADD_SECRET, values)


def _key(row: Any) -> ApiKey:
    ends = [one for one in (row.ends_at, row.expires_at) if one is not None]
    scopes = tuple(KeyScope(one) for one in row.scopes.split(","))
    terms = KeyTerms(scopes, tuple(row.lanes.split(",")), row.rate_per_s, row.burst)
    return ApiKey(row.id, row.name, terms, row.digest, min(ends, default=None))


def _shown(row: Any, now: int, secrets: list[KeySecretShown]) -> KeyShown:
    expired = row["expires_at"] is not None and row["expires_at"] <= now
    state = "revoked" if row["revoked_at"] is not None else "expired" if expired else "active"
    lists = {name: row[name].split(",") for name in ("scopes", "lanes")}
    kept = [] if state != "active" else secrets
    return KeyShown(**{**row, **lists, "state": state, "secrets": kept})
