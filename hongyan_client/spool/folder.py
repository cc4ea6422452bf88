"""The folder of a spool: its file, its locks, and the processes that write to it.

spool.db       the records           gate.lock   held together by transactions, alone by a salvage
waiting        the marker            drain.lock  held by the process that drains
writers/NAME   held by the process of that name, as long as it lives
damaged-*.db   damaged files that were replaced
salvage*       a new file in the making, and the copy that it is read from
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hongyan_client.spool.errors import SpoolAway, SpoolDamaged
from hongyan_client.spool.file import SpoolFile, created, gate_path, judged
from hongyan_client.spool.locks import FileLock, Marker
from hongyan_client.spool.salvage import Salvage, fault_of, finished, salvaged
from hongyan_client.spool.store import SpoolStore

DEFAULT_MAX_BYTES: Final = 256 << 20
_RESERVE_BYTES: Final = 1 << 20
"""A drain may pass the limit by so much: it lists what expired before room is free."""


class SpoolFolder:
    """Opens what a folder contains. Raises SpoolAway for a disk that does not work."""

    def __init__(self, path: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.path = path
        self.file = path / "spool.db"
        self.max_bytes = max_bytes
        with self._errors():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)
            self.marker = Marker(path / "waiting")
            self.drain_lock = FileLock(path / "drain.lock")

    def prepare(self, now_ms: int) -> Salvage | None:
        """Makes the file, or checks it. Returns what was salvaged of a damaged one."""
        gate = FileLock(gate_path(self.file))
        try:
            with self._errors(), gate.exclusive():
                ended = finished(self.file, now_ms)
                fault = self._fault()
                return salvaged(self.file, now_ms, self.marker.last_id) if fault else ended
        finally:
            gate.close()

    def _fault(self) -> str:
        """Returns what is wrong with the file. Makes it if it is missing."""
        if not self.file.exists() or not self.file.stat().st_size:
            created(self.file)
        return fault_of(self.file)

    def store(self) -> SpoolStore:
        """Returns the statements on the file."""
        limits = (self.max_bytes, self.max_bytes, self.max_bytes + _RESERVE_BYTES)
        return SpoolStore(*(SpoolFile(self.file, one) for one in limits))

    def damaged_files(self) -> list[Path]:
        """Returns the damaged files that were replaced."""
        return sorted(self.path.glob("damaged-*.db"))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise SpoolAway(
                f"the spool {self.path} cannot be used: {exc.strerror}; see to its disk and rights"
            ) from exc
        except sqlite3.Error as exc:
            error = judged(exc, self.file, False)
            raise SpoolAway(str(error)) if isinstance(error, SpoolDamaged) else error from exc
