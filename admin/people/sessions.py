"""Sessions in the database: a random token in the cookie, its hash in the row."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, text

from admin.access import Person, Role
from admin.people.users import ConsoleUser, UserState
from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock

SEEN_EVERY_MS: Final = 60_000
"""Interval between two writes of the last request's time."""
_ADD: Final = text("""
INSERT INTO console_sessions (token_hash, user_id, created_at, seen_at, ends_at, address)
VALUES (:hash, :user, :now, :now, :ends, :address)""")
_FOUND: Final = """
SELECT s.seen_at, s.ends_at, u.id, u.name, u.password_hash, u.oidc_subject, u.state, u.language,
       u.theme, u.created_at, r.role, r.lanes, {now} AS now
  FROM console_sessions AS s JOIN console_users AS u ON u.id = s.user_id
  LEFT JOIN console_roles AS r ON r.user_id = u.id
 WHERE s.token_hash = :hash"""
# With the server's clock in it: the guard of every request asks once.
_FIND_AND_CLOCK: Final = text(_FOUND.format(now="hongyan_now()"))
_FIND: Final = text(_FOUND.format(now="NULL"))
_SEEN: Final = text("UPDATE console_sessions SET seen_at = :now WHERE token_hash = :hash")
_ALIVE: Final = text("""
SELECT s.token_hash FROM console_sessions AS s JOIN console_users AS u ON u.id = s.user_id
 WHERE s.token_hash IN :hashes AND s.ends_at > :now AND s.seen_at > :idle_since
   AND u.state = :active""").bindparams(bindparam("hashes", expanding=True))
_ALL_SEEN: Final = text(
    "UPDATE console_sessions SET seen_at = :now WHERE token_hash IN :hashes AND seen_at <= :before"
).bindparams(bindparam("hashes", expanding=True))
_END: Final = text("DELETE FROM console_sessions WHERE token_hash = :hash")
_END_OLD: Final = text(
    "DELETE FROM console_sessions WHERE ends_at <= :now OR seen_at <= :idle_since"
)


class SessionLimits(NamedTuple):
    """Times after which a session ends, in milliseconds."""

    idle_ms: int
    most_ms: int


class FoundSession(NamedTuple):
    """A session that is not over."""

    person: Person
    now: int
    """Time by the database's clock at which it was found, epoch milliseconds."""


def token_hash(token: str) -> str:
    """Returns the form in which the database knows a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class Sessions:
    """Begins, finds and ends sessions. Raises LedgerError."""

    def __init__(self, database: Database, clock: Clock, limits: SessionLimits) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits

    def begin(self, connection: Connection, user: int, address: str) -> str:
        """Begins a session in the caller's transaction, and forgets those that are over. Returns its
        token, which is new: a token from before the login is worth nothing (session fixation)."""
        now, token = self._clock(connection), secrets.token_urlsafe(32)
        connection.execute(_END_OLD, {"now": now, "idle_since": now - self._limits.idle_ms})
        values = {
            "hash": token_hash(token),
            "user": user,
            "now": now,
            "ends": now + self._limits.most_ms,
            "address": address,
        }
        connection.execute(_ADD, values)
        return token

    def find(self, token: str) -> FoundSession | None:
        """Returns the session of a token; None without one that is not over."""
        if not token:
            return None
        hashed = token_hash(token)
        with errors(), self._database.reading() as connection:
            found = _FIND_AND_CLOCK if self._database.is_postgres else _FIND
            rows = connection.execute(found, {"hash": hashed}).all()
            if not rows:
                return None
            now = rows[0].now or self._clock(connection)
        if self._is_over(rows[0], now):
            return None
        if now - rows[0].seen_at >= SEEN_EVERY_MS:
            with errors(), self._database.begin() as connection:
                connection.execute(_SEEN, {"hash": hashed, "now": now})
        return FoundSession(_person(rows), now)

    def alive(self, tokens: Collection[str]) -> set[str]:
        """Returns those of the tokens whose session is not over, and notes that they are in use."""
        if not tokens:
            return set()
        by_hash = {token_hash(token): token for token in tokens}
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            asked = {"hashes": list(by_hash), "now": now, "active": UserState.ACTIVE.value}
            asked["idle_since"] = now - self._limits.idle_ms
            found = list(connection.execute(_ALIVE, asked).scalars())
            if found:
                seen = {"hashes": found, "now": now, "before": now - SEEN_EVERY_MS}
                connection.execute(_ALL_SEEN, seen)
        return {by_hash[one] for one in found}

    def end(self, token: str) -> None:
        """Ends one session; one that is over is none."""
        with errors(), self._database.begin() as connection:
            connection.execute(_END, {"hash": token_hash(token)})

    def _is_over(self, row: object, now: int) -> bool:
        seen, ends, state = row.seen_at, row.ends_at, row.state  # type: ignore[attr-defined]
        return bool(now >= ends or now - seen >= self._limits.idle_ms or state != UserState.ACTIVE)


def _person(rows: object) -> Person:
    first = rows[0]  # type: ignore[index]
    roles = {
        Role(row.role): tuple(row.lanes.split(","))
        for row in rows  # type: ignore[attr-defined]
        if row.role
    }
    user = ConsoleUser(
        *(first.id, first.name, first.password_hash, first.oidc_subject, first.state),
        *(first.language, first.theme, first.created_at, roles),
    )
    return user.person()
