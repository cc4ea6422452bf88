"""Spares the rows' attempts while Kafka is away: then one row at a time tries, ever more seldom."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0
PROBE_ROWS: Final = 1


class KafkaOutage:
    """The marker's thread and the relay's write it; each write is a single assignment."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._failures = 0

    @property
    def rows(self) -> int:
        """Rows of the next claim."""
        return PROBE_ROWS if self._failures else self._batch

    @property
    def pause_s(self) -> float:
        """Time before the next claim."""
        if not self._failures:
            return 0.0
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self._failures - 1, 10)))

    @property
    def lasts(self) -> bool:
        """Whether the last batch went nowhere."""
        return self._failures > 0

    def note(self, sent: int, failed: int) -> None:
        """Notes how a batch ended. One acknowledgement ends the outage."""
        if sent:
            self._failures = 0
        elif failed:
            self._failures += 1
