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

from hongyan_client.delivery_errors import is_of_one_topic
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


def _nothing() -> None:
    """Does nothing."""


class BatchEnds:
    """The ends of one batch's records. The publisher's polling thread writes them; one thread reads."""

    def __init__(self, on_all: Callable[[], None] = _nothing) -> None:
        """`on_all` is called when the last record has ended, at times twice. It must be quick."""
        self._ends: dict[int, Acknowledged | SendFailed] = {}
        self._count = -1  # records that were handed over; the publishing thread sets it once
        self._all = threading.Event()
        self._on_all = on_all

    def note(self, number: int, end: Acknowledged | SendFailed) -> None:
        """Notes the end of one record."""
        self._ends[number] = end
        if len(self._ends) == self._count:
            self._tell()

    def expect(self, count: int) -> None:
        """Says how many records were handed over."""
        self._count = count
        if len(self._ends) == count:
            self._tell()

    def wait(self, timeout_s: float) -> None:
        """Waits until all records have ended, at most `timeout_s` seconds."""
        self._all.wait(timeout_s)

    @property
    def all(self) -> bool:
        """Whether all records have ended."""
        return self._all.is_set()

    def __len__(self) -> int:
        """Returns how many records have ended."""
        return len(self._ends)

    def noted(self) -> Mapping[int, Acknowledged | SendFailed]:
        """Returns the ends that there are, by the records' numbers."""
        return self._ends.copy()

    def _tell(self) -> None:
        self._all.set()
        self._on_all()


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
    """A batch after its publication, or a part of one, ready to be marked."""

    token: int
    sent: list[ClaimedRow]
    places: list[Acknowledged]
    """Of the rows that were sent, in their order."""
    failed: list[FailedRow]
    away: int = 0
    """Of the failed rows those whose failure may be Kafka's as a whole, and not their topic's."""


class AwaitedRows:
    """Rows of a started batch that have not ended. It keeps no other row. One thread uses it."""

    def __init__(self, started: StartedBatch, chance: Callable[[], float] = random.random) -> None:
        self._token = started.token
        self._ends = started.ends
        self._open = dict(enumerate(started.open))  # by the records' numbers; `part` takes them out
        self._parts = 0  # ends that were returned; `part` writes it
        self._recordless = [FailedRow(row, ENDED, True, None) for row in started.spent]
        self._recordless += started.wrong
        self._chance = chance
        self.size = sum(len(row.payload) for row in started.open)
        """Characters of the open rows' bodies; `part` writes it."""

    def __len__(self) -> int:
        """Returns the number of rows without an end."""
        return len(self._open)

    @property
    def all_ended(self) -> bool:
        """Whether Kafka's client has reported each record."""
        return self._ends.all

    @property
    def news(self) -> bool:
        """Whether `part` would return a row."""
        return len(self._ends) > self._parts or bool(self._recordless)

    def part(self, *, last: bool = False) -> EndedBatch:
        """Returns the rows that have ended since the last call. `last`: all that are left; a record without
        an acknowledgement is in doubt."""
        ended = EndedBatch(self._token, [], [], self._recordless)
        self._recordless = []
        ends = self._ends.noted()
        self._parts = len(ends)
        over = self._open if last else ends.keys() & self._open.keys()
        away = 0
        for number in sorted(over):
            end = ends.get(number)
            self._end(self._open.pop(number), end, ended)
            away += end is None or (isinstance(end, SendFailed) and not is_of_one_topic(end))
        return ended._replace(away=away)

    def _end(
        self, row: ClaimedRow, end: Acknowledged | SendFailed | None, ended: EndedBatch
    ) -> None:
        self.size -= len(row.payload)
        if isinstance(end, Acknowledged):
            ended.sent.append(row)
            ended.places.append(end)
        elif end is None:
            ended.failed.append(failed_row(row, _NO_ANSWER, True, self._chance))
        else:
            again = failed_row(row, str(end), isinstance(end, SendInDoubt), self._chance)
            ended.failed.append(again if end.repeatable else again._replace(delay_ms=None))


def publish_batch(
    batch: ClaimedBatch,
    publisher: BatchPublisher,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
    on_all: Callable[[], None] = _nothing,
) -> StartedBatch:
    """Hands the rows to Kafka's client in the order of their ids. None is handed over after `until`, the
    end of the lease less a margin: a process may have slept. `on_all` is called at the last end."""
    spent = [row for row in batch.rows if row.attempt > row.max_attempts]
    ready = [row for row in batch.rows if row.attempt <= row.max_attempts] if spent else batch.rows
    ready, records, wrong = _made(ready)
    ends = BatchEnds(on_all)
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
    started.ends.wait(max(0.0, until - monotonic()))
    return AwaitedRows(started, chance).part(last=True)


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
