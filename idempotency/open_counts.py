"""Counts of open deliveries by lane, for a person who is about to change a policy."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from backends.sql.database import Database
from backends.sql.errors import SqlTimeout
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerUnavailable
from message.states import OPEN
from policy.diff import Waiting

# A state at a time, so that each is found by its own partial index.
_OPEN: Final = "\nUNION ALL\n".join(
    f"""SELECT lane, state, coalesce(account, '') AS account,
       attempt - refusals AS spent, count(*) AS rows
  FROM deliveries WHERE state = '{state}' GROUP BY lane, state, account, spent"""  # noqa: S608
    for state in sorted(OPEN)
)


_WITHIN: Final = text("SELECT set_config('statement_timeout', :ms, true)")
"""For the transaction alone."""


class CountTooSlow(Exception):
    """The database needed longer than it was given."""


def waiting(database: Database, within_ms: int | None = None) -> list[Waiting]:
    """Returns every group of open deliveries. Raises LedgerError, and CountTooSlow if PostgreSQL needs
    longer than `within_ms`."""
    try:
        with errors(), database.begin() as connection:
            if within_ms is not None and database.is_postgres:
                connection.execute(_WITHIN, {"ms": str(within_ms)})
            return [Waiting(*row) for row in connection.execute(text(_OPEN))]
    except LedgerUnavailable as exc:
        if within_ms is not None and database.is_postgres and isinstance(exc.__cause__, SqlTimeout):
            raise CountTooSlow(f"it took longer than {within_ms} ms") from exc
        raise
