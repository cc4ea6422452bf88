"""What a trace is made of: one event per stage of a delivery, or per poison record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec


class Stage(StrEnum):
    """The stages of a delivery's way, in the order a good one takes them; then the side roads."""

    CLAIMED = "claimed"
    ATTEMPTED = "attempted"
    """A call that another one followed under the same claim; the last one is on SETTLED."""
    SETTLED = "settled"
    RECEIPT = "receipt"
    """The provider said what became of it."""
    # Side roads.
    RECEIPT_CONTRADICTED = "receipt_contradicted"
    """The provider said something else before: that stays."""
    EXPIRED = "expired"
    DROPPED = "dropped"
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
    """When the record left the broker's hands."""
    claimed_at: int = 0
    """When the ledger answered the claim. The worker writes it as a mark on the delivery's next event:
    an event of its own would double the trace, and a claim that nothing followed stands in the ledger."""
    started_at: int = 0
    """When the provider call began (on SETTLED)."""
    answered_at: int = 0
    """When the provider call ended (on SETTLED)."""
    call_end: str = ""
    """How it ended, if not with an answer (message/outcomes.py `CallEnd`)."""


class Recorder(Protocol):
    """Takes events from any thread. Never blocks, never raises; what it must drop it counts."""

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Hand events over to be written soon."""
        ...

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """Events lost since the start, by (sink, reason)."""
        ...

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is buffered, for at most `timeout_s` seconds; idempotent."""
        ...


class NoRecorder:
    """The twin that keeps nothing."""

    def record(self, events: Sequence[TraceEvent]) -> None:
        """Keeps nothing."""

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """Was never to keep anything."""
        return {}

    def close(self, timeout_s: float = 5.0) -> None:
        """Has nothing to write."""
