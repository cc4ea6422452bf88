"""One connection to the spool's file: durable commits, a size limit, and errors by their cause.

A transaction holds the gate's lock together with those of other connections. A salvage replaces the file
while it holds the gate alone; connections then open the new file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from hongyan_client.spool.errors import SpoolAway, SpoolDamaged, SpoolError, SpoolFull
from hongyan_client.spool.locks import FileLock
from hongyan_client.spool.schema import STATEMENTS, VERSION

PAGE_BYTES: Final = 4_096
BUSY_MS: Final = 10_000
"""Longest wait for another process's transaction."""
WAL_BYTES: Final = 4 << 20
CHECKPOINT_PAGES: Final = 256
"""Pages of the WAL at which they move into the file: a full disk leaves little room for both."""
_MASK: Final = 0xFF
_LARGEST_PAGES: Final = 512
"""Pages of the largest record that Kafka takes, and some."""
_TEXT: Final = partial(str, encoding="utf-8", errors="replace")
"""Reads texts whose bytes changed, too: their row's checksum tells it, and other rows go on."""
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})


class SpoolFile:
    """A connection of one thread at a time; `transaction` serialises."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._mutex = threading.Lock()
        self._gate = FileLock(gate_path(path))
        # Under the mutex.
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection for statements that only read. Raises SpoolError."""
        with self._mutex, self._gate.shared(), self._errors():
            yield self._current()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Yields the connection in a transaction, which is on disk once the block has ended. Raises
        SpoolError."""
        with self._mutex, self._gate.shared(), self._errors():
            connection = self._current()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Closes the connection; idempotent."""
        with self._mutex:
            self._drop()
            self._gate.close()

    def _current(self) -> sqlite3.Connection:
        """Returns the connection to the file that the path names now."""
        try:
            inode = self.path.stat().st_ino
        except FileNotFoundError as exc:
            raise SpoolAway(f"the spool's file {self.path} is gone; open the spool again") from exc
        if self._connection is None or inode != self._inode:
            self._drop()
            self._connection = connect(self.path, self._max_bytes)
            self._inode = inode
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                pass  # of a damaged file
            self._connection = None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            error = judged(exc, self.path, self._is_at_limit())
            if not isinstance(error, SpoolFull):
                self._drop()  # SQLite goes on to fail after the disk is well again
            raise error from exc
        except OSError as exc:
            raise SpoolAway(f"the spool {self.path} cannot be used: {exc.strerror}") from exc

    def _is_at_limit(self) -> bool:
        """Whether one more record of the greatest size would not fit into the limit."""
        if self._connection is None:
            return False
        try:
            count = self._connection.execute("PRAGMA page_count").fetchone()[0]
            free = self._connection.execute("PRAGMA freelist_count").fetchone()[0]
        except sqlite3.Error:
            return False
        return bool((count - free + _LARGEST_PAGES) * PAGE_BYTES > self._max_bytes)


def gate_path(path: Path) -> Path:
    """Returns the lock file of a spool file."""
    return path.with_name("gate.lock")


def connect(path: Path, max_bytes: int) -> sqlite3.Connection:
    """Returns a connection whose commits are on disk when they return. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        path, timeout=BUSY_MS / 1_000, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = _TEXT
    try:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
        connection.execute(f"PRAGMA max_page_count = {max(16, max_bytes // PAGE_BYTES)}")
    except BaseException:
        connection.close()
        raise
    return connection


def created(path: Path) -> None:
    """Makes a file with the tables, readable by its owner alone, if there is none. Raises sqlite3.Error."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    connection = connect(path, 1 << 40)
    try:
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            for statement in STATEMENTS:
                connection.execute(statement)
        connection.execute("COMMIT")
    finally:
        connection.close()
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Puts the folder's entries on disk."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def judged(exc: sqlite3.Error, path: Path, at_limit: bool) -> SpoolError:
    """Returns the error of ours."""
    code = getattr(exc, "sqlite_errorcode", 0) & _MASK
    if code in _DAMAGE:
        return SpoolDamaged(f"the spool's file {path} is damaged ({exc})")
    if code == sqlite3.SQLITE_FULL and at_limit:
        return SpoolFull(
            f"the spool {path} has reached its size limit; let Kafka take records, or raise max_bytes"
        )
    if code == sqlite3.SQLITE_FULL:
        return SpoolAway(f"the disk of the spool {path} is full; make room")
    return SpoolAway(f"the spool {path} cannot be used ({exc}); see to its disk")
