"""Publishes claimed rows and says how each ended; used by relays and by `CommitPublisher`.

acknowledged                       → SENT
certainly not in Kafka, in doubt   → again after a back-off, with the same id; spent → PARKED
refused for what it is             → PARKED
not handed to Kafka                → given back, and the attempt does not count
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from typing import Final, NamedTuple

from hongyan_client.errors import BufferFull, ClientClosed, SendFailed, SendInDoubt
from hongyan_client.outbox.entry import record_headers_of
from hongyan_client.outbox.store import ClaimedBatch, ClaimedRow, FailedRow
from hongyan_client.records import Acknowledged, Record, RecordPublisher

_MOST_DOUBLINGS: Final = 30
_FULL_S: Final = 1.0
"""Longest wait for room in the publisher's buffer."""
ENDED: Final = "every attempt ended with the process that made it"


class StartedBatch(NamedTuple):
    """A claimed batch in the hands of Kafka's client."""

    token: int
    open: Sequence[tuple[ClaimedRow, Future[Acknowledged]]]
    unsent: Sequence[ClaimedRow]
    """Rows that were not handed over: no room, or the lease had ended."""
    spent: Sequence[ClaimedRow]
    """Rows whose attempts were all used up by processes that ended."""


class EndedBatch(NamedTuple):
    """A batch after its publication, ready to be marked."""

    token: int
    sent: Sequence[ClaimedRow]
    failed: Sequence[FailedRow]


def publish_batch(
    batch: ClaimedBatch,
    publisher: RecordPublisher,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
) -> StartedBatch:
    """Hands the rows to Kafka's client in the order of their ids. None is handed over after `until`, the
    end of the lease less a margin: a process may have slept."""
    spent = [row for row in batch.rows if row.attempt > row.max_attempts]
    ready = [row for row in batch.rows if row.attempt <= row.max_attempts]
    started: list[tuple[ClaimedRow, Future[Acknowledged]]] = []
    for row in ready:
        left = until - monotonic()
        if left <= 0:
            break
        try:
            started.append((row, publisher.publish(_record(row), min(left, _FULL_S))))
        except (BufferFull, ClientClosed):
            break
    return StartedBatch(batch.token, started, ready[len(started) :], spent)


def await_batch(
    started: StartedBatch,
    until: float,
    monotonic: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> EndedBatch:
    """Waits for the acknowledgements, at most until `until`. A record without one is in doubt."""
    sent: list[ClaimedRow] = []
    failed = [FailedRow(row, ENDED, True, None) for row in started.spent]
    for row, future in started.open:
        try:
            future.result(max(0.0, until - monotonic()))
        except NoAnswer:
            failed.append(
                failed_row(row, "Kafka did not answer before the lease ended", True, chance)
            )
        except SendFailed as exc:
            in_doubt = isinstance(exc, SendInDoubt)
            again = failed_row(row, str(exc), in_doubt, chance)
            failed.append(again if exc.repeatable else again._replace(delay_ms=None))
        else:
            sent.append(row)
    return EndedBatch(started.token, sent, failed)


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


def _record(row: ClaimedRow) -> Record:
    return Record(
        row.topic, row.msg_key.encode(), row.payload.encode(), record_headers_of(row.headers)
    )
