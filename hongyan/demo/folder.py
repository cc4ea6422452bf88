"""The folder of `hongyan demo`: ledger, logs and configuration of its last run.

A mark in the ledger's file says that the demo made it. Only a marked folder is cleared, and only its ledger
is opened by `hongyan console --demo`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from hongyan.dev.environment import locked
from hongyan.errors import NotDone, WrongUsage

FOLDER: Final = Path("hongyan-demo")
LEDGER: Final = "ledger.db"
MARK: Final = 0x48596465
"""SQLite's application_id of a ledger that the demo made."""
_MADE: Final = ("ledger.db*", "hongyan.toml", "provider.jsonl", "*.log", "*.pid")
_LOCK: Final = "lock"


@contextmanager
def new_folder(folder: Path, *, again: bool) -> Iterator[Path]:
    """Yields the folder for a new run, locked. `again`: the files of the demo's last run are removed first.
    Raises WrongUsage for a folder with other files, NotDone for one in use."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise WrongUsage(f"{folder}: {exc.strerror}; give --keep DIR") from exc
    if any(one.name != _LOCK for one in folder.iterdir()) and not (again and is_marked(folder)):
        raise WrongUsage(
            f"{folder}: is not empty, and not of a demo; give --keep DIR"
            if again
            else f"--keep {folder}: is not empty; give a new folder"
        )
    with locked(folder, "hongyan demo"):
        for pattern in _MADE:
            for file in folder.glob(pattern):
                file.unlink()
        yield folder


@contextmanager
def last_folder(folder: Path) -> Iterator[Path]:
    """Yields the folder of the demo's last run, locked. Raises NotDone for any other folder."""
    if not is_marked(folder):
        raise NotDone(
            f"{folder} has no ledger of `hongyan demo`; run it first, or name its --keep folder "
            "with --folder"
        )
    with locked(folder, "hongyan demo"):
        yield folder


def set_mark(folder: Path) -> None:
    """Marks the folder's ledger as made by the demo."""
    with closing(sqlite3.connect(folder / LEDGER)) as connection:
        connection.execute(f"PRAGMA application_id = {MARK}")


def is_marked(folder: Path) -> bool:
    """Returns whether the demo made the folder's ledger."""
    file = folder / LEDGER
    if not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as one:
            return bool(one.execute("PRAGMA application_id").fetchone()[0] == MARK)
    except sqlite3.Error:
        return False
