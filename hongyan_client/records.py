"""One Kafka record before and after its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

from hongyan_client.errors import SendFailed

Headers = Sequence[tuple[str, bytes]]
RecordParts = tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]
"""Topic, key, value and headers: what a `Record` is, without the cost of its class."""
OVERHEAD: Final = 256
"""Bytes that the buffers spend on a record beside its contents, about."""


class Record(NamedTuple):
    """A record to publish."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Bytes that the record takes in the buffer, about."""
        size = len(self.value) + len(self.key or b"") + OVERHEAD
        for name, value in self.headers:
            size += len(name) + len(value)
        return size


class Acknowledged(NamedTuple):
    """Place of a record that every in-sync replica has."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Epoch milliseconds of the record, as Kafka keeps it."""


OnEnd = Callable[[Acknowledged | SendFailed], None]
"""Gets the end of one record. It must be quick, and must not raise."""
OnBatchEnd = Callable[[int, Acknowledged | SendFailed], None]
"""Gets a record's number in its batch, and its place in Kafka once every in-sync replica has it, or its
failure. It must be quick, and must not raise."""


class RecordPublisher(Protocol):
    """The part of `hongyan_client.publisher.Publisher` that spool and look-back need."""

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """Returns the acknowledgement to come. Raises ClientError."""
        ...


class BatchPublisher(Protocol):
    """The part of `hongyan_client.publisher.Publisher` that the outbox needs."""

    def publish_batch(
        self, records: Sequence[Record], on_end: OnBatchEnd, deadline_s: float
    ) -> int:
        """Publishes records in their order. Returns the number of those taken, the first ones."""
        ...
