"""The client's overflow on disk: keeps records, and publishes them later, in order per key.

One thread of its own drains. Callers of `keep` wait for the disk alone, never for Kafka.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hongyan_client.errors import ClientClosed
from hongyan_client.records import Record, RecordPublisher
from hongyan_client.spool.commits import SharedCommit
from hongyan_client.spool.drain import DrainPass, PassResult
from hongyan_client.spool.errors import SpoolDamaged, SpoolError
from hongyan_client.spool.folder import DEFAULT_MAX_BYTES, SpoolFolder
from hongyan_client.spool.salvage import Salvage
from hongyan_client.spool.store import KeptRecord, SpoolCounts, StaleDrain

log = logging.getLogger("hongyan_client")

IDLE_S: Final = 0.5
"""Time between looks at a spool to which another process may write."""
FILL_S: Final = 2.0
"""Time for which one process drains before another one may."""
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 5.0
_GAP_S: Final = 0.05
_LOOK_S: Final = 0.02


_spools: weakref.WeakSet[Spool] = weakref.WeakSet()
"""Spools of this process; a forked child gives up its copies of their locks."""


class SpoolReadings(NamedTuple):
    """Figures for metrics. Counters go on from the file's first day, whatever process counted."""

    waiting: int
    parked: int
    oldest_age_s: float
    bytes: int
    max_bytes: int
    kept_total: int
    drained_total: int
    expired_total: int
    full_total: int
    """Records that were refused because the spool was full; since this process began."""
    salvaged_total: int
    """Damaged files that were replaced."""


class Spool:
    """Implements `hongyan_client.overflow.Overflow`. Any thread calls it."""

    def __init__(
        self,
        folder: str | Path,
        publisher: RecordPublisher,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Opens the folder, or makes it. Raises SpoolAway."""
        self._folder = SpoolFolder(Path(folder), max_bytes)
        self._now_ms = now_ms
        self.salvage: Salvage | None = self._folder.prepare(now_ms())
        """Records read from a damaged file, at the opening or later. Written by `_replace`."""
        self._store = self._folder.store()
        self._commits = SharedCommit(self._put)
        self._stuck = False  # the last passes failed; of the thread
        self._pass = DrainPass(self._store, publisher, now_ms)  # of the thread
        self.missing = 0
        """Records of earlier processes that the file has no trace of. Written by `_check_marker`."""
        self._full = 0  # written by `keep` of any thread; a race loses a count
        self._forked = False  # written in a forked child alone
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._check_marker()
        self._thread = threading.Thread(target=self._run, name="hongyan-spool", daemon=True)
        self._thread.start()
        _spools.add(self)

    def keep(self, record: Record, expires_at_ms: int) -> None:
        """Returns once the record is on disk. Raises SpoolFull, SpoolDamaged, SpoolAway: then the record
        is not in the spool."""
        self._kept(lambda: self._commits.keep(KeptRecord(record, expires_at_ms)))

    def keep_all(self, records: Sequence[tuple[Record, int]]) -> None:
        """Keeps records with their ends by one commit, in this order. Raises as `keep`: then none of them
        is in the spool."""
        self._kept(lambda: self._put([KeptRecord(*one) for one in records]))

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a record of this topic and key waits here, from whatever process."""
        if key is None or not self._folder.marker.waiting:
            return False
        try:
            return self._store.holds(topic, key)
        except SpoolDamaged:
            self._replace()
            raise

    def waiting(self) -> int:
        """Returns the number of records that wait, from whatever process."""
        return self._store.waiting() if self._folder.marker.waiting else 0

    def drain(self, timeout_s: float) -> int:
        """Waits until the thread has drained the spool, at most `timeout_s` seconds. Returns the number
        that still waits."""
        until = time.monotonic() + timeout_s
        self._wake.set()
        while self._is_left() and time.monotonic() < until:
            time.sleep(min(_LOOK_S, max(0.0, until - time.monotonic())))
        return self.waiting()

    def readings(self) -> SpoolReadings:
        """Returns the figures for metrics. Raises SpoolError."""
        counts = self._store.counts()
        return _readings(counts, self._now_ms(), self._folder.max_bytes, self._full)

    def close(self, timeout_s: float) -> None:
        """Ends the thread and closes the file; idempotent. Kept records stay on disk."""
        if self._stopping.is_set() or self._forked:
            return
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout_s)
        if not self._thread.is_alive():
            self._store.close()

    def forget_after_fork(self) -> None:
        """Refuses records in a forked child, and closes the child's copies of the locks."""
        self._forked = True
        self._folder.drain_lock.close()

    def _is_left(self) -> bool:
        """Whether a record waits: counting all of them again and again would slow the drain down."""
        return self._folder.marker.waiting and self._store.has_waiting()

    def _kept(self, keep: Callable[[], None]) -> None:
        """Keeps, then wakes the thread."""
        if self._forked:
            raise ClientClosed(
                "the process was forked after the spool was opened; open one in the child"
            )
        if self._stopping.is_set():
            raise ClientClosed("the spool is closed; open another one")
        try:
            keep()
        except SpoolError as exc:
            self._refused(exc)
            raise
        self._wake.set()

    def _put(self, kept: Sequence[KeptRecord]) -> None:
        self._store.keep(kept, self._folder.marker, self._now_ms())

    def _refused(self, exc: SpoolError) -> None:
        if isinstance(exc, SpoolDamaged):
            self._replace()
        else:
            self._full += 1

    def _replace(self) -> None:
        """Replaces a damaged file. Another process may have done so already."""
        try:
            salvage = self._folder.prepare(self._now_ms())
            if salvage is not None:
                self._note(salvage)
        except SpoolError as exc:
            log.error("spool: %s", exc)

    def _check_marker(self) -> None:
        """Compares the file with the last id that a process committed, and sets the marker by the file.

        The marker is read first: records that another process keeps in between are then in the file, and
        do not count as missing."""
        if self.salvage is not None:
            self._note(self.salvage)
        marker = self._folder.marker
        marker.waiting, committed = True, marker.last_id
        found = self._store.counts().last_id
        self.missing = max(0, committed - found)
        if self.missing:
            marker.last_id = found
            self._store.count("missing", self.missing)
            log.error(
                "spool: %d records kept in %s are missing: the file or its -wal was cut or replaced",
                *(self.missing, self._folder.file),
            )
        self._store.mark_empty(marker)

    def _note(self, salvage: Salvage) -> None:
        """Counts a salvage. Records that were not saved are in the damaged file."""
        self.salvage = salvage
        self._folder.marker.last_id = self._store.counts().last_id
        self._store.count("salvaged")

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            if pause:
                self._stopping.wait(pause)
            else:
                self._wake.wait(IDLE_S)
            self._wake.clear()
            if self._folder.marker.waiting and not self._stopping.is_set():
                pause = self._paused(self._drained(), pause)

    def _drained(self) -> PassResult:
        """Makes one pass, if no other process does. Failures are logged."""
        if not self._folder.drain_lock.try_exclusive():
            return PassResult()
        try:
            if not self._store.has_work(self._now_ms()):
                self._store.mark_empty(self._folder.marker)  # a keep that failed sets it, too
                return PassResult()
            fence = self._store.take_fence()
            result = self._pass.run(fence, FILL_S, self._stopping.is_set)
            self._store.mark_empty(self._folder.marker)
            return result
        except StaleDrain:
            return PassResult()
        except SpoolDamaged as exc:
            self._replace()
            return PassResult(error=str(exc))
        except (
            Exception
        ) as exc:  # of the publisher, or ours: the thread goes on, and the log has it
            if not isinstance(exc, SpoolError):
                log.exception("spool: a pass failed")
            return PassResult(error=str(exc))
        finally:
            self._folder.drain_lock.release()

    def _paused(self, result: PassResult, before: float) -> float:
        """Returns the pause after a pass; 0 waits for the next record."""
        if result.published:
            if self._stuck:
                log.info("spool: records leave it again")
                self._stuck = False
            return _GAP_S
        if not result.error:
            return 0.0
        if not self._stuck:
            log.warning("spool: no record left it: %s; further tries are not logged", result.error)
            self._stuck = True
        return min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, before * 2))


def _readings(counts: SpoolCounts, now_ms: int, max_bytes: int, full: int) -> SpoolReadings:
    oldest = counts.oldest_kept_at
    total = counts.counters
    return SpoolReadings(
        waiting=counts.waiting,
        parked=counts.parked,
        oldest_age_s=0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1_000),
        bytes=counts.bytes,
        max_bytes=max_bytes,
        kept_total=total.get("kept", 0),
        drained_total=total.get("drained", 0),
        expired_total=total.get("expired", 0),
        full_total=full,
        salvaged_total=total.get("salvaged", 0),
    )


def _forked() -> None:
    for one in list(_spools):
        one.forget_after_fork()


os.register_at_fork(after_in_child=_forked)
