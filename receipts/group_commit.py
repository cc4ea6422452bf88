"""Stores pushed receipts: concurrent pushes share one statement, each is answered when it is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from idempotency.receipts.rules import Receipt
from idempotency.receipts.store import BATCH
from receipts.metrics import ReceiptMetrics

MOST: Final = 20_000
"""Receipts that may wait for the database at once; further pushes are put off."""


class Full(Exception):
    """The database does not keep up."""


class GroupCommit:
    """Group commit. The event loop's thread runs all of it but the statement (`_commit_one`)."""

    def __init__(
        self,
        store: Callable[[Sequence[Receipt]], int],
        on_stored: Callable[[], None],
        metrics: ReceiptMetrics,
    ) -> None:
        self._store = store
        self._on_stored = on_stored
        self._metrics = metrics
        self._waiting: deque[tuple[Sequence[Receipt], asyncio.Future[None]]] = deque()
        self._held = 0
        self._committing: asyncio.Task[None] | None = None

    async def keep(self, receipts: Sequence[Receipt]) -> None:
        """Returns when they are durable. Raises Full, LedgerError."""
        if not receipts:
            return
        if self._held + len(receipts) > MOST:
            raise Full
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((receipts, done))
        self._held += len(receipts)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        await done

    async def _commit(self) -> None:
        """Runs one statement after the other, each with the receipts that came during the one before."""
        try:
            while self._waiting:
                await self._commit_one()
        finally:
            self._committing = None

    async def _commit_one(self) -> None:
        pushes = self._take()
        receipts = [receipt for push, _ in pushes for receipt in push]
        failed: Exception | None = None
        try:
            new = await asyncio.to_thread(self._store, receipts)
        except Exception as exc:  # each push is refused with it, and its provider repeats the push
            failed = exc
        else:
            self._metrics.stored(receipts, new)
            self._on_stored()
        self._held -= len(receipts)
        for _, done in pushes:
            if not done.done():  # the client may have gone
                done.set_exception(failed) if failed else done.set_result(None)

    def _take(self) -> list[tuple[Sequence[Receipt], asyncio.Future[None]]]:
        taken = [self._waiting.popleft()]
        size = len(taken[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= BATCH:
            taken.append(self._waiting.popleft())
            size += len(taken[-1][0])
        return taken
