"""Locks between the processes of one machine, and the marker that they share.

flock belongs to an open file: the kernel releases it when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_FORM: Final = struct.Struct("=QQ")


class FileLock:
    """One open lock file. A lock within the process needs a FileLock of its own for each thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock beside others that share it; waits for an exclusive holder."""
        fcntl.flock(self._file, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lock alone; waits for all others."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def try_exclusive(self) -> bool:
        """Takes the lock. Returns False if another holder has it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Gives the lock up."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the file; idempotent. The lock ends if no other process has the same open file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Marker:
    """16 bytes that all processes map: whether records may wait, and the last id that was committed.

    The client asks `waiting` before each record: a byte of memory in place of a query. The last id tells a
    later process whether committed records are missing. Nothing is synced: after a power failure it may say
    less than the truth, and then the file's own count is right.
    """

    def __init__(self, path: Path) -> None:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(file).st_size < _FORM.size:
                # A hole would end the process by SIGBUS if the disk were full at the first write to it.
                # Appended: another process may have made and set the marker meanwhile.
                os.write(file, bytes(_FORM.size))
            self._memory = mmap.mmap(file, _FORM.size)
        finally:
            os.close(file)

    @property
    def waiting(self) -> bool:
        """Whether records may wait. False is certain."""
        return self._memory[0] != 0

    @waiting.setter
    def waiting(self, value: bool) -> None:
        self._memory[0] = int(value)

    @property
    def last_id(self) -> int:
        """The greatest id that a process committed, about: an id of the file may be greater."""
        return int(_FORM.unpack_from(self._memory)[1])

    @last_id.setter
    def last_id(self, value: int) -> None:
        struct.pack_into("=Q", self._memory, 8, value)
