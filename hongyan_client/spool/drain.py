"""One pass over the spool: the head of each key goes to Kafka, and leaves once it is acknowledged.

Only one record of a key is under way at a time: a later one cannot arrive before one that failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import Any, Final, NamedTuple

from hongyan_client.errors import ClientError
from hongyan_client.records import RecordPublisher
from hongyan_client.spool.rows import SpooledRow
from hongyan_client.spool.store import DrainOutcome, LineHead, SpoolStore, StaleDrain

log = logging.getLogger("hongyan_client")

AT_ONCE: Final = 500
"""Keys whose heads are under way together."""
PUBLISH_S: Final = 2.0
"""Longest wait for room in the client's buffer."""
RETRY_S: Final = 30.0
"""Pause of a key whose record failed while others went."""
READ_AT_ONCE: Final = 32
"""Records that one statement reads: many do not fit into memory if each is as large as a broker takes."""
_LOOK_S: Final = 0.2
_GATHER_S: Final = 0.005
_MOST_REMEMBERED: Final = 50_000
DAMAGED: Final = "its bytes changed on disk"


class PassResult(NamedTuple):
    """Counts of one pass."""

    published: int = 0
    failed: int = 0
    parked: int = 0
    error: str = ""
    """The last failure."""


class DrainPass:
    """Runs under the drain's lock. The draining thread owns every field."""

    def __init__(
        self,
        store: SpoolStore,
        publisher: RecordPublisher,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._now_ms = now_ms
        self._after = b""
        """The line that was looked at last: passes go round."""
        self._flying: dict[Future[Any], LineHead] = {}
        self._retry_at: dict[bytes, float] = {}
        """Lines that failed while others went: not before this monotonic time."""
        self._unsettled = DrainOutcome()
        """Outcomes that the disk did not take yet: nothing is published before it has."""

    def run(self, fence: int, fill_s: float, stopping: Callable[[], bool]) -> PassResult:
        """Publishes for `fill_s` seconds, or until nothing may go; then waits for what is under way,
        unless `stopping`. Raises SpoolError, StaleDrain."""
        self._flying.clear()
        self._settle(fence)
        self._expire(fence)
        until, total = time.monotonic() + fill_s, PassResult()
        while not stopping():
            if time.monotonic() < until:
                total = total._replace(error=self._fill() or total.error)
            if not self._flying:
                break
            total = _sum(total, self._collect(fence))
        if self._flying:  # stopping: those without an answer by now go again later
            total = _sum(total, self._collect(fence))
        self._forgive(total)
        return total

    def _fill(self) -> str:
        """Publishes heads until AT_ONCE are under way. Returns the error that ended it, or nothing."""
        busy = {head.line for head in self._flying.values()}
        heads = (head for head in self._round(self._after) if self._may_go(head, busy))
        while room := AT_ONCE - len(self._flying):
            some = list(islice(heads, min(room, READ_AT_ONCE)))
            if not some:
                break
            rows = self._store.rows_of([head.id for head in some])
            for head in some:
                self._after = head.line
                row = rows.get(head.id)
                if row is None or not self._is_fit(row):
                    continue
                try:
                    self._flying[self._publisher.publish(row.record(), PUBLISH_S)] = head
                except ClientError as exc:
                    return str(exc)
        return ""

    def _round(self, began: bytes) -> Iterator[LineHead]:
        """Yields the head of each line once: those after `began`, then the others."""
        after = began
        while heads := self._store.heads(after, AT_ONCE):
            yield from heads
            after = heads[-1].line
        after = b""
        while heads := self._store.heads(after, AT_ONCE):
            for head in heads:
                if head.line > began:
                    return
                yield head
            after = heads[-1].line

    def _may_go(self, head: LineHead, busy: Collection[bytes]) -> bool:
        """Whether no record of the line is under way, and its pause after a failure is over."""
        return head.line not in busy and time.monotonic() >= self._retry_at.get(head.line, 0.0)

    def _is_fit(self, row: SpooledRow) -> bool:
        """Whether the record's bytes are those that were written and its time is not over. Parks it if its
        bytes changed."""
        if not row.intact:
            self._unsettled = _with_parked(self._unsettled, row.id, DAMAGED)
            return False
        return row.expires_at > self._now_ms()

    def _collect(self, fence: int) -> PassResult:
        """Waits for acknowledgements, and settles those that came."""
        done, others = wait(self._flying, _LOOK_S, FIRST_COMPLETED)
        if done and others:  # acknowledgements come in groups, and each commit costs an fsync
            done, _ = wait(self._flying, _GATHER_S)
        published: list[int] = []
        failed: dict[int, str] = {}
        parked: dict[int, str] = dict(self._unsettled.parked)
        for future in done:
            head, error = self._flying.pop(future), future.exception()
            if error is None:
                published.append(head.id)
                self._retry_at.pop(head.line, None)
            elif getattr(error, "repeatable", True):
                failed[head.id] = str(error)
                self._retry_at[head.line] = time.monotonic() + RETRY_S
            else:
                parked[head.id] = str(error)
        self._unsettled = DrainOutcome(published, failed, parked)
        self._settle(fence)
        last = next(reversed([*failed.values(), *parked.values()]), "")
        return PassResult(len(published), len(failed), len(parked), last)

    def _settle(self, fence: int) -> None:
        """Writes outcomes. They stay if the disk does not take them."""
        if any(self._unsettled):
            try:
                self._store.settle(fence, self._unsettled)
            except StaleDrain:
                self._unsettled = DrainOutcome()
                raise
            self._unsettled = DrainOutcome()

    def _expire(self, fence: int) -> None:
        while count := self._store.expire(fence, self._now_ms()):
            log.warning("spool: %d records expired before Kafka took them", count)

    def _forgive(self, total: PassResult) -> None:
        """Forgets failures of single lines when every line failed: then Kafka is away."""
        if not total.published or len(self._retry_at) > _MOST_REMEMBERED:
            self._retry_at.clear()


def _sum(one: PassResult, other: PassResult) -> PassResult:
    return PassResult(
        one.published + other.published,
        one.failed + other.failed,
        one.parked + other.parked,
        other.error or one.error,
    )


def _with_parked(outcome: DrainOutcome, record_id: int, text: str) -> DrainOutcome:
    return outcome._replace(parked={**outcome.parked, record_id: text})
