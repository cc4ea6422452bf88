"""Pushes receipts of accepted messages to a callback, as the providers do: late, doubled, out of order.

Everything runs on the simulator's loop. Receipts that are due in one turn of the loop and fit into one push
go together. A push that is not answered 2xx is tried again; after the last try the receipt never comes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from simulator.ledger import LedgerRecord
from simulator.receipts.formats import FORMATS
from simulator.receipts.plan import Plan, Planned, ReceiptOptions
from simulator.receipts.receipt_format import Format, Pushed, ReceiptReport
from simulator.wire import ProtocolContext

_MS: Final = 1_000
_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 16
"""Pushes of one protocol that are under way at once."""


class ReceiptPoster:
    """One Postman per protocol that has a callback."""

    def __init__(
        self, receipts: Mapping[str, ReceiptOptions], seed: str, world: ProtocolContext
    ) -> None:
        self._postmen = {
            name: Postman(name, Plan(name, options, seed), world)
            for name, options in receipts.items()
        }

    def accepted(self, record: LedgerRecord) -> None:
        """Plans receipts. Called when the acceptance is on disk, before its call is answered."""
        if postman := self._postmen.get(record.protocol):
            postman.accepted(record)


class Postman:
    """Posts the receipts of one protocol."""

    def __init__(self, name: str, plan: Plan, world: ProtocolContext) -> None:
        self._name = name
        self._plan = plan
        self._world = world
        self._format: Format = FORMATS[name]
        self._loop = asyncio.get_running_loop()
        self._due: list[ReceiptReport] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_AT_ONCE)

    def accepted(self, record: LedgerRecord) -> None:
        """Plans the receipts of an acceptance."""
        key = f"{record.provider_id}\0{record.receiver}"
        for planned in self._plan.of(key, steps=self._format.steps):
            self._loop.call_later(planned.delay_ms / _MS, self._ready, record, planned)

    def _ready(self, record: LedgerRecord, planned: Planned) -> None:
        if not self._due:
            self._loop.call_soon(self._go)
        self._due.append(ReceiptReport(record, planned, self._world.now_ms()))

    def _go(self) -> None:
        due, self._due = self._due, []
        size = self._format.batch
        for start in range(0, len(due), size):
            task = self._loop.create_task(self._deliver(due[start : start + size]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, reports: Sequence[ReceiptReport]) -> None:
        options = self._plan.options
        for attempt in range(options.attempts):
            if attempt:
                await asyncio.sleep(options.retry_ms / _MS)
            async with self._room:
                # Signed anew: a signature holds its time.
                status = await _post(self._format.push(options.url, reports, self._world))
            if 200 <= status < 300:
                self._count("taken", len(reports))
                return
            self._count(f"answered_{status}" if status else "unanswered", 1)
        self._count("given_up", len(reports))

    def _count(self, what: str, times: int) -> None:
        for _ in range(times):
            self._world.count(f"{self._name}.receipts_{what}")


async def _post(pushed: Pushed) -> int:
    """Returns the answer's status; 0 if there is none."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await _exchange(pushed)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError):
        return 0


async def _exchange(pushed: Pushed) -> int:
    """Makes a connection for one push, as providers do, and returns the status. Raises OSError (a
    TimeoutError is one), and ValueError or IndexError for an answer that is no HTTP."""
    url = urlsplit(pushed.url)
    secure = ssl.create_default_context() if url.scheme == "https" else None
    port = url.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(url.hostname, port, ssl=secure)
    try:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        head = [f"POST {target} HTTP/1.1", f"Host: {url.netloc.rpartition('@')[2]}"]
        head += [f"{name}: {value}" for name, value in pushed.fields]
        head += [f"Content-Length: {len(pushed.body)}", "Connection: close", "", ""]
        writer.write("\r\n".join(head).encode("latin-1") + pushed.body)
        await writer.drain()
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()
