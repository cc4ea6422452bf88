"""Receivers that a run has met, in a temporary SQLite file: memory stays flat for any number of them."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

_HASH_BYTES: Final = 16
_SETTINGS: Final = (
    "PRAGMA journal_mode = OFF",
    "PRAGMA synchronous = OFF",
    "PRAGMA cache_size = -8192",
    "CREATE TABLE met (receiver BLOB PRIMARY KEY) WITHOUT ROWID",
)


class MetReceivers:
    """For one thread. The file is gone with the process: a run that goes on reads its rows again."""

    def __init__(self, folder: str | None = None) -> None:
        handle, name = tempfile.mkstemp(prefix="hongyan-campaign-", suffix=".db", dir=folder)
        os.close(handle)
        self._database = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
        for statement in _SETTINGS:
            self._database.execute(statement)
        Path(name).unlink()  # the open file stays readable, and no kill leaves it behind

    def add(self, receiver: str) -> bool:
        """Returns whether this one is new."""
        digest = sha256(receiver.encode()).digest()[:_HASH_BYTES]
        added = self._database.execute("INSERT OR IGNORE INTO met VALUES (?)", (digest,))
        return added.rowcount > 0

    def close(self) -> None:
        """Gives the file up."""
        self._database.close()
