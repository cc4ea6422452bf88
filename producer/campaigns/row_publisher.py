"""Publishes the records of rows, and publishes again those that Kafka did not take.

The publisher's thread puts each answer into a queue; the sender's thread takes it from there. A row keeps
its bytes and its id however often it is published.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, Protocol

import structlog

from hongyan_client.errors import BufferFull, SendFailed
from hongyan_client.records import Acknowledged, Record
from message.envelope import Notification
from producer.campaigns.checkpoint import PendingRow, RowEnd

log = structlog.get_logger(__name__)
AGAIN_S: Final = 1.0
_ROOM_S: Final = 1.0
"""Longest wait for room in the publisher's buffer."""


class PublishesRecords(Protocol):
    """The part of `hongyan_client.publisher.Publisher` that campaigns need."""

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """See `Publisher.publish`."""
        ...


class RunTrouble(Exception):
    """The run must wait for a person; the text is the campaign's note."""


class SentRow(NamedTuple):
    """A row that is being published."""

    row: PendingRow
    notification: Notification
    record: Record
    traceparent: str
    """The record's W3C trace context."""


OnRowAccepted = Callable[[Notification, Acknowledged, str], None]
"""Gets an acknowledged notification, its place and its trace context."""


class RowPublisher:
    """For one thread; the publisher's thread puts into `_answers` alone."""

    def __init__(
        self,
        publisher: PublishesRecords,
        accepted: OnRowAccepted,
        monotonic: Callable[[], float],
        run_id: str,
    ) -> None:
        self._publisher = publisher
        self._accepted = accepted
        self._monotonic = monotonic
        self._run_id = run_id
        self._answers: SimpleQueue[tuple[SentRow, Future[Acknowledged]]] = SimpleQueue()
        self._again: deque[SentRow] = deque()
        self._again_at = float("-inf")
        self._refused = ""

    @property
    def again(self) -> int:
        """The rows that wait to be published again."""
        return len(self._again)

    def publish(self, sent: SentRow) -> None:
        """Publishes a row; without room in the buffer later. The rows behind such a row do not wait."""
        if self._again:
            self._again.append(sent)
            return
        try:
            future = self._publisher.publish(sent.record, _ROOM_S)
        except BufferFull:
            self._again.append(sent)
            return
        future.add_done_callback(lambda ended: self._answers.put((sent, ended)))

    def publish_again(self, goes_on: Callable[[], bool]) -> None:
        """Publishes the rows that Kafka did not take, AGAIN_S after the last such answer. Asks before each
        row whether it may go."""
        if not self._again or self._monotonic() < self._again_at:
            return
        rows, self._again = self._again, deque()
        try:
            while rows and goes_on():
                self.publish(rows.popleft())
        finally:
            self._again.extend(rows)

    def collect(self, wait_s: float) -> None:
        """Settles the rows whose answers came; waits for the first one. Raises RunTrouble if Kafka refuses
        the run's records for good."""
        try:
            answer = self._answers.get(timeout=wait_s) if wait_s else self._answers.get_nowait()
            while True:
                self._answered(*answer)
                answer = self._answers.get_nowait()
        except Empty:
            pass
        if self._refused:
            raise RunTrouble(self._refused)

    def _answered(self, sent: SentRow, ended: Future[Acknowledged]) -> None:
        error = ended.exception()
        if error is None:
            place = ended.result()
            sent.row.record = place.partition, place.offset
            sent.row.end = RowEnd.SENT
            self._accepted(sent.notification, place, sent.traceparent)
            return
        if isinstance(error, SendFailed) and not error.repeatable:
            self._refused = f"Kafka takes none of its rows: {error}"
        if not self._again:
            log.warning("campaign_row_not_taken", run=self._run_id, cause=str(error))
        self._again.append(sent)
        self._again_at = self._monotonic() + AGAIN_S
