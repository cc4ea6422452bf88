"""Waits for Kafka's acknowledgements and marks the rows.

Several batches are open at once, so that a partition without an answer holds up its own rows alone. A batch
is marked when its last record has ended. One that takes longer is marked in parts, as its records end.

Parts and batches may be marked in any order: a later row of a key is claimed only after the mark of the row
before it, so no two open rows have the same key.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from hongyan_client.outbox.errors import OutboxAway
from hongyan_client.outbox.publication import AwaitedRows, EndedBatch, StartedBatch
from hongyan_client.outbox.store import ClaimedRow, OutboxStore
from producer.relay.accepted import AnnounceBatch, no_announcement
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage

log = structlog.get_logger(__name__)
MOST_BATCHES: Final = 4
"""Published batches that the marker has not looked at. While the database is slow they hold up claims, so
that rows are marked before their lease ends."""
MOST_ROWS: Final = 8_000
"""Open rows from which the marker takes no further batch; the buffer of Kafka's client holds more."""
MOST_CHARACTERS: Final = 16 << 20
"""The same, of the open rows' bodies."""
PART_S: Final = 0.25
"""Time after which a batch is marked in parts, and the least time between two parts of it."""
_LOOK_S: Final = 0.1
"""Longest wait between two looks while a batch is open, and for room in `add`."""
_IDLE_S: Final = 1.0
_AGAIN_S: Final = 0.5


class PublishedBatch(NamedTuple):
    """A batch in the hands of Kafka's client, and the monotonic time until which it is this relay's."""

    started: StartedBatch
    until: float


class _OpenBatch:
    """A batch that is not marked yet. The marker's thread alone uses it."""

    def __init__(self, batch: PublishedBatch, now: float) -> None:
        self.rows = AwaitedRows(batch.started)
        self.until = batch.until
        self.unsent: Sequence[ClaimedRow] = batch.started.unsent
        """Rows to give back; empty once that is done."""
        self.part_at = now + PART_S
        """Time of the next part."""
        self.sent = 0
        self.away = len(batch.started.unsent)
        """Rows that failed for what may be Kafka as a whole."""


class RelayMarker:
    """Its own thread calls `run`; the claiming threads call `add`, the main thread calls `close`."""

    def __init__(
        self,
        store: OutboxStore,
        outage: KafkaOutage,
        metrics: RelayMetrics,
        wake: threading.Event,
        monotonic: Callable[[], float] = time.monotonic,
        announce: AnnounceBatch = no_announcement,
    ) -> None:
        """Sets `wake` after each mark: the next rows of the keys are due. `announce` gets the rows whose
        marks are written."""
        self._store = store
        self._outage = outage
        self._metrics = metrics
        self._wake = wake
        self._monotonic = monotonic
        self._announce = announce
        self._added: queue.Queue[PublishedBatch] = queue.Queue(MOST_BATCHES)
        self._open: list[_OpenBatch] = []  # the marker's thread writes it
        self._news = threading.Event()
        """Ends the wait for the next look. Any thread sets it, `look` clears it."""
        self._closing = threading.Event()  # `close` sets it
        self._ended = threading.Event()  # `run` sets it
        self._all_marked = False  # `run` writes it, before its end
        self.turn = monotonic()
        """Time of the last round; the marker's thread writes it."""

    def add(self, batch: PublishedBatch) -> bool:
        """Takes a batch; waits while too many are unmarked. Returns False if the marker has ended: then
        the rows go out again after their lease."""
        while not self._ended.is_set():
            try:
                self._added.put(batch, timeout=_LOOK_S)
            except queue.Full:
                continue
            self._news.set()
            return True
        return False

    def look_again(self) -> None:
        """Ends the wait for the next look; the publisher's polling thread calls it after a batch."""
        self._news.set()

    def close(self, timeout_s: float) -> bool:
        """Lets the thread end after the batches that it has. Returns whether it marked them in time."""
        self._closing.set()
        self._news.set()
        return self._ended.wait(timeout_s) and self._all_marked

    def run(self) -> None:
        """Marks until `close`. After its end, also by an error, `add` and `close` do not wait."""
        try:
            while not (self._closing.is_set() and self.empty):
                self.look()
            self._all_marked = True
        finally:
            self._ended.set()

    def look(self) -> None:
        """Takes one further batch, or waits for news, and marks what has ended."""
        self.turn = self._monotonic()
        if self._added.empty() or not self._has_room():
            self._news.wait(_LOOK_S if self._open else _IDLE_S)
        self._news.clear()
        self._take()
        for one in self._open:
            self._mark_ended(one)
        self._open = [one for one in self._open if one.rows]

    @property
    def empty(self) -> bool:
        """Whether no batch waits for its mark."""
        return not self._open and self._added.empty()

    @property
    def ended(self) -> bool:
        """Whether nothing is marked any more."""
        return self._ended.is_set()

    def _take(self) -> None:
        """Takes one batch, if the open rows are not too many. The others wait until it was looked at."""
        if not self._added.empty() and self._has_room():
            batch = self._added.get_nowait()  # no other thread takes one
            self._open.append(_OpenBatch(batch, self._monotonic()))

    def _has_room(self) -> bool:
        rows = sum(len(one.rows) for one in self._open)
        return rows < MOST_ROWS and sum(one.rows.size for one in self._open) < MOST_CHARACTERS

    def _mark_ended(self, one: _OpenBatch) -> None:
        """Marks a batch whose records have all ended or whose time is over, and a part of a late one."""
        now = self._monotonic()
        last = one.rows.all_ended or now >= one.until
        is_due = now >= one.part_at and one.rows.news
        if not (last or is_due or one.unsent):
            return
        ended = one.rows.part(last=last)
        self._note(one, ended)
        self._mark(one, ended)
        one.part_at = self._monotonic() + PART_S

    def _note(self, one: _OpenBatch, ended: EndedBatch) -> None:
        """Notes what the batch says of Kafka: at each acknowledgement, and once if it had none."""
        one.sent += len(ended.sent)
        one.away += ended.away
        if ended.sent:
            self._outage.note(len(ended.sent), 0)
        elif not one.sent and not one.rows:
            self._outage.note(0, one.away)

    def _mark(self, one: _OpenBatch, ended: EndedBatch) -> None:
        """Writes the marks. While the database is away it tries until the lease is over; then the rows go
        out again, with the same ids."""
        fenced, repeated = 0, False
        while True:
            self.turn = self._monotonic()
            try:
                fenced = self._write(one, ended)
                break
            except OutboxAway as exc:
                if self._monotonic() >= one.until:
                    log.warning("rows_not_marked", rows=len(ended.sent), cause=str(exc))
                    one.unsent = ()
                    return
                repeated = True
                self._ended.wait(_AGAIN_S)
        # A repeat finds no row where the answer to the first commit was lost. The lease lasts, so no relay
        # has taken it.
        self._tell(ended, 0 if repeated else fenced)

    def _write(self, one: _OpenBatch, ended: EndedBatch) -> int:
        """Returns the number of rows that are another publisher's. Raises OutboxAway."""
        self._store.give_back(ended.token, one.unsent)
        one.unsent = ()
        return self._store.mark(ended.token, ended.sent, ended.failed)

    def _tell(self, ended: EndedBatch, fenced: int) -> None:
        self._metrics.ended(ended, fenced)
        if fenced:
            log.warning("rows_taken_by_another_relay", rows=fenced)
        self._wake.set()
        self._announce(ended)
