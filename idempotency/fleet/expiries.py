"""Deliveries of a lane that wait in the ledger, by the time at which they expire.

A pause stops no TTL. The count reads the index of waiting rows up to a bound, however much waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import text

from idempotency.transactions import LedgerPart

MOST_COUNTED: Final = 1_000
"""Rows of one lane that are looked at."""
SOON_MS: Final = 300_000
LATER_MS: Final = 3_600_000
WAITING: Final = """
SELECT count(*) AS rows, min(expires_at) AS first,
       coalesce(sum(CASE WHEN expires_at <= :soon THEN 1 ELSE 0 END), 0) AS soon,
       coalesce(sum(CASE WHEN expires_at <= :later THEN 1 ELSE 0 END), 0) AS later
  FROM (SELECT d.expires_at FROM deliveries AS d
         WHERE d.state = 'RETRY' AND d.lane = :lane
         ORDER BY {least}(d.next_at, d.expires_at) LIMIT :bound) AS waiting"""


class LaneExpiries(NamedTuple):
    """The first waiting deliveries of a lane. Times are epoch milliseconds."""

    waiting: int
    """MOST_COUNTED means: so many or more."""
    first_at: int | None
    """Expiry of the first one among them; None: nothing waits."""
    soon: int
    """Number that expires within five minutes."""
    later: int
    """Number that expires within an hour."""

    @property
    def more(self) -> bool:
        """Whether there may be more than were counted."""
        return self.waiting >= MOST_COUNTED


class Expiries(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def of(self, lanes: Sequence[str]) -> dict[str, LaneExpiries]:
        """Returns the waiting deliveries of each lane."""
        statement = text(WAITING.format(least="least" if self._database.is_postgres else "min"))
        found = {}
        with self._begin() as (connection, now):
            times = {"soon": now + SOON_MS, "later": now + LATER_MS, "bound": MOST_COUNTED}
            for lane in lanes:
                row = connection.execute(statement, {"lane": lane, **times}).one()
                found[lane] = LaneExpiries(row.rows, row.first, row.soon, row.later)
        return found
