"""Reports of librdkafka about one record each, and the count of records in the buffer.

There is one report for each record in the buffer. Python's garbage collector does not look at them: none is
part of a cycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hongyan_client.delivery_errors import failure_of
from hongyan_client.errors import SendFailed
from hongyan_client.record_ages import RecordAges
from hongyan_client.records import Acknowledged, OnBatchEnd, OnEnd

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message


class BufferUse:
    """Records that one publisher took and that ended, and their bytes."""

    __slots__ = ("age", "ages", "done", "done_bytes", "failed", "taken", "taken_bytes")

    def __init__(self, ages: RecordAges | None) -> None:
        self.ages = ages
        self.age = ages.now() if ages is not None else 0  # written by the holder of the poll lock
        self.taken = self.taken_bytes = 0  # written under the publisher's lock, by `take`
        self.done = self.done_bytes = 0  # written by the holder of the poll lock, in reports
        self.failed = 0  # of the done ones; written like these


class RecordReport(msgspec.Struct, gc=False):
    """A subclass says in `end` what happens at the end of its record."""

    use: BufferUse
    size: int
    """Bytes of the record in the buffer, about."""
    age: int
    """Period in which it was taken; the publisher sets it, unless it is AGELESS."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Counts the end of the record and tells it. Runs in the thread that holds the poll lock."""
        use = self.use
        use.done += 1
        use.done_bytes += self.size
        if use.ages is not None:
            use.ages.ended(self.age)
        if error is None:
            self.end(None, message)
        else:
            self.fail(error, message)

    def fail(self, error: KafkaError, message: Message) -> None:
        """Counts a failure and tells it."""
        self.use.failed += 1
        self.end(failure_of(error, message.topic() or ""), message)

    def end(self, failure: SendFailed | None, message: Message | None) -> None:
        """Gets the failure (None: it is acknowledged), and librdkafka's report, which a refused record
        has not. It must be quick, and must not raise."""
        raise NotImplementedError


class EndReport(RecordReport, gc=False):
    """The report of a record of `publish_to`."""

    on_end: OnEnd

    def end(self, failure: SendFailed | None, message: Message | None) -> None:
        if failure is not None:
            self.on_end(failure)
        elif message is not None:
            self.on_end(_place_of(message))


class NumberedReport(RecordReport, gc=False):
    """The report of a record of `publish_batch`."""

    on_end: OnBatchEnd
    number: int

    def end(self, failure: SendFailed | None, message: Message | None) -> None:
        if failure is not None:
            self.on_end(self.number, failure)
        elif message is not None:
            self.on_end(self.number, _place_of(message))


def _place_of(message: Any) -> Acknowledged:
    return Acknowledged._make(
        (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
    )
