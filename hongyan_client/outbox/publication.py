"""Publishes claimed rows and says how each ended; used by relays and by `CommitPublisher`.

acknowledged                       → SENT
certainly not in Kafka, in doubt   → again after a back-off, with the same id; spent → PARKED
refused for what it is             → PARKED
makes no record                    → PARKED, without harm to the other rows
not handed to Kafka                → given back, and the attempt does not count
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from hongyan_client.errors import SendFailed, SendInDoubt
from hongyan_client.outbox.entry import record_headers_of
from hongyan_client.outbox.store import ClaimedBatch, ClaimedRow, FailedRow
from hongyan_client.records import Acknowledged, BatchPublisher, Record

_MOST_DOUBLINGS: Final = 30
_FULL_S: Final = 1.0
"""Longest wait for room in the publisher's buffer."""
_TOGETHER: Final = 250
"""Rows that are handed over between two looks at the lease."""
ENDED: Final = "every attempt ended with the process that made it"
_NO_ANSWER: Final = "Kafka did not answer before the lease ended"


class BatchEnds:
    """The ends of one batch's records. The publisher's polling thread writes them; one thread waits."""

    def __init__(self) -> None:
        self._ends: dict[int, Acknowledged | SendFailed] = {}
        self._count = -1  # records that were handed over; the publishing thread sets it once
        self._all = threading.Event()

    def note(self, number: int, end: Acknowledged | SendFailed) -> None:
        """Notes the end of one record."""
        self._ends[number] = end
        if len(self._ends) == self._count:
            self._all.set()

    def expect(self, count: int) -> None:
        """Says how many records were handed over."""
        self._count = count
        if len(self._ends) == count:
            self._all.set()

    def wait(self, timeout_s: float) -> Mapping[int, Acknowledged | SendFailed]:
        """Returns the ends by the records' numbers, after `timeout_s` seconds those that there are."""
        self._all.wait(timeout_s)
        return self._ends.copy()


class StartedBatch(NamedTuple):
    """A claimed batch in the hands of Kafka's client."""

    token: int
    open: Sequence[ClaimedRow]
    ends: BatchEnds
    """Ends of the open rows, by their place among them."""
    unsent: Sequence[ClaimedRow]
    """Rows that were not handed over: no room, or the lease had ended."""
    spent: Sequence[ClaimedRow]
    """Rows whose attempts were all used up by processes that ended."""
    wrong: Sequence[FailedRow] = ()
    """Rows that make no record."""


class EndedBatch(NamedTuple):
    """A batch after its publication, ready to be marked."""

    token: int
    sent: Sequence[ClaimedRow]
    places: Sequence[Acknowledged]
    """Of the rows that were sent, in their order."""
    failed: Sequence[FailedRow]


def publish_batch(
    batch: ClaimedBatch,
    publisher: BatchPublisher,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> StartedBatch:
    """Hands the rows to Kafka's client in the order of their ids. None is handed over after `until`, the
    end of the lease less a margin: a process may have slept."""
    spent = [row for row in batch.rows if row.attempt > row.max_attempts]
    ready = [row for row in batch.rows if row.attempt <= row.max_attempts] if spent else batch.rows
    ready, records, wrong = _made(ready)
    ends = BatchEnds()
    started = 0
    while started < len(ready) and (left := until - monotonic()) > 0:
        some = records[started : started + _TOGETHER]
        noted = _Offset(ends, started).note if started else ends.note
        taken = publisher.publish_batch(some, noted, min(left, _FULL_S))
        started += taken
        if taken < len(some):
            break
    ends.expect(started)
    return StartedBatch(batch.token, ready[:started], ends, ready[started:], spent, wrong)


def await_batch(
    started: StartedBatch,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> EndedBatch:
    """Waits for the acknowledgements, at most until `until`. A record without one is in doubt."""
    failed = [FailedRow(row, ENDED, True, None) for row in started.spent]
    failed += started.wrong
    ends = started.ends.wait(max(0.0, until - monotonic()))
    sent: list[ClaimedRow] = []
    places: list[Acknowledged] = []
    for number, row in enumerate(started.open):
        end = ends.get(number)
        if isinstance(end, Acknowledged):
            sent.append(row)
            places.append(end)
        elif end is None:
            failed.append(failed_row(row, _NO_ANSWER, True, chance))
        else:
            again = failed_row(row, str(end), isinstance(end, SendInDoubt), chance)
            failed.append(again if end.repeatable else again._replace(delay_ms=None))
    return EndedBatch(started.token, sent, places, failed)


class _Offset(NamedTuple):
    """Ends of a later part of a batch."""

    ends: BatchEnds
    first: int

    def note(self, number: int, end: Acknowledged | SendFailed) -> None:
        self.ends.note(self.first + number, end)


def failed_row(
    row: ClaimedRow, error: str, in_doubt: bool, chance: Callable[[], float]
) -> FailedRow:
    """Returns the mark of a failed attempt: a back-off, or none when the attempts are spent."""
    delay = None if row.attempt >= row.max_attempts else backoff_ms(row, chance())
    return FailedRow(row, error, in_doubt, delay)


def backoff_ms(row: ClaimedRow, chance: float) -> int:
    """Returns the time until the next attempt: it doubles up to the row's limit. `chance` in [0, 1) takes
    off up to a half, so that rows that failed together come back apart."""
    doublings = min(row.attempt - 1, _MOST_DOUBLINGS)
    whole = min(row.retry_cap_ms, row.retry_base_ms << doublings)
    return int(whole * (1 - chance / 2))


def _made(
    rows: Sequence[ClaimedRow],
) -> tuple[Sequence[ClaimedRow], list[Record], list[FailedRow]]:
    """Returns the rows that make a record, their records, and the others."""
    try:
        return rows, [_record(row) for row in rows], []
    except Exception:  # whatever a row holds, it fails alone: each is tried by itself
        good, records, wrong = list[ClaimedRow](), list[Record](), list[FailedRow]()
    for row in rows:
        try:
            records.append(_record(row))
        except Exception as exc:
            wrong.append(FailedRow(row, f"the row makes no record for Kafka: {exc}", False, None))
        else:
            good.append(row)
    return good, records, wrong


def _record(row: ClaimedRow) -> Record:
    return Record(
        row.topic, row.msg_key.encode(), row.payload.encode(), record_headers_of(row.headers)
    )
