"""Receipts of one delivery, for a person; nothing here writes."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.error_mapping import errors

MOST: Final = 50
_OF_DELIVERY: Final = text("""
SELECT account, state, code, at, received_at, applied FROM receipts
 WHERE delivery_key = :key ORDER BY at LIMIT :limit""")


class ReceiptShown(NamedTuple):
    """One receipt. Times are epoch milliseconds."""

    account: str
    state: str
    code: str | None
    at: int
    """By the provider's clock."""
    received_at: int
    applied: str | None
    """Its effect: applied, repeated, contradicted, expired; None: it waits."""


def receipts_of(database: Database, delivery_key: str) -> list[ReceiptShown]:
    """Returns the delivery's receipts, oldest first; MOST at most. Raises LedgerError."""
    with errors(), database.reading() as connection:
        asked = {"key": delivery_key, "limit": MOST}
        return [ReceiptShown(*row) for row in connection.execute(_OF_DELIVERY, asked)]
