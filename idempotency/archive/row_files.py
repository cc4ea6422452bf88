"""Files of archived rows on SQLite: compressed JSON lines, one member a batch, for their owner alone.

torn       a crash cut the last member short. Its rows are still in the database, since rows are deleted
           once their member is on disk: the next write takes the torn member's place
damaged    any other bytes that are no whole member. They stay; a reader passes over them and says so
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, NamedTuple, TypeVar

import msgspec

from idempotency.ledger import LedgerUnavailable

HEAD: Final = b"\x1f\x8b\x08"
"""First bytes of each member (RFC 1952 §2.3)."""
_UNWRITTEN: Final = b"\0"
"""Byte in a torn end that did not reach the disk before a power loss."""
_WITH_HEAD: Final = 16 + zlib.MAX_WBITS
"""zlib's sign for gzip's head and checksum."""
_CHUNK: Final = 1 << 16
_PRIVATE: Final = 0o700
T = TypeVar("T")


class RowFile:
    """The file of one day, for its writer; SQLite's lock of writers keeps other processes out meanwhile."""

    def __init__(self, path: Path) -> None:
        """The file and its folder are made by the first `append`."""
        self.path = path
        self._end = 0
        """The file is read up to here: a whole member ends here. `append` alone writes it."""

    def append(self, kind: str, rows: Sequence[Any]) -> None:
        """Appends the rows, on disk when this returns; the column `place` is left out. Bytes are Base64.
        Raises LedgerUnavailable: then the file is as it was."""
        if not rows:
            return
        lines = (msgspec.json.encode({"kind": kind, **_columns(row)}) + b"\n" for row in rows)
        member = gzip.compress(b"".join(lines), mtime=0)
        try:
            self._write(member)
        except OSError as exc:
            raise LedgerUnavailable(f"the archive {self.path} cannot be written: {exc}") from exc

    def _write(self, member: bytes) -> None:
        made = [folder for folder in self.path.parents if not folder.exists()]
        self.path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        with open(self.path, "r+b", buffering=0, opener=_private) as file:
            self._cut_torn_end(file)
            try:
                _write_whole(file, member)
                os.fsync(file.fileno())
            except BaseException:
                with suppress(OSError):  # else the next `append` finds a torn end
                    file.truncate(self._end)
                raise
        if not self._end:
            for folder in (self.path.parent, *(one.parent for one in made)):
                _sync_folder(folder)
        self._end += len(member)

    def _cut_torn_end(self, file: FileIO) -> None:
        """Puts the file's position behind its last whole member, and cuts off the rest. Raises
        LedgerUnavailable for a rest that is no beginning of a member."""
        size = file.seek(0, os.SEEK_END)
        if size != self._end:
            start = self._end if self._end < size else 0
            self._end = max((member.end for member in _members(file, start)), default=start)
            file.seek(self._end)
            rest = file.read(len(HEAD))
            if not HEAD.startswith(rest.rstrip(_UNWRITTEN)):
                raise LedgerUnavailable(
                    f"the archive {self.path} ends in bytes that are none of ours: move it away"
                )
            file.truncate(self._end)
        file.seek(self._end)


class FileRows(NamedTuple, Generic[T]):
    """The rows that a file has of a name."""

    rows: list[T]
    damage: str
    """Sentence about what of the file cannot be read; empty: all of it was read."""


def rows_with(path: Path, name: str, decoder: msgspec.json.Decoder[T]) -> FileRows[T]:
    """Reads the whole file, one member at a time. Returns the lines with the name, from each whole member.
    Raises LedgerUnavailable."""
    wanted, rows, end, lost = msgspec.json.encode(name), [], 0, 0
    try:
        with path.open("rb") as file:
            for member in _members(file, 0):
                lost += member.start - end
                end = member.end
                if wanted in member.content:
                    lines = member.content.split(b"\n")
                    rows += [decoder.decode(line) for line in lines if wanted in line]
            size = file.seek(0, os.SEEK_END)
    except (OSError, msgspec.MsgspecError) as exc:
        raise LedgerUnavailable(f"the archive {path} cannot be read: {exc}") from exc
    lost += size - end
    damage = f"the archive {path} cannot be read whole: {lost:,} of its {size:,} bytes are damaged"
    return FileRows(rows, damage if lost else "")


class _Member(NamedTuple):
    """One whole member: its checksum was right."""

    start: int
    """Position of its first byte."""
    end: int
    """Position behind its last byte."""
    content: bytes


def _members(file: BinaryIO | FileIO, start: int) -> Iterator[_Member]:
    """Yields the whole members from that position on; what lies between them is passed over."""
    place: int | None = start
    while place is not None:
        member = _member_at(file, place)
        if member is None:
            place = _next_head(file, place + 1)
        else:
            yield member
            place = member.end


def _member_at(file: BinaryIO | FileIO, start: int) -> _Member | None:
    """Returns the member that begins there; None if none does, or if it is not whole."""
    file.seek(start)
    inflater, content, size = zlib.decompressobj(_WITH_HEAD), [], 0
    while not inflater.eof:
        chunk = file.read(_CHUNK)
        if not chunk:
            return None
        size += len(chunk)
        try:
            content.append(inflater.decompress(chunk))
        except zlib.error:
            return None
    return _Member(start, start + size - len(inflater.unused_data), b"".join(content))


def _next_head(file: BinaryIO | FileIO, start: int) -> int | None:
    """Returns the position of the next bytes that may begin a member; None without any."""
    file.seek(start)
    place, window = start, b""
    while chunk := file.read(_CHUNK):
        window += chunk
        found = window.find(HEAD)
        if found >= 0:
            return place + found
        place += max(0, len(window) - len(HEAD) + 1)
        window = window[-(len(HEAD) - 1) :]
    return None


def _write_whole(file: FileIO, content: bytes) -> None:
    """Writes at the file's position. A disk that is nearly full takes a part, and then raises."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _sync_folder(folder: Path) -> None:
    """Puts the folder's entries on disk: the name of a new file, too, outlives a power loss."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _columns(row: Any) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "place"}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o600)
