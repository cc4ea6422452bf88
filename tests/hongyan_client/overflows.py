"""Overflows in memory, in place of a spool."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from hongyan_client import ClientError, Publisher, Record
from hongyan_client.overflow import ExpiringRecord


class MemoryOverflow:
    """Keeps records in a list, each after `keep_s` seconds, and publishes them when asked."""

    keep_s = 0.0

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.kept: list[ExpiringRecord] = []
        self.full = False
        self._disk = threading.Event()  # never set: a slow disk

    def keep(self, record: Record, expires_at_ms: int) -> None:
        if self.full:
            raise ClientError("the spool is full; free space on its disk")
        self._disk.wait(self.keep_s)
        self.kept.append(ExpiringRecord(record, expires_at_ms))

    def holds(self, topic: str, key: bytes | None) -> bool:
        return any((one.record.topic, one.record.key) == (topic, key) for one in self.kept)

    def waiting(self) -> int:
        return len(self.kept)

    def drain(self, timeout_s: float) -> int:
        while self.kept:
            self.publisher.publish(self.kept[0].record, timeout_s).result(timeout_s)
            del self.kept[0]
        return 0

    def close(self, timeout_s: float) -> None:
        pass


class BulkMemoryOverflow(MemoryOverflow):
    """Keeps many by one commit."""

    def keep_all(self, records: Sequence[ExpiringRecord]) -> None:
        for one in records:
            self.keep(*one)
