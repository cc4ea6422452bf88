"""A ledger that a newer Hongyan made is refused with one sentence, and not touched."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.hongyan.conftest import Run

NEWER = "v9999"


def test_a_newer_ledger_is_refused_by_name(hongyan: Run, folder: Path) -> None:
    assert hongyan("db", "upgrade").code == 0
    with sqlite3.connect("hongyan.db") as database:
        database.execute("UPDATE hongyan_schema SET version_num = ?", (NEWER,))
    database.close()
    for command in (("db", "upgrade"), ("status",)):
        ended = hongyan(*command)
        assert ended.code == 1, command
        assert ended.err.startswith("the database was made by a newer Hongyan (version v9999, ")
        assert ended.err.endswith("name another database in database.url")
    with sqlite3.connect("hongyan.db") as database:
        (kept,) = database.execute("SELECT version_num FROM hongyan_schema").fetchone()
    database.close()
    assert kept == NEWER
