"""Deliveries in doubt, for a person: one lane's, in the order in which recovery asks about them.

The order is that of the index `deliveries_asked`. Nothing here writes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import text

from idempotency.recovery.contract import OwnerDeath, owner_death_of
from idempotency.transactions import LedgerPart

_PAGE: Final = text("""
SELECT d.delivery_key, d.day, d.version, d.message_id, d.biz_id, d.lane, d.state, d.reason, d.attempt,
       d.account, d.provider_id, d.call_key, d.called_at, d.last_called_at, d.owner, d.created_at,
       d.updated_at, d.next_at, d.expires_at, coalesce(d.next_at, d.updated_at) AS asked_at
  FROM deliveries AS d
 WHERE d.state = 'UNKNOWN' AND d.lane = :lane
   AND coalesce(d.next_at, d.updated_at) >= :at
   AND (coalesce(d.next_at, d.updated_at) > :at OR d.delivery_key > :after)
 ORDER BY coalesce(d.next_at, d.updated_at), d.delivery_key LIMIT :limit""")


class DoubtPlace(NamedTuple):
    """The last row of a page, by which the next one begins."""

    at: int
    key: str


class DoubtRow(NamedTuple):
    """One delivery in doubt. Times are epoch milliseconds by the database's clock."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    lane: str
    reason: str
    attempt: int
    account: str
    provider_id: str
    call_key: str
    called_at: int
    """Start of the last call in doubt."""
    owner: str
    updated_at: int
    """Since when it is in doubt."""
    expires_at: int
    asked_at: int
    """When its provider is asked next, or was due to be."""
    death: OwnerDeath | None
    """Of the process that made the call."""

    @property
    def place(self) -> DoubtPlace:
        """The row's place in the order."""
        return DoubtPlace(self.asked_at, self.delivery_key)


class DoubtList(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def page(self, lane: str, after: DoubtPlace | None, limit: int) -> list[DoubtRow]:
        """Returns rows behind the place, those that are asked about first before others."""
        at, key = after or DoubtPlace(-1, "")
        asked = {"lane": lane, "at": at, "after": key, "limit": limit}
        with self._reading() as connection:
            found = connection.execute(_PAGE, asked).all()
        return [
            DoubtRow(
                row.delivery_key,
                row.message_id,
                row.biz_id,
                row.lane,
                row.reason or "",
                row.attempt,
                row.account or "",
                row.provider_id or "",
                row.call_key or "",
                max(row.called_at or 0, row.last_called_at or 0) or row.created_at,
                row.owner,
                row.updated_at,
                row.expires_at,
                row.asked_at,
                owner_death_of(row, row.state),
            )
            for row in found
        ]
