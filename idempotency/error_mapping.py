"""Maps the database's errors to the ledger's, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from backends.sql.database import Database
from backends.sql.errors import SqlAway, SqlNoSchema, SqlPoolBusy, SqlTimeout
from idempotency.ledger import LedgerOutdated, LedgerUnavailable

OUTDATED = "the database has no ledger of this version: run `hongyan db upgrade`"


@contextmanager
def errors() -> Iterator[None]:
    """Maps SqlAway and SqlNoSchema to LedgerUnavailable and LedgerOutdated; other errors pass unchanged."""
    try:
        yield
    except SqlPoolBusy as exc:
        raise LedgerUnavailable(f"no connection to the ledger's database is free: {exc}") from exc
    except SqlTimeout as exc:
        raise LedgerUnavailable(f"the ledger's database took too long: {exc}") from exc
    except SqlAway as exc:
        raise LedgerUnavailable(f"the ledger's database is away: {exc}") from exc
    except SqlNoSchema as exc:
        raise LedgerOutdated(f"{OUTDATED} ({exc})") from exc


@contextmanager
def connected(database: Database) -> Iterator[Any]:
    """Yields a driver connection whose failures are the ledger's."""
    with errors(), database.connection() as connection:
        yield connection
