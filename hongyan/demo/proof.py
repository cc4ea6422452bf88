"""The demo's proof: the provider's own book against the notifications that Kafka acknowledged.

The judge reads two things alone: the notifications as they were written, and the provider's records. Each
receiver of each notification must have been accepted exactly once. The ledger only explains the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from statistics import quantiles
from typing import Final, NamedTuple

import msgspec

from backends.sql.database import Database
from hongyan.demo.progress import IN_DOUBT, rows
from message.envelope import Notification
from simulator import LedgerRecord

_STATES: Final = "SELECT delivery_key, state, message_id FROM hongyan_deliveries"
_MS: Final = 1_000


class Addressee(NamedTuple):
    """One receiver of one notification."""

    id: str
    receiver: str


class AcknowledgedSends:
    """Every receiver of every notification that Kafka acknowledged."""

    def __init__(self) -> None:
        self.created_at: dict[Addressee, int] = {}
        self.notifications = 0

    def add(self, notification: Notification) -> None:
        """Adds one acknowledged notification; a receiver listed twice counts once."""
        self.notifications += 1
        for receiver in notification.receivers:
            self.created_at[Addressee(notification.id, receiver)] = notification.created_at

    def __len__(self) -> int:
        return len(self.created_at)


class ProviderProof(msgspec.Struct, frozen=True):
    """The provider's book against the acknowledged notifications."""

    expected: int
    once: int
    """Receivers that the provider accepted exactly once."""
    lost: list[Addressee]
    doubled: list[Addressee]
    unasked: list[Addressee]
    """Accepted by the provider, and in no notification."""

    @property
    def holds(self) -> bool:
        """Whether each receiver was accepted exactly once, of at least one notification."""
        return 0 < self.expected == self.once and not (self.lost or self.doubled or self.unasked)

    def sentence(self) -> str:
        """Returns the failure in one sentence."""
        if not self.expected:
            return "nothing was sent, so nothing is proven"
        parts = {
            "lost": self.lost,
            "doubled": self.doubled,
            "sent without having been asked for": self.unasked,
        }
        named = [f"{len(found):,} {name}" for name, found in parts.items() if found]
        first = next((found[0] for found in parts.values() if found), Addressee("none", "none"))
        return (
            f"the provider's book does not have each receiver exactly once: {', '.join(named)}, "
            f"such as {first.receiver} of {first.id}; look with --keep FOLDER"
        )


def prove(sends: AcknowledgedSends, book: Iterable[LedgerRecord]) -> ProviderProof:
    """Returns the proof: counts the provider's acceptances, receiver by receiver."""
    accepted = Counter(Addressee(one.id, one.receiver) for one in book if one.accepted)
    asked = sends.created_at.keys()
    return ProviderProof(
        expected=len(sends),
        once=sum(accepted[one] == 1 for one in asked),
        lost=[one for one in asked if not accepted[one]],
        doubled=[one for one in asked if accepted[one] > 1],
        unasked=[one for one in accepted if one not in asked],
    )


class DemoSummary(msgspec.Struct, frozen=True):
    """The demo's result. Times begin when both workers were ready; milliseconds run from a notification's
    creation to the provider."""

    notifications: int
    expected: int
    """Receivers of notifications that Kafka acknowledged."""
    sent_once: int
    """Receivers that are in the provider's book exactly once."""
    lost: int
    doubled: int
    unasked: int
    in_doubt: int
    """Deliveries in doubt after the kill, before recovery began."""
    in_doubt_arrived: int
    """Of those, deliveries that the provider had: a blind repeat would have doubled them."""
    ledger: dict[str, int]
    """Deliveries by state."""
    takeover_s: float
    """From the kill to the first claim by the other worker in the killed one's partitions."""
    p50_ms: float
    p99_ms: float
    seconds: float
    """From the first notification to the last acceptance before recovery began."""
    per_second: float


class Doubt(msgspec.Struct, frozen=True):
    """Deliveries in doubt before recovery began."""

    messages: dict[str, str]
    """Delivery key to message id."""
    arrived: int


def ledger_states(database: Database) -> dict[str, tuple[str, str]]:
    """Returns state and message id of each delivery key."""
    return {key: (state, message) for key, state, message in rows(database, _STATES)}


def doubt_in(states: Mapping[str, tuple[str, str]], book: Iterable[LedgerRecord]) -> Doubt:
    """Returns the deliveries in doubt, and how many of them the provider has."""
    doubt = {key: message for key, (state, message) in states.items() if state == IN_DOUBT}
    arrived = {one.key for one in book if one.accepted}
    return Doubt(doubt, len(doubt.keys() & arrived))


def waits_ms(sends: AcknowledgedSends, book: Iterable[LedgerRecord]) -> list[int]:
    """Returns the milliseconds from creation to the provider, for each accepted receiver."""
    created = sends.created_at
    return [
        max(one.at_ms - created[addressee], 0)
        for one in book
        if one.accepted and (addressee := Addressee(one.id, one.receiver)) in created
    ]


def quantile(values: Collection[int], percent: int) -> float:
    """Returns the percentile; 0 of nothing."""
    if len(values) < 2:
        return float(sum(values))
    return round(quantiles(values, n=100, method="inclusive")[percent - 1], 1)


def duration_s(sends: AcknowledgedSends, book: Iterable[LedgerRecord]) -> float:
    """Returns the seconds from the first notification to the last acceptance; 0 without any."""
    ends = [one.at_ms for one in book if one.accepted]
    return (max(ends) - min(sends.created_at.values())) / _MS if ends and len(sends) else 0.0
