"""Trace events: one per stage of a delivery, or per poison record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace


class Stage(StrEnum):
    """The stages of a delivery in their usual order, then the unusual ones."""

    ACCEPTED = "accepted"
    """Kafka acknowledged the notification. Written by its producer: a client, a command, a copy,
    a replay."""
    CLAIMED = "claimed"
    TAKEN = "taken"
    """A recovery is about to send it (again): its call is on record."""
    ATTEMPTED = "attempted"
    """A call that another one followed under the same claim; the last one is on SETTLED."""
    SETTLED = "settled"
    RECEIPT = "receipt"
    """The provider reported the outcome."""
    # Unusual ones.
    FOUND = "found"
    """A Spark job found it lost, and recovery entered it into the ledger."""
    RECALL_ASKED = "recall_asked"
    """A person asked for its recall."""
    RECEIPT_CONTRADICTED = "receipt_contradicted"
    """The provider reported another outcome before, which stays."""
    EXPIRED = "expired"
    DROPPED = "dropped"
    PARKED = "parked"
    """Parked at its claim: its template or account must be mended."""
    RECALLED = "recalled"
    """Sent, and taken back by its provider."""
    HELD = "held"
    BEHIND = "behind"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    FENCED = "fenced"
    OWNER_DEAD = "owner_dead"
    """`worker` died during `attempt`. Written by recovery when it decides the doubt."""
    RESOLVED = "resolved"
    DEAD_LETTER = "dead_letter"
    HANDED_OVER = "handed_over"
    REMOVED = "removed"
    """Kafka removed records before they were read; it has no message id."""


LANE_RECALL: Final = "lane_recall"
"""`reason` on RECALL_ASKED: the recall covers the event's lane alone."""


class TraceEvent(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One event; the wire form is this struct as JSON, defaults left out.

    `at` and the marks are epoch milliseconds by the worker's clock (kept to the database's).
    """

    at: int
    stage: Stage
    message_id: str
    delivery_key: str = ""
    biz_id: str | None = None
    lane: str = ""
    receiver: str = ""
    """Masked."""
    receiver_hash: str = ""
    """HMAC-SHA256 in hex under `outcomes.hash_key` (message/outcome_event.py); empty without a key."""
    template: str = ""
    """Name of the notification's template; empty for inline content."""
    worker: str = ""
    attempt: int = 0
    state: str = ""
    reason: str | None = None
    """A code of Hongyan's own."""
    code: str = ""
    """The provider's code for the last call or receipt; empty where it gave none."""
    detail: str | None = None
    """One sentence for people; no secret, no content."""
    account: str = ""
    provider_id: str | None = None
    origin: str | None = None
    """topic/partition/offset."""
    policy_version: str = ""
    traceparent: str | None = None
    created_at: int = 0
    """Creation of the notification. An event made from a ledger row alone has the start of the row, which
    is later: the least of a delivery's events is right."""
    received_at: int = 0
    """Time at which the worker read the record from Kafka."""
    claimed_at: int = 0
    """Time of the ledger's answer to the claim. The worker marks the delivery's next event with it: an
    event of its own would double the trace. Without a next event the ledger still has the claim."""
    started_at: int = 0
    """Start of the provider call (on SETTLED and ATTEMPTED)."""
    answered_at: int = 0
    """End of the provider call (on SETTLED and ATTEMPTED)."""
    call_end: str = ""
    """Kind of an end without an answer (message/outcomes.py `CallEnd`)."""
    answer: str = ""
    """The provider's answer to a call that it did not accept, masked, at most 2 KiB. The warehouse does not
    keep it."""


def owner_death(decision: TraceEvent, *, owner: str, since: int, claimed_at: int) -> TraceEvent:
    """Returns the event that a dead worker could not write, from the event of the decision on its call."""
    return replace(
        decision,
        at=since,
        stage=Stage.OWNER_DEAD,
        worker=owner,
        state="UNKNOWN",
        reason=None,
        code="",
        detail="no outcome of its call was recorded",
        answer="",
        provider_id=None,
        claimed_at=claimed_at,
    )


class Recorder(Protocol):
    """Takes events from any thread. Never blocks, never raises; counts the events that it drops."""

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Hands events over to be written soon."""

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """Returns the events lost since the start, by (sink, reason)."""

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes buffered events, for at most `timeout_s` seconds; idempotent."""


class NoRecorder:
    """The twin that keeps nothing."""

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Keeps nothing."""

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """Returns nothing: no event is lost."""
        return {}

    def close(self, timeout_s: float = 5.0) -> None:
        """Has nothing to write."""
