"""Reads what a damaged file still gives, into a new file. The damaged one is kept beside it.

A damaged page costs the rows of that page: each other row is found by its number. If the file's first page
is damaged, that of an empty spool takes its place: all spools of a version have their tables in the same
pages.

Ids of the new file go on behind all of the damaged one: a process may still hold outcomes of those.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hongyan_client.spool.file import PAGE_BYTES, connect, created, sync_folder
from hongyan_client.spool.rows import SpooledRow
from hongyan_client.spool.schema import COLUMNS

log = logging.getLogger("hongyan_client")

_SUFFIXES: Final = ("", "-wal")
_FRESH: Final = "salvage.db"
_COPY: Final = "salvage"
_ID_GAP: Final = 100_000
"""Ids that are left out: more than processes have committed and not noted yet."""
_MOST_IDS: Final = 1 << 62
_UNLIMITED: Final = 1 << 40
_MOST_PROBES: Final = 5_000_000
_SIZE_AT: Final = 28
"""Place of the file's size, in pages, in the first page."""
_FREELIST_AT: Final = 32
_BATCH: Final = 500
_INSERT: Final = f"INSERT OR IGNORE INTO records ({COLUMNS}) VALUES ({', '.join('?' * 12)})"  # noqa: S608 - ours


class Salvage(NamedTuple):
    """The result of mending a damaged file."""

    saved: int
    damaged_file: Path

    @property
    def text(self) -> str:
        """A sentence for people."""
        return (
            f"the spool's file was damaged: {self.saved} of its records could be read and wait on; "
            f"the damaged file is {self.damaged_file}"
        )


def fault_of(path: Path) -> str:
    """Returns what SQLite's check finds wrong; an empty text for a sound file. Raises sqlite3.Error for a
    disk that does not work."""
    try:
        connection = connect(path, _UNLIMITED)
    except sqlite3.DatabaseError as exc:
        if isinstance(exc, sqlite3.OperationalError):
            raise
        return str(exc)
    try:
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
        connection.execute("SELECT count(*) FROM records").fetchone()
        return "" if found == "ok" else found
    except sqlite3.DatabaseError as exc:
        return str(exc)
    finally:
        connection.close()


def salvaged(path: Path, now_ms: int, last_id: int) -> Salvage:
    """Replaces a damaged file by one with its readable records. `last_id`: the greatest id that a process
    has noted. Call it with the gate alone."""
    fresh = path.with_name(_FRESH)
    _remove(fresh)
    with _copied(path) as copy:
        created(fresh)
        saved = _transfer(copy, fresh)
        if not saved:
            _renew_first_page(copy, fresh)
            saved = _transfer(copy, fresh)
        _continue_ids(fresh, (last_id, _last_id_of(copy)))
    _settle_file(fresh)
    return _exchanged(path, path.with_name(f"damaged-{now_ms}.db"), saved)


def finished(path: Path, now_ms: int) -> Salvage | None:
    """Ends an exchange that a crash cut off after the damaged file had left its place. Returns None if
    there is none. Call it with the gate alone."""
    fresh = path.with_name(_FRESH)
    if path.exists() or not fresh.exists():
        return None
    earlier = sorted(path.parent.glob("damaged-*.db"))
    damaged = earlier[-1] if earlier else path.with_name(f"damaged-{now_ms}.db")
    return _exchanged(path, damaged, _count_of(fresh))


def _exchanged(path: Path, damaged: Path, saved: int) -> Salvage:
    """Puts the new file in the place of the damaged one. `finished` goes on after a crash within."""
    for suffix in _SUFFIXES:
        if (source := Path(f"{path}{suffix}")).exists():
            source.replace(f"{damaged}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    path.with_name(_FRESH).replace(path)
    sync_folder(path.parent)
    result = Salvage(saved, damaged)
    log.error("spool: %s", result.text)
    return result


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """Yields a copy of the file. Its folder has one name, so that a killed salvage leaves no second one."""
    folder = path.with_name(_COPY)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        copy = folder / path.name
        for suffix in _SUFFIXES:
            if (source := Path(f"{path}{suffix}")).exists():
                shutil.copyfile(source, f"{copy}{suffix}")
        yield copy
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _transfer(source: Path, target: Path) -> int:
    """Copies the readable rows. Returns how many."""
    try:
        reading = connect(source, _UNLIMITED)
    except sqlite3.Error:
        return 0
    writing = connect(target, _UNLIMITED)
    try:
        writing.execute("BEGIN IMMEDIATE")
        for row in _readable(reading):
            writing.execute(_INSERT, row)
        _copy_counters(reading, writing)
        writing.execute("COMMIT")
        return int(writing.execute("SELECT count(*) FROM records").fetchone()[0])
    finally:
        writing.close()
        reading.close()


def _readable(connection: sqlite3.Connection) -> Iterator[SpooledRow]:
    """Yields the rows that can be read: from the front, from the back, and one by one between."""
    low = 0
    for row in _walk(connection, "ORDER BY id"):
        low = row.id
        yield row
    high = low
    for row in _walk(connection, f"WHERE id > {low} ORDER BY id DESC"):
        high = row.id
        yield row
    if high <= low:  # the back cannot be read either
        high = _last_id(connection) + 1
    for number in range(low + 1, min(high, low + _MOST_PROBES)):
        yield from _walk(connection, f"WHERE id = {number}")


def _walk(connection: sqlite3.Connection, clause: str) -> Iterator[SpooledRow]:
    """Yields rows until the first that cannot be read."""
    try:
        for found in connection.execute(f"SELECT {COLUMNS} FROM records {clause}"):  # noqa: S608 - ours
            row = SpooledRow(*found)
            if row.intact:
                yield row
    except sqlite3.DatabaseError:
        return


def _last_id(connection: sqlite3.Connection) -> int:
    try:
        found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'records'")
        return int((found.fetchone() or (0,))[0])
    except (sqlite3.DatabaseError, ValueError, TypeError):
        return 0


def _count_of(path: Path) -> int:
    """Returns the number of records; 0 for a file that cannot be read, which the next check mends."""
    try:
        connection = connect(path, _UNLIMITED)
    except sqlite3.Error:
        return 0
    try:
        return int(connection.execute("SELECT count(*) FROM records").fetchone()[0])
    except sqlite3.Error:
        return 0
    finally:
        connection.close()


def _last_id_of(path: Path) -> int:
    try:
        connection = connect(path, _UNLIMITED)
    except sqlite3.Error:
        return 0
    try:
        return _last_id(connection)
    finally:
        connection.close()


def _continue_ids(path: Path, noted: Iterable[int]) -> None:
    """Lets the new file's ids begin behind all that it has and that were noted. Notes may be damaged."""
    connection = connect(path, _UNLIMITED)
    try:
        known = [*noted, _last_id(connection)]
        begin = max(one for one in known if 0 <= one < _MOST_IDS) + _ID_GAP
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM sqlite_sequence WHERE name = 'records'")
        connection.execute("INSERT INTO sqlite_sequence VALUES ('records', ?)", (begin,))
        connection.execute("COMMIT")
    finally:
        connection.close()


def _copy_counters(reading: sqlite3.Connection, writing: sqlite3.Connection) -> None:
    try:
        counters = reading.execute("SELECT name, value FROM counters").fetchall()
    except sqlite3.DatabaseError:
        return
    writing.executemany("INSERT OR REPLACE INTO counters (name, value) VALUES (?, ?)", counters)


def _renew_first_page(damaged: Path, pattern: Path) -> None:
    """Writes the first page of an empty spool over that of a copy."""
    pages = damaged.stat().st_size // PAGE_BYTES
    if not pages:
        return
    first = bytearray(pattern.read_bytes()[:PAGE_BYTES])
    struct.pack_into(">I", first, _SIZE_AT, pages)
    struct.pack_into(">II", first, _FREELIST_AT, 0, 0)
    with damaged.open("r+b") as file:
        file.write(first)


def _settle_file(path: Path) -> None:
    """Brings everything into the file itself, so that it can be renamed."""
    connection = connect(path, _UNLIMITED)
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    _remove_beside(path)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    _remove_beside(path)


def _remove_beside(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
