"""Opens the ledger for one command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from backends.settings import Settings, SettingsError
from backends.sql.database import STATEMENT_MS, Database, database_url

if TYPE_CHECKING:
    from idempotency.sql_ledger import SqlLedger


def existing(settings: Settings, *, statement_ms: int = STATEMENT_MS) -> Database:
    """Returns the ledger's database; PostgreSQL ends a statement after `statement_ms`. Raises
    SettingsError; creates no missing SQLite file."""
    try:
        url = database_url(settings.database.url, settings.base)
    except ValueError as exc:
        raise SettingsError(f"database.url: {exc}") from exc
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise SettingsError(f"there is no ledger at {url.database}; run `hongyan db upgrade`")
    return Database(url, pool_size=1, statement_ms=statement_ms)


@contextmanager
def opened_ledger(settings: Settings) -> Iterator[SqlLedger]:
    """Yields the ledger, and closes it. Raises SettingsError, LedgerError; makes no missing SQLite file."""
    from idempotency.sql_ledger import open_ledger

    existing(settings).close()  # raises before `open_ledger` makes a missing SQLite file
    with closing(open_ledger(settings)) as ledger:
        yield ledger
