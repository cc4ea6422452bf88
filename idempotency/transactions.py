"""Transactions of the ledger's parts, each with the database's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection

from backends.sql.database import Database
from idempotency.error_mapping import errors

Clock = Callable[[Connection], int]
"""Reads the database's time, epoch milliseconds."""


class LedgerPart:
    """Base of the ledger's parts. Every transaction raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.clock = clock
        self._database = database

    def now_ms(self) -> int:
        """Returns the database's time, epoch milliseconds."""
        with self._reading() as connection:
            return self.clock(connection)

    @contextmanager
    def _begin(self) -> Iterator[tuple[Connection, int]]:
        """Yields the connection of one transaction, and the database's time at its start."""
        with errors(), self._database.begin() as connection:
            yield connection, self.clock(connection)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Yields a connection for reads that need no common transaction."""
        with errors(), self._database.reading() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Yields the connection of one transaction that needs no time, and so one round trip less."""
        with errors(), self._database.begin() as connection:
            yield connection
