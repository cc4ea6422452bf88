"""The demo's progress, as the ledger shows it: deliveries of each worker and lane, and the live rate."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from backends.sql.database import Database

IN_DOUBT: Final = "UNKNOWN"
IN_FLIGHT: Final = frozenset({"IN_FLIGHT"})
OPEN: Final = IN_FLIGHT | {IN_DOUBT, "RETRY"}
SENT: Final = "SENT"
_COUNTS: Final = (
    "SELECT owner, lane, state, count(*) FROM hongyan_deliveries GROUP BY owner, lane, state"
)
_OF_OWNER: Final = (
    "SELECT delivery_key FROM hongyan_deliveries WHERE owner = ? AND state = 'IN_FLIGHT'"
)
_PLACES: Final = "SELECT DISTINCT owner, kafka_topic, kafka_partition FROM deliveries"
_WINDOW_S: Final = 1.0


def rows(database: Database, statement: str, *values: str) -> list[tuple[Any, ...]]:
    """Returns what a statement finds. It takes no lock: a frozen worker may hold SQLite's write lock."""
    with database.connection() as connection:
        found: list[tuple[Any, ...]] = connection.execute(statement, values).fetchall()
    return found


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
        for owner, lane, state, count in rows(self._database, _COUNTS):
            workers.setdefault(owner, Counter())[state] += count
            lanes.setdefault(lane, Counter())[state] += count
        seconds = self._monotonic() - self._began
        sent = sum(states[SENT] for states in lanes.values())
        return FleetProgress(seconds, workers, lanes, self._rate(seconds, sent), tuple(self.killed))

    def in_flight(self, worker: str) -> list[str]:
        """Returns the keys of the deliveries that a worker has claimed and not settled."""
        return [key for (key,) in rows(self._database, _OF_OWNER, worker)]

    def shares_partitions(self, one: str, other: str) -> bool:
        """Whether both workers claimed from one partition: one of them took it over from the other."""
        places: dict[str, set[tuple[str, int]]] = {}
        for owner, topic, partition in rows(self._database, _PLACES):
            places.setdefault(owner, set()).add((topic, partition))
        return bool(places.get(one, set()) & places.get(other, set()))

    def _rate(self, seconds: float, sent: int) -> float:
        self._seen.append((seconds, sent))
        while len(self._seen) > 1 and self._seen[1][0] <= seconds - _WINDOW_S:
            self._seen.popleft()
        before, then = self._seen[0]
        return (sent - then) / (seconds - before) if seconds > before else 0.0
