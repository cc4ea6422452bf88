"""Counts of open deliveries, where the database cannot give them in time."""

from __future__ import annotations

from contextlib import closing

import pytest

from backends.settings import DatabaseSettings, Settings
from backends.sql import database as sql
from backends.sql.database import Database, database_url
from idempotency.ledger import LedgerUnavailable
from idempotency.open_counts import waiting
from tests.harness.databases import upgraded


def test_a_sqlite_file_that_another_writes_is_slow_and_not_the_count(
    sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    with closing(Database(database_url(sqlite_database))) as database:
        assert waiting(database, within_ms=1) == []
        with database.begin(), pytest.raises(LedgerUnavailable, match="took too long"):
            waiting(database, within_ms=1)
