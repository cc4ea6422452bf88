"""Records who did what, to what, and why.

`admin.audit.chain` has the digests that show a removed or changed row. `console_audit_head` holds the last
number and digest under a seal: rows that are removed from the end are missed. A row is added only behind a
row under the same `console.secret`: a chain under two of them in turns could never be checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from admin.audit.chain import KEY_ACTION, AuditCheck, AuditKey, ChainCheck, JournalRow
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
SELECT {_COLUMNS} FROM console_audit
 WHERE number > :after AND number <= :last ORDER BY number LIMIT :limit""")  # noqa: S608
_READ: Final = 1_000
_LARGEST: Final = (1 << 63) - 1
_LONGEST_WHY: Final = LONGEST_REASON // 2


class AuditFilter(NamedTuple):
    """A condition on the rows of a page; an empty text is none."""

    before: int = 1 << 62
    person: str = ""
    action: str = ""
    subject: str = ""


class AuditRefused(Exception):
    """The audit takes no row, so that the action is refused; the text is the key of a sentence."""


class Journal:
    """Writes in the caller's transaction, so that an action and its row are one."""

    def __init__(self, database: Database, clock: Clock, secret: str = "") -> None:
        self._database = database
        self._clock = clock
        self._key = AuditKey(secret)

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
        """Adds one row in the caller's transaction. Returns its number. Raises AuditRefused if the last row
        is not under this process's `console.secret`."""
        number, before, seal = self._head(connection, locked=True)
        if not self._key.fits(number, before, seal):
            raise AuditRefused("audit.other_key")
        fields = (person, action, subject, lane, reason, address)
        return self._add(connection, number, before, fields).number

    def record_alone(self, **fields: str) -> int:
        """Adds one row in a transaction of its own, for an action outside of the database: before it.
        Takes the arguments of `record`. Raises LedgerError, AuditRefused."""
        with errors(), self._database.begin() as connection:
            return self.record(connection, **fields)

    def rekey(self, *, person: str, reason: str) -> JournalRow | None:
        """Begins the rows under this process's secret, once it was set or changed. Returns the key row; its
        reason has the faults of the rows before. None: all rows are under the secret already.
        Raises LedgerError; AuditRefused without a secret. Other actions wait until all rows are read."""
        if not self._key.has_secret:
            raise AuditRefused("audit.no_secret")
        chain, plain = ChainCheck(self._key), ChainCheck(AuditKey())
        with errors(), self._database.begin() as connection:
            head = self._head(connection, locked=True)
            while rows := self._forward(connection, chain.number):
                for row in rows:
                    chain.add(row)
                    plain.add(row)
            faults = chain.result(*head).faults
            if not faults:
                return None
            whole = not plain.result(*head).faults
            found = "whole, without a secret" if whole else "; ".join(faults)
            said = f"{reason[:_LONGEST_WHY]}; the rows before were: {found}"
            fields = (person, KEY_ACTION, chain.past, "", said, "")
            return self._add(connection, max(head[0], chain.number), chain.digest, fields)

    def page(self, asked: AuditFilter, limit: int) -> list[JournalRow]:
        """Returns rows, the newest first. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            found = connection.execute(_PAGE, {**asked._asdict(), "limit": limit}).all()
        return [JournalRow(*row) for row in found]

    def check(self) -> AuditCheck:
        """Reads the chain up to its last row of now. Returns the result. Raises LedgerError."""
        with errors(), self._database.begin() as connection:
            head = self._head(connection)
        chain = ChainCheck(self._key)
        while rows := self._rows(chain.number, head[0]):
            for row in rows:
                chain.add(row)
        return chain.result(*head)

    def _rows(self, after: int, last: int) -> Sequence[JournalRow]:
        with errors(), self._database.begin() as connection:
            return self._forward(connection, after, last)

    def _forward(
        self, connection: Connection, after: int, last: int = _LARGEST
    ) -> Sequence[JournalRow]:
        asked = {"after": after, "last": last, "limit": _READ}
        return [JournalRow(*row) for row in connection.execute(_FORWARD, asked)]

    def _add(
        self, connection: Connection, number: int, before: str, fields: tuple[str, ...]
    ) -> JournalRow:
        """Adds the row behind row `number`, whose digest is `before`; `fields`: from its person to its
        address."""
        person, action, subject, lane, reason, address = (
            one.replace("\0", "\ufffd") for one in fields
        )
        at, reason = self._clock(connection), reason[:LONGEST_REASON]
        row = JournalRow(number + 1, at, person, action, subject, lane, reason, address, "")
        row = row._replace(digest=self._key.digest(row, before))
        connection.execute(_ADD, row._asdict())
        seal = self._key.seal(row.number, row.digest)
        connection.execute(_MOVE, {"number": row.number, "digest": row.digest, "seal": seal})
        return row

    def _head(self, connection: Connection, locked: bool = False) -> tuple[int, str, str]:
        statement = _LOCKED_HEAD if locked and self._database.is_postgres else _HEAD
        row = connection.execute(statement).one()
        return row.number, row.digest, row.seal
