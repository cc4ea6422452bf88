"""The provider's ledger: JSON lines, appended and synced in groups before any answer leaves.

Killed at any moment, the file stays readable: at most its last line is torn, and that request was
never answered. `read_ledger` skips a torn line; `mend` cuts it off before the file is opened again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from simulator.delayed_replies import attempt


class LedgerRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One receiver of one call as it was received, and the simulator's decision about it."""

    seq: int
    """From 1, in the order of arrival, across restarts."""
    at_ms: int
    """Epoch milliseconds."""
    key: str
    path: str
    id: str
    receiver: str
    attempt: int
    digest: str
    """First 16 hex digits of SHA-256 over the body, `attempt` and all."""
    accepted: bool
    answer: str
    """The status, or the end without one: reset, close, hang, drip, drop; or the provider's error code.
    `duplicate`, under --dedup or in a provider's own window: answered as the first, not accepted again."""
    protocol: str = ""
    """Empty: webhook."""
    provider_id: str = ""
    """The provider's name for the message, if it is not the simulator's own."""
    call: int = 0
    """The same number for all receivers of one call; 0: a call of its own."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LedgerRecord)


class LedgerWriter:
    """Group commit on an event loop: calls that come while a sync runs share the next one.

    All fields belong to the loop's thread; only `_store` runs on a thread of the pool, one at a time.
    """

    def __init__(self, path: str | Path, *, fsync: bool, loop: asyncio.AbstractEventLoop) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._fsync = fsync
        self._loop = loop
        self._lines: list[bytes] = []
        self._waiting: list[Callable[[], None]] = []
        self._busy = False
        self._idle = asyncio.Event()
        self._idle.set()

    def append(self, record: LedgerRecord, done: Callable[[], None]) -> None:
        """Keeps the record; calls `done` once it is on disk."""
        self._lines.append(_encoder.encode(record) + b"\n")
        self.after(done)

    def after(self, done: Callable[[], None]) -> None:
        """Calls `done` once everything appended so far is on disk."""
        self._waiting.append(done)
        if not self._busy:
            self._busy = True
            self._idle.clear()
            self._loop.call_soon(self._commit)

    async def close(self) -> None:
        """Waits for the commits under way, then closes the file."""
        await self._idle.wait()
        os.close(self._file)

    def _commit(self) -> None:
        if not self._waiting:
            self._busy = False
            self._idle.set()
            return
        data, waiting = b"".join(self._lines), self._waiting
        self._lines, self._waiting = [], []
        if not self._fsync or not data:
            _write(self._file, data)
            self._finish(waiting)
            return
        stored = self._loop.run_in_executor(None, self._store, data)
        stored.add_done_callback(lambda future: self._stored(future, waiting))

    def _store(self, data: bytes) -> None:
        _write(self._file, data)
        os.fdatasync(self._file)

    def _stored(self, future: asyncio.Future[None], waiting: list[Callable[[], None]]) -> None:
        future.result()  # a disk that fails ends the program: without a ledger it proves nothing
        self._finish(waiting)

    def _finish(self, waiting: list[Callable[[], None]]) -> None:
        for done in waiting:
            attempt(self._loop, done)
        self._loop.call_soon(self._commit)


def read_ledger(path: str | Path) -> Iterator[LedgerRecord]:
    """Yields every record in order of arrival; skips a torn last line."""
    with Path(path).open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)


def mend(path: Path) -> None:
    """Cuts off a torn last line, so that the next record begins a line of its own."""
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if line.endswith(b"\n"):
                whole += len(line)
        file.truncate(whole)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
