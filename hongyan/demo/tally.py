"""Counting: what was accepted by Kafka against what the ledger and the provider say of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from statistics import quantiles
from typing import Final

import msgspec
from sqlalchemy import text

from backends.sql import Database
from channels.simulator import Report
from message.delivery import deliveries_of
from message.envelope import Notification

IN_DOUBT: Final = "UNKNOWN"
_OPEN: Final = "IN_FLIGHT"
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
    in_doubt_arrived: int
    """Of those in doubt, the ones that the provider has: resending would have doubled them."""
    other: dict[str, int]
    """Deliveries in any other state."""
    p50_ms: float
    p99_ms: float
    seconds: float
    per_second: float


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


def is_over(states: Mapping[str, int], expected: int) -> bool:
    """Every delivery is in the ledger, and none is in flight."""
    return sum(states.values()) >= expected and not states.get(_OPEN)


def tally(book: Book, database: Database, report: Report, seconds: float) -> Tally:
    """Put the three books beside one another."""
    with database.begin() as connection:
        states = {key: state for key, state, _ in connection.execute(_STATES)}
    counts = Counter(states.values())
    arrived = {key.key for key in report.keys if key.accepted}
    doubt = {key for key, state in states.items() if state == IN_DOUBT}
    waits = book.waits_ms(report)
    return Tally(
        notifications=book.notifications,
        accepted=len(book),
        sent=counts.pop("SENT", 0),
        lost=book.lost(states),
        doubled=len(report.summary.doubled),
        in_doubt=counts.pop(IN_DOUBT, 0),
        in_doubt_arrived=len(doubt & arrived),
        other=dict(counts),
        p50_ms=_quantile(waits, 50),
        p99_ms=_quantile(waits, 99),
        seconds=round(seconds, 2),
        per_second=round(len(states) / seconds, 1) if seconds else 0.0,
    )


def witnesses(database: Database) -> list[str]:
    """Messages worth a look: the last one sent, and one in doubt if there is any."""
    with database.begin() as connection:
        by_state = {state: message for _, state, message in connection.execute(_STATES)}
    return [by_state[state] for state in ("SENT", IN_DOUBT) if state in by_state]


def _quantile(values: Sequence[float], percent: int) -> float:
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 1) if values else 0.0
