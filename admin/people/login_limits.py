"""Limits on failed logins, per name and per address, in the database: all consoles count together.

An attempt is counted before the password is checked, and forgotten if it was right, so that attempts at the
same time cannot pass the limit together.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock

WINDOW_MS: Final = 15 * 60_000
PER_NAME: Final = 10
"""Failed logins of one name in the window; then it waits for the window's end."""
PER_ADDRESS: Final = 50
_COUNT: Final = text("""
INSERT INTO console_attempts (subject, failures, since) VALUES (:subject, 1, :now)
ON CONFLICT (subject) DO UPDATE
   SET failures = CASE WHEN console_attempts.since <= :old THEN 1
                       ELSE console_attempts.failures + 1 END,
       since = CASE WHEN console_attempts.since <= :old THEN :now ELSE console_attempts.since END
RETURNING failures""")
_FORGET: Final = text("DELETE FROM console_attempts WHERE subject = :subject")
_TAKE_BACK: Final = text(
    "UPDATE console_attempts SET failures = failures - 1 WHERE subject = :subject AND failures > 0"
)
_FORGET_OLD: Final = text("DELETE FROM console_attempts WHERE since <= :old")


class LoginLimits:
    """Counts attempts. Every method is one transaction and raises LedgerError."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def admits(self, name: str, address: str) -> bool:
        """Counts one attempt. Returns whether it may be tried."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            asked = {"now": now, "old": now - WINDOW_MS}
            connection.execute(_FORGET_OLD, asked)
            counts = [
                (int(connection.execute(_COUNT, {**asked, "subject": subject}).scalar() or 0), most)
                for subject, most in ((_name(name), PER_NAME), (_address(address), PER_ADDRESS))
            ]
        return all(count <= most for count, most in counts)

    def succeeded(self, name: str, address: str) -> None:
        """Forgets the failures of a name, and takes this attempt back from its address."""
        with errors(), self._database.begin() as connection:
            connection.execute(_FORGET, {"subject": _name(name)})
            connection.execute(_TAKE_BACK, {"subject": _address(address)})


def _name(name: str) -> str:
    return f"name:{name[:200].lower()}"


def _address(address: str) -> str:
    return f"address:{address[:100]}"
