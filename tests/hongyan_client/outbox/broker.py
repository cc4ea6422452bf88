"""A broker whose every answer a test decides."""

from __future__ import annotations

from collections.abc import Sequence

from hongyan_client.errors import BufferFull, SendFailed
from hongyan_client.records import Acknowledged, OnBatchEnd, Record


class Broker:
    """Stands for `Publisher`: keeps what came, and answers at once, or when the test says so."""

    def __init__(self) -> None:
        self.came: list[Record] = []
        self.failure: SendFailed | None = None
        self.refusal: Exception | None = None
        self.silent = False

    def publish_batch(
        self, records: Sequence[Record], on_end: OnBatchEnd, deadline_s: float
    ) -> int:
        if isinstance(self.refusal, BufferFull):
            return 0
        if self.refusal is not None:
            raise self.refusal
        for number, record in enumerate(records):
            self.came.append(record)
            if not self.silent:
                on_end(number, self.failure or self._place_of(record))
        return len(records)

    def _place_of(self, record: Record) -> Acknowledged:
        return Acknowledged(record.topic, 0, len(self.came), 1_800_000_000_000)

    @property
    def ids(self) -> list[str]:
        return [dict(record.headers)["hongyan-id"].decode() for record in self.came]
