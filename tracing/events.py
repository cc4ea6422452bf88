"""Trace events: one per stage of a delivery, or per poison record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Stage(StrEnum):
    """The stages of a delivery in their usual order, then the unusual ones."""

    CLAIMED = "claimed"
    ATTEMPTED = "attempted"
    """A call that another one followed under the same claim; the last one is on SETTLED."""
    SETTLED = "settled"
    RECEIPT = "receipt"
    """The provider reported the outcome."""
    # Unusual ones.
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
    worker: str = ""
    attempt: int = 0
    state: str = ""
    reason: str | None = None
    detail: str | None = None
    """One sentence for people; no secret, no content."""
    account: str = ""
    provider_id: str | None = None
    origin: str | None = None
    """topic/partition/offset."""
    policy_version: str = ""
    traceparent: str | None = None
    created_at: int = 0
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
