"""Counting: what was accepted by Kafka against what the ledger and the provider say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from statistics import quantiles
from typing import Final

import msgspec
from sqlalchemy import text

from backends.sql.database import Database
from message.delivery import deliveries_of
from message.envelope import Notification
from simulator import Report

IN_DOUBT: Final = "UNKNOWN"
IN_FLIGHT: Final = frozenset({"IN_FLIGHT"})
OPEN: Final = IN_FLIGHT | {IN_DOUBT, "RETRY"}
_STATES = text("SELECT delivery_key, state, message_id FROM hongyan_deliveries")
_COUNTS = text("SELECT state, count(*) FROM hongyan_deliveries GROUP BY state")


class Tally(msgspec.Struct, frozen=True):
    """The demo's result; times in milliseconds from the notification's creation to the provider."""

    notifications: int
    accepted: int
    """Deliveries handed to Kafka and acknowledged."""
    sent: int
    lost: int
    """Accepted, and the ledger does not know them."""
    doubled: int
    in_doubt: int
    """Left in doubt by the kill, before recovery began."""
    in_doubt_arrived: int
    """Of those, the ones that the provider had: sending them again blindly would have doubled them."""
    other: dict[str, int]
    """Deliveries in any other state."""
    p50_ms: float
    p99_ms: float
    seconds: float
    per_second: float


class Doubt(msgspec.Struct, frozen=True):
    """What was in doubt before recovery began."""

    messages: dict[str, str]
    """Delivery key to message id."""
    arrived: int


class Book:
    """Every delivery that Kafka acknowledged, by key."""

    def __init__(self) -> None:
        self._created_at: dict[str, int] = {}
        self.notifications = 0

    def add(self, notification: Notification, value: bytes) -> None:
        """One acknowledged notification."""
        self.notifications += 1
        for delivery in deliveries_of(notification, value, expires_at=0):
            self._created_at[delivery.key] = notification.created_at

    def __len__(self) -> int:
        return len(self._created_at)

    def lost(self, known: Collection[str]) -> int:
        """How many of them are not among `known`."""
        return len(self._created_at.keys() - set(known))

    def waits_ms(self, report: Report) -> list[int]:
        """How long each took to reach the provider."""
        return [
            max(key.first_ms - self._created_at[key.key], 0)
            for key in report.keys
            if key.key in self._created_at
        ]


def progress(database: Database) -> Counter[str]:
    """Deliveries by state, now."""
    with database.begin() as connection:
        return Counter(dict(connection.execute(_COUNTS).all()))


def is_over(states: Mapping[str, int], expected: int, running: Collection[str] = IN_FLIGHT) -> bool:
    """Every delivery is in the ledger, and none in one of the states that do not last."""
    return sum(states.values()) >= expected and not any(states.get(state) for state in running)


def doubt_in(database: Database, report: Report) -> Doubt:
    """What is in doubt now, and how much of it the provider has."""
    arrived = {key.key for key in report.keys if key.accepted}
    doubt = {key: message for key, state, message in _rows(database) if state == IN_DOUBT}
    return Doubt(doubt, len(doubt.keys() & arrived))


def tally(book: Book, database: Database, report: Report, doubt: Doubt, seconds: float) -> Tally:
    """Put the three books beside one another. `seconds` without the recovery."""
    states = {key: state for key, state, _ in _rows(database)}
    counts = Counter(states.values())
    waits = book.waits_ms(report)
    return Tally(
        notifications=book.notifications,
        accepted=len(book),
        sent=counts.pop("SENT", 0),
        lost=book.lost(states),
        doubled=len(report.summary.doubled),
        in_doubt=len(doubt.messages),
        in_doubt_arrived=doubt.arrived,
        other=dict(counts),
        p50_ms=_quantile(waits, 50),
        p99_ms=_quantile(waits, 99),
        seconds=round(seconds, 2),
        per_second=round(len(states) / seconds, 1) if seconds else 0.0,
    )


def witnesses(database: Database, doubt: Doubt) -> list[str]:
    """Messages worth a look: one that was simply sent, and one that was in doubt if there was any."""
    sent = (m for key, state, m in _rows(database) if state == "SENT" and key not in doubt.messages)
    return [*islice(sent, 1), *islice(doubt.messages.values(), 1)]


def _rows(database: Database) -> Sequence[tuple[str, str, str]]:
    with database.begin() as connection:
        return [(key, state, message) for key, state, message in connection.execute(_STATES)]


def _quantile(values: Sequence[float], percent: int) -> float:
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 1) if values else 0.0
