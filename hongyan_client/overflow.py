"""The place of records that Kafka does not take now: the seam between client and spool.

The client hands a record over in three cases: the buffer was full until the deadline, the record failed and
another try may succeed, or earlier records of the same key still wait here. Then a later record never
overtakes an earlier one of its key.
"""

from __future__ import annotations

from typing import Protocol

from hongyan_client.records import Record


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
