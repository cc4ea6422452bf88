"""Spares the rows' attempts while Kafka is away: then one row of each topic tries, ever more seldom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hongyan_client.outbox.store import ClaimedRow

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0


class KafkaOutage:
    """The marker's thread writes it; the claiming threads read it."""

    def __init__(self) -> None:
        self._failures = 0

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


def probe_of(rows: Sequence[ClaimedRow]) -> tuple[list[ClaimedRow], list[ClaimedRow]]:
    """Returns the first row of each topic, and the others. So a topic that alone is at fault keeps no row
    of another one waiting."""
    first: dict[str, ClaimedRow] = {}
    others = [row for row in rows if first.setdefault(row.topic, row) is not row]
    return list(first.values()), others
