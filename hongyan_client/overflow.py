"""The place of records that Kafka does not take now: the seam between client and spool.

The client hands records over in three cases: the buffer was full until the deadline, records failed and
another try may succeed, or earlier records of the same key still wait here. In the first two the client
takes all buffered records back first, and hands them over in their order. Then a later record never
overtakes an earlier one of its key. One thread of the client makes these calls, in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from hongyan_client.records import Record

if TYPE_CHECKING:
    from hongyan_client.publisher import Publisher


class Overflow(Protocol):
    """Keeps records durably, and publishes them later, in order per key. Any thread calls it."""

    def keep(self, record: Record, expires_at_ms: int) -> None:
        """Returns once the record is durable. Raises ClientError if it cannot be kept: the caller of the
        client then gets that error. `expires_at_ms`: epoch milliseconds after which nobody wants it."""

    def holds(self, topic: str, key: bytes | None) -> bool:
        """Whether a record of this topic and key waits here. Quick: the client asks before each record."""

    def waiting(self) -> int:
        """Returns the number of records that wait."""

    def drain(self, timeout_s: float) -> int:
        """Publishes what it can for at most `timeout_s` seconds. Returns the number that still waits."""

    def close(self, timeout_s: float) -> None:
        """Ends its threads and closes its file; idempotent. Kept records stay on disk."""


class ExpiringRecord(NamedTuple):
    """A record and the end of its use."""

    record: Record
    expires_at_ms: int


@runtime_checkable
class BulkOverflow(Protocol):
    """An overflow that keeps many records by one commit. The client prefers `keep_all` where it exists."""

    def keep_all(self, records: Sequence[ExpiringRecord]) -> None:
        """Returns once all records are durable, in this order. Raises ClientError if none was kept."""


OpenOverflow = Callable[["Publisher"], Overflow]
"""Opens the overflow of one client; it publishes through the client's publisher."""
