"""The demo's progress, as the ledger shows it: deliveries of each worker and lane, and the live rate."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import text

from backends.sql.database import Database

IN_DOUBT: Final = "UNKNOWN"
IN_FLIGHT: Final = frozenset({"IN_FLIGHT"})
OPEN: Final = IN_FLIGHT | {IN_DOUBT, "RETRY"}
SENT: Final = "SENT"
_COUNTS = text(
    "SELECT owner, lane, state, count(*) FROM hongyan_deliveries GROUP BY owner, lane, state"
)
_OF_OWNER = text(
    "SELECT delivery_key FROM hongyan_deliveries WHERE owner = :owner AND state = 'IN_FLIGHT'"
)
_PLACES = text("SELECT DISTINCT owner, kafka_topic, kafka_partition FROM deliveries")
_WINDOW_S: Final = 1.0


class FleetProgress(msgspec.Struct, frozen=True):
    """One look at the ledger."""

    seconds: float
    """Since the first notification was handed to Kafka."""
    workers: dict[str, Counter[str]]
    """Deliveries by state, for each worker that claimed any."""
    lanes: dict[str, Counter[str]]
    per_second: float
    """Deliveries sent in the last second."""
    killed: tuple[str, ...] = ()
    """Workers that were killed."""

    @property
    def states(self) -> Counter[str]:
        """Deliveries by state."""
        return sum(self.lanes.values(), Counter())

    def is_over(self, expected: int, running: frozenset[str] = IN_FLIGHT) -> bool:
        """Whether all expected deliveries are in the ledger, none of them in a state of `running`."""
        states = self.states
        return states.total() >= expected and not any(states[state] for state in running)


class ProgressReader:
    """Reads the ledger; keeps the last second for the rate."""

    def __init__(self, database: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._monotonic = monotonic
        self._began = monotonic()
        self.killed: list[str] = []
        """Written by the scenario, from the same thread."""
        self._seen: deque[tuple[float, int]] = deque([(0.0, 0)])

    def look(self) -> FleetProgress:
        """Returns the progress now."""
        workers: dict[str, Counter[str]] = {}
        lanes: dict[str, Counter[str]] = {}
        with self._database.begin() as connection:
            for owner, lane, state, count in connection.execute(_COUNTS):
                workers.setdefault(owner, Counter())[state] += count
                lanes.setdefault(lane, Counter())[state] += count
        seconds = self._monotonic() - self._began
        sent = sum(states[SENT] for states in lanes.values())
        return FleetProgress(seconds, workers, lanes, self._rate(seconds, sent), tuple(self.killed))

    def in_flight(self, worker: str) -> list[str]:
        """Returns the keys of the deliveries that a worker has claimed and not settled."""
        with self._database.begin() as connection:
            return list(connection.execute(_OF_OWNER, {"owner": worker}).scalars())

    def shares_partitions(self, one: str, other: str) -> bool:
        """Whether both workers claimed from one partition: one of them took it over from the other."""
        places: dict[str, set[tuple[str, int]]] = {}
        with self._database.begin() as connection:
            for owner, topic, partition in connection.execute(_PLACES):
                places.setdefault(owner, set()).add((topic, partition))
        return bool(places.get(one, set()) & places.get(other, set()))

    def _rate(self, seconds: float, sent: int) -> float:
        self._seen.append((seconds, sent))
        while len(self._seen) > 1 and self._seen[1][0] <= seconds - _WINDOW_S:
            self._seen.popleft()
        before, then = self._seen[0]
        return (sent - then) / (seconds - before) if seconds > before else 0.0
