"""Compares the deliveries that Kafka accepted with the ledger and the provider's report."""

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
    """Accepted deliveries without a ledger row."""
    doubled: int
    in_doubt: int
    """Left in doubt by the kill, before recovery began."""
    in_doubt_arrived: int
    """Of those, deliveries that the provider had: a blind repeat would have doubled them."""
    other: dict[str, int]
    """Deliveries in any other state."""
    p50_ms: float
    p99_ms: float
    seconds: float
    per_second: float


class Doubt(msgspec.Struct, frozen=True):
    """Deliveries in doubt before recovery began."""

    messages: dict[str, str]
    """Delivery key to message id."""
    arrived: int


class Book:
    """Every delivery that Kafka acknowledged, by key."""

    def __init__(self) -> None:
        self._created_at: dict[str, int] = {}
        self.notifications = 0

    def add(self, notification: Notification, value: bytes) -> None:
        """Adds one acknowledged notification."""
        self.notifications += 1
        for delivery in deliveries_of(notification, value, expires_at=0):
            self._created_at[delivery.key] = notification.created_at

    def __len__(self) -> int:
        return len(self._created_at)

    def lost(self, known: Collection[str]) -> int:
        """Returns how many deliveries are not among `known`."""
        return len(self._created_at.keys() - set(known))

    def waits_ms(self, report: Report) -> list[int]:
        """Returns the milliseconds from each delivery's creation to the provider."""
        return [
            max(key.first_ms - self._created_at[key.key], 0)
            for key in report.keys
            if key.key in self._created_at
        ]


def progress(database: Database) -> Counter[str]:
    """Returns the deliveries by state now."""
    with database.begin() as connection:
        return Counter(dict(connection.execute(_COUNTS).all()))


def is_over(states: Mapping[str, int], expected: int, running: Collection[str] = IN_FLIGHT) -> bool:
    """Whether every delivery is in the ledger, none of them in a state of `running`."""
    return sum(states.values()) >= expected and not any(states.get(state) for state in running)


def doubt_in(database: Database, report: Report) -> Doubt:
    """Returns the deliveries in doubt now, and how many of them the provider has."""
    arrived = {key.key for key in report.keys if key.accepted}
    doubt = {key: message for key, state, message in _rows(database) if state == IN_DOUBT}
    return Doubt(doubt, len(doubt.keys() & arrived))


def tally(book: Book, database: Database, report: Report, doubt: Doubt, seconds: float) -> Tally:
    """Compares book, ledger and report. `seconds` leaves the recovery out."""
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
    """Returns up to two message ids: one that was simply sent, one that was in doubt."""
    sent = (m for key, state, m in _rows(database) if state == "SENT" and key not in doubt.messages)
    return [*islice(sent, 1), *islice(doubt.messages.values(), 1)]


def _rows(database: Database) -> Sequence[tuple[str, str, str]]:
    with database.begin() as connection:
        return [(key, state, message) for key, state, message in connection.execute(_STATES)]


def _quantile(values: Sequence[float], percent: int) -> float:
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 1) if values else 0.0
