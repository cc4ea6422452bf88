"""Counts of open deliveries by lane, for a person who is about to change a policy."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from backends.sql.database import Database
from idempotency.error_mapping import errors
from message.states import OPEN
from policy.diff import Waiting

# A state at a time, so that each is found by its own partial index.
_OPEN: Final = "\nUNION ALL\n".join(
    f"""SELECT lane, state, coalesce(account, '') AS account,
       attempt - refusals AS spent, count(*) AS rows
  FROM deliveries WHERE state = '{state}' GROUP BY lane, state, account, spent"""  # noqa: S608
    for state in sorted(OPEN)
)


def waiting(database: Database) -> list[Waiting]:
    """Returns every group of open deliveries. Raises LedgerError."""
    with errors(), database.begin() as connection:
        return [Waiting(*row) for row in connection.execute(text(_OPEN))]
