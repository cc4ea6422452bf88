"""Builds the generator that the settings name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backends.settings import Settings, SettingsError
from backends.sql.database import Database, database_url
from idempotency.sql_ledger import clock_of
from producer.ids.generator import IdGenerator
from producer.ids.worker_numbers import WorkerNumbers


@contextmanager
def id_generator(settings: Settings) -> Iterator[IdGenerator]:
    """Yields a generator on the ledger's database, and gives its number back. Raises SettingsError."""
    try:
        url = database_url(settings.database.url, settings.base)
    except ValueError as exc:
        raise SettingsError(f"database.url: {exc}") from exc
    database = Database(url, pool_size=2)
    generator = IdGenerator(WorkerNumbers(database, clock_of(database)))
    try:
        yield generator
    finally:
        generator.close()
        database.close()
