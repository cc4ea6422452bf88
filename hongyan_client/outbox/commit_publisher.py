"""Publishes a process's own notifications right after the commit, so that none waits for a relay's look.

The business's thread only puts row ids into a bounded queue. One thread claims the rows by id, which finds
committed rows alone, publishes and marks them. Whatever fails here is left to the relays: a row that nobody
took within its head start is due for all of them.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Engine

from hongyan_client.outbox.errors import OutboxTrouble
from hongyan_client.outbox.publication import await_batch, publish_batch
from hongyan_client.outbox.store import ClaimedBatch, OutboxStore
from hongyan_client.outbox.tables import DEFAULT_NAME
from hongyan_client.records import BatchPublisher

log = logging.getLogger("hongyan_client")

LEASE_S: Final = 30.0
_MARGIN_S: Final = 5.0
_ANSWER_S: Final = 10.0
"""Longest wait for the acknowledgements of one batch; the relays see to the rest."""
_MOST_ROWS: Final = 200
_MOST_WAITING: Final = 2_000
"""Hand-overs that wait; those of more are left to the relays."""


class CommitPublisher:
    """One for a process; `hand_over` is for any thread. It does not survive a fork."""

    def __init__(
        self,
        engine: Engine,
        publisher: BatchPublisher,
        name: str = DEFAULT_NAME,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`engine`: a synchronous one on the business's database, best with a pool of its own."""
        self._store = OutboxStore(engine, name)
        self._publisher = publisher
        self._monotonic = monotonic
        self._owner = f"{socket.gethostname()}-{os.getpid()}"[:64]
        self._waiting: queue.Queue[list[int] | None] = queue.Queue(_MOST_WAITING)
        self.left_to_relays = 0
        """Hand-overs for which there was no room; a race between threads may miss one."""
        self._closed = False  # written by `close` alone
        self._thread = threading.Thread(target=self._run, name="hongyan-outbox", daemon=True)
        self._thread.start()

    def hand_over(self, row_ids: list[int]) -> None:
        """Takes committed rows. Returns at once and raises nothing."""
        try:
            if not self._closed:
                self._waiting.put_nowait(row_ids)
        except queue.Full:
            self.left_to_relays += 1

    def close(self, timeout_s: float = _ANSWER_S) -> None:
        """Publishes what was handed over, for at most `timeout_s` seconds; idempotent."""
        if not self._closed:
            self._closed = True
            try:
                self._waiting.put(None, timeout=timeout_s)
            except queue.Full:
                return
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (ids := self._next()) is not None:
            if not ids:
                continue
            try:
                self._publish(ids)
            except OutboxTrouble as exc:
                log.info("outbox: %d rows are left to the relays: %s", len(ids), exc)
            except Exception:  # never the business's trouble: the relays publish these rows
                log.exception("outbox: %d rows are left to the relays", len(ids))

    def _next(self) -> list[int] | None:
        """Returns the ids of some hand-overs; None at the end."""
        first = self._waiting.get()
        if first is None:
            return None
        ids = list(first)
        while len(ids) < _MOST_ROWS:
            try:
                more = self._waiting.get_nowait()
            except queue.Empty:
                break
            if more is None:
                self._waiting.put(None)
                break
            ids += more
        return ids

    def _publish(self, ids: list[int]) -> None:
        claimed_at = self._monotonic()
        batch = self._store.claim_these(ids, self._owner, int(LEASE_S * 1_000))
        if batch.rows:
            self._publish_claimed(batch, claimed_at)

    def _publish_claimed(self, batch: ClaimedBatch, claimed_at: float) -> None:
        last = claimed_at + LEASE_S - _MARGIN_S
        started = publish_batch(batch, self._publisher, last, self._monotonic)
        self._store.give_back(batch.token, started.unsent)
        answered = min(last, self._monotonic() + _ANSWER_S)
        ended = await_batch(started, answered, self._monotonic)
        self._store.mark(ended.token, ended.sent, ended.failed)
