"""Sign-ins under way: state, nonce and verifier, bound to the browser by its cookie from before the login.

A browser has one at a time, for TEN minutes, and it is taken once: a code cannot be sent in a second time,
and an answer that another browser began is none.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Final, NamedTuple

from sqlalchemy import text

from admin.people.sessions import token_hash
from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock

LASTS_MS: Final = 10 * 60_000
_BEGIN: Final = text("""
INSERT INTO console_oidc_logins (token_hash, state, nonce, verifier, next, ends_at)
VALUES (:hash, :state, :nonce, :verifier, :next, :ends)
ON CONFLICT (token_hash) DO UPDATE
   SET state = excluded.state, nonce = excluded.nonce, verifier = excluded.verifier,
       next = excluded.next, ends_at = excluded.ends_at""")
_TAKE: Final = text("""
DELETE FROM console_oidc_logins WHERE token_hash = :hash
RETURNING state, nonce, verifier, next, ends_at""")
_FORGET: Final = text("DELETE FROM console_oidc_logins WHERE ends_at <= :now")


class BegunLogin(NamedTuple):
    """One sign-in."""

    state: str
    nonce: str
    verifier: str
    next: str
    """Page to which the person goes afterwards."""


class OidcLogins:
    """Raises LedgerError."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def begin(self, cookie: str, wanted: str) -> BegunLogin:
        """Begins a sign-in of the browser with this cookie; an earlier one of it is forgotten."""
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        made = BegunLogin(state, nonce, verifier, wanted)
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            connection.execute(_FORGET, {"now": now})
            values = made._asdict() | {"state": token_hash(made.state)}
            connection.execute(
                _BEGIN, values | {"hash": token_hash(cookie), "ends": now + LASTS_MS}
            )
        return made

    def take(self, cookie: str, state: str) -> BegunLogin | None:
        """Returns this browser's sign-in and ends it; None if there is none, or the state is another's."""
        if not cookie or not state:
            return None
        with errors(), self._database.begin() as connection:
            row = connection.execute(_TAKE, {"hash": token_hash(cookie)}).first()
            now = self._clock(connection)
        if row is None or now >= row.ends_at:
            return None
        if not hmac.compare_digest(row.state, token_hash(state)):
            return None
        return BegunLogin(state, row.nonce, row.verifier, row.next)
