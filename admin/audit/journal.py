"""Records who did what, to what, and why.

Each row's digest covers the row and the digest before it: a removed or changed row breaks the chain.
`console_audit_head` holds the last number and digest under a seal: rows that are removed from the end are
missed. With `console.secret` both are HMAC-SHA256, which nobody without the key can make anew.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from idempotency.transactions import Clock

LONGEST_REASON: Final = 1_000
_COLUMNS: Final = "number, at, person, action, subject, lane, reason, address, digest"
_HEAD: Final = text("SELECT number, digest, seal FROM console_audit_head WHERE id = 1")
_LOCKED_HEAD: Final = text(
    "SELECT number, digest, seal FROM console_audit_head WHERE id = 1 FOR UPDATE"
)
_ADD: Final = text(f"""
INSERT INTO console_audit ({_COLUMNS})
VALUES (:number, :at, :person, :action, :subject, :lane, :reason, :address, :digest)""")  # noqa: S608
_MOVE: Final = text(
    "UPDATE console_audit_head SET number = :number, digest = :digest, seal = :seal WHERE id = 1"
)
_PAGE: Final = text(f"""
SELECT {_COLUMNS} FROM console_audit
 WHERE number < :before AND (:person = '' OR person = :person)
   AND (:action = '' OR action = :action) AND (:subject = '' OR subject = :subject)
 ORDER BY number DESC LIMIT :limit""")  # noqa: S608
_FORWARD: Final = text(f"""
SELECT {_COLUMNS} FROM console_audit WHERE number > :after ORDER BY number LIMIT :limit""")  # noqa: S608
_READ: Final = 1_000


class JournalRow(NamedTuple):
    """One action. The time is epoch milliseconds."""

    number: int
    at: int
    person: str
    action: str
    """A code, as `reveal` or `user.role`."""
    subject: str
    lane: str
    reason: str
    address: str
    digest: str


class AuditFilter(NamedTuple):
    """A condition on the rows of a page; an empty text is none."""

    before: int = 1 << 62
    person: str = ""
    action: str = ""
    subject: str = ""


class AuditCheck(NamedTuple):
    """The result of a check of the whole chain."""

    rows: int
    faults: tuple[str, ...]
    """Sentences; none: the chain is whole."""


class Journal:
    """Writes in the caller's transaction, so that an action and its row are one."""

    def __init__(self, database: Database, clock: Clock, secret: str = "") -> None:
        self._database = database
        self._clock = clock
        self._key = hashlib.sha256(b"hongyan audit\0" + secret.encode()).digest() if secret else b""

    def record(
        self,
        connection: Connection,
        *,
        person: str,
        action: str,
        subject: str = "",
        reason: str = "",
        lane: str = "",
        address: str = "",
    ) -> int:
        """Adds one row in the caller's transaction. Returns its number."""
        number, before, _seal = self._head(connection, locked=True)
        fields = (person, action, subject, lane, reason[:LONGEST_REASON], address)
        clean = (one.replace("\0", "\ufffd") for one in fields)
        row = JournalRow._make((number + 1, self._clock(connection), *clean, ""))
        row = row._replace(digest=self._digest(row, before))
        connection.execute(_ADD, row._asdict())
        moved = {"number": row.number, "digest": row.digest}
        connection.execute(_MOVE, moved | {"seal": self._seal(row.number, row.digest)})
        return row.number

    def record_alone(self, **fields: str) -> int:
        """Adds one row in a transaction of its own, for an action outside of the database: before it.
        Takes the arguments of `record`. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            return self.record(connection, **fields)

    def page(self, asked: AuditFilter, limit: int) -> list[JournalRow]:
        """Returns rows, the newest first. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            found = connection.execute(_PAGE, {**asked._asdict(), "limit": limit}).all()
        return [JournalRow(*row) for row in found]

    def check(self) -> AuditCheck:
        """Reads the chain up to its last row of now. Returns its faults. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            last, last_digest, seal = self._head(connection)
        faults: list[str] = []
        count, number, before = 0, 0, ""
        while rows := [row for row in self._forward(number) if row.number <= last]:
            for row in rows:
                faults += self._faults(row, number, before)
                number, before = row.number, row.digest
            count += len(rows)
        if number < last:
            faults.append(f"removed: {number + 1} to {last}, at the end")
        elif before != last_digest:
            faults.append(f"changed: {number}")
        if seal != (self._seal(last, last_digest) if last else ""):
            faults.append("changed: the seal of the last row is wrong")
        return AuditCheck(count, tuple(faults))

    def _faults(self, row: JournalRow, last: int, before: str) -> list[str]:
        if row.number != last + 1:
            gone = f"{last + 1}" if row.number == last + 2 else f"{last + 1} to {row.number - 1}"
            return [f"removed: {gone}"]
        if not hmac.compare_digest(row.digest, self._digest(row, before)):
            return [f"changed: {row.number}, or the digest of the row before it"]
        return []

    def _forward(self, after: int) -> Sequence[JournalRow]:
        with errors(), self._database.begin() as connection:
            found = connection.execute(_FORWARD, {"after": after, "limit": _READ}).all()
        return [JournalRow(*row) for row in found]

    def _head(self, connection: Connection, locked: bool = False) -> tuple[int, str, str]:
        statement = _LOCKED_HEAD if locked and self._database.is_postgres else _HEAD
        row = connection.execute(statement).one()
        return row.number, row.digest, row.seal

    def _digest(self, row: JournalRow, before: str) -> str:
        return self._signed(msgspec.json.encode([before, *row[:-1]]))

    def _seal(self, number: int, digest: str) -> str:
        return self._signed(msgspec.json.encode(["head", number, digest]))

    def _signed(self, content: bytes) -> str:
        if not self._key:
            return hashlib.sha256(content).hexdigest()
        return hmac.new(self._key, content, "sha256").hexdigest()
