"""Stores and places receipts on every database: a statement stores a batch, a transaction places one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

from backends.sql.database import Database
from idempotency.error_mapping import connected
from idempotency.lines import Line, Lines
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.outcomes.statements import announcer
from idempotency.payload_cipher import PayloadCipher
from idempotency.receipts.rules import (
    CandidateRow,
    Receipt,
    ReceiptVerdict,
    StoredReceipt,
    judge,
    kept,
)
from message.states import OPEN, State

BATCH: Final = 500
"""Receipts that one pass places at most."""
_FIRST_WAIT_MS, _LONGEST_WAIT_MS = 1_000, 6 * 3_600_000
_WAITING: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM receipts WHERE next_at IS NOT NULL LIMIT {}) AS open"
)


class ReceiptMove(NamedTuple):
    """One row to write, if it still has this version."""

    key: str
    day: int
    version: int
    state: str
    reason: str | None
    provider_id: str | None


class Closing(NamedTuple):
    """One receipt to write: its key, its result, the wait before the next look (None: no next look), and
    its delivery as far as it is known."""

    account: str
    provider_id: str
    call_key: str
    receivers: str
    said: str
    applied: str | None
    wait_ms: int | None
    delivery_key: str | None


class Pass(NamedTuple):
    """The result of one pass."""

    verdicts: Sequence[ReceiptVerdict]
    """Of receipts that were placed for good."""
    waiting: int
    """Receipts of this pass that wait on."""
    more: bool
    """The batch was full: there may be more due now."""


class Receipts(ABC):
    """The receipts of one database. Every method raises LedgerError and nothing else of the database's."""

    def __init__(
        self, database: Database, sealer: PayloadCipher, lines: Lines, announced: AnnouncedLanes
    ) -> None:
        self._announce = announcer(database, announced)
        self._database = database
        self._sealer = sealer
        self._lines = lines

    def store(self, receipts: Sequence[Receipt]) -> int:
        """Stores them durably, in one statement. Returns how many were new. A repeat is harmless."""
        rows = {row.key: row for row in map(kept, receipts)}
        return self._insert([rows[key] for key in sorted(rows)]) if rows else 0

    def match(self) -> Pass:
        """Places receipts that are due: writes rows and receipts in one transaction."""
        with self._transaction() as connection:
            due, now = self._due(connection, BATCH)
            if not due:
                return Pass((), 0, False)
            verdicts = judge(due, self._candidates(connection, due), self._sealer)
            lines = _lines_ended(verdicts)
            self._lines.lock(connection.execute, lines)
            moved = self._move(connection, moves(verdicts))
            self._lines.wake(connection.execute, lines, now)
            self._announce(connection.execute, moved, now)
            ended = [v for v in verdicts if v.applied and (not v.moves or _key(v) in moved)]
            self._close(connection, _closings(verdicts, ended, now))
        return Pass(ended, len(due) - len(ended), len(due) == BATCH)

    @abstractmethod
    def forget(self, keep_ms: int) -> tuple[int, int]:
        """Deletes a batch of receipts older than `keep_ms`. Returns (deleted, of these never placed)."""

    def waiting(self, limit: int) -> int:
        """Returns how many receipts wait to be placed, counted up to `limit`."""
        with connected(self._database) as connection:
            return int(connection.execute(_WAITING.format(int(limit))).fetchone()[0])

    @abstractmethod
    def _insert(self, rows: Sequence[StoredReceipt]) -> int: ...

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]: ...

    @abstractmethod
    def _due(self, connection: Any, limit: int) -> tuple[list[StoredReceipt], int]:
        """Returns the due receipts that no concurrent pass holds, and the database's now."""

    @abstractmethod
    def _candidates(self, connection: Any, due: Sequence[StoredReceipt]) -> list[CandidateRow]:
        """Returns every row that one of the receipts names."""

    @abstractmethod
    def _move(self, connection: Any, rows: Sequence[ReceiptMove]) -> set[str]:
        """Writes the rows that are still as they were read. Returns their delivery keys."""

    @abstractmethod
    def _close(self, connection: Any, rows: Sequence[Closing]) -> None: ...


def moves(verdicts: Sequence[ReceiptVerdict]) -> list[ReceiptMove]:
    """Returns one write per row, with the state after its last receipt."""
    rows: dict[str, ReceiptMove] = {}
    for verdict in verdicts:
        row, receipt = verdict.row, verdict.receipt
        if row is None or verdict.state is None or not verdict.moves:
            continue
        reason = receipt.code if verdict.state is State.UNDELIVERED else None
        rows[row.key] = ReceiptMove(
            row.key, row.day, row.version, verdict.state, reason, receipt.provider_id or None
        )
    return [rows[key] for key in sorted(rows)]


def _lines_ended(verdicts: Sequence[ReceiptVerdict]) -> set[Line]:
    """Returns the lines in which a receipt settles an open row."""
    rows = [v.row for v in verdicts if v.row is not None and v.moves]
    return {
        Line(row.lane, row.ordering_key)
        for row in rows
        if row.state in OPEN and row.ordering_key is not None
    }


def wait_ms(age_ms: int) -> int:
    """Returns the wait before the next look: a quarter of the receipt's age, within bounds."""
    return min(max(_FIRST_WAIT_MS, age_ms // 4), _LONGEST_WAIT_MS)


def _closings(
    verdicts: Sequence[ReceiptVerdict], ended: Sequence[ReceiptVerdict], now: int
) -> list[Closing]:
    done = {verdict.receipt.key for verdict in ended}
    return [
        Closing(*v.receipt.key, v.applied, None, _key(v))
        if v.receipt.key in done
        else Closing(*v.receipt.key, None, wait_ms(now - v.receipt.received_at), _key(v))
        for v in verdicts
    ]


def _key(verdict: ReceiptVerdict) -> str | None:
    return verdict.row.key if verdict.row else None
