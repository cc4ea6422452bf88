"""Results of a person's actions on deliveries, and the copies of some."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from idempotency.archive.lookup import ArchivedRow
from idempotency.lookups import KeptRow
from idempotency.recovery.selection import Pick
from message.envelope import VERSION
from message.keys import KEY_LENGTH


class NoEnvelope(ValueError):
    """A payload that is missing or no envelope: nothing can be copied from it. The text says so."""


class OperatorVerdict(StrEnum):
    """Result of an action on one delivery."""

    RETRIED = "retried"
    HELD = "held"
    """It goes later by itself; the detail says when."""
    SENT = "sent"
    DISCARDED = "discarded"
    COPIED = "copied"
    COPIED_BEFORE = "copied_before"
    """The same job made this copy already."""
    ASKED = "asked"
    """Recovery asks its provider next."""
    REFUSED = "refused"
    """Nothing was done; the reason says why."""
    OVERTAKEN = "overtaken"
    """The row was written meanwhile; nothing was done."""


class OperatorResult(msgspec.Struct, frozen=True):
    """One delivery with the verdict on it, as it is printed."""

    delivery_key: str
    message_id: str
    lane: str
    state: str
    """State before the action."""
    verdict: OperatorVerdict
    detail: str = ""
    new_id: str = ""
    """Id of the copy; empty without one."""


class Copy(NamedTuple):
    """A new notification, ready for Kafka: its envelope's fields."""

    fields: dict[str, Any]
    result: OperatorResult


def result_of(pick: Pick, verdict: OperatorVerdict, detail: str = "") -> OperatorResult:
    """Returns the result for a delivery in the ledger."""
    return OperatorResult(pick.key, pick.message_id, pick.lane, pick.state.value, verdict, detail)


def archived_result(row: ArchivedRow, verdict: OperatorVerdict, detail: str) -> OperatorResult:
    """Returns the result for a delivery that has left the ledger."""
    return OperatorResult(row.delivery_key, row.message_id, row.lane, row.state, verdict, detail)


def copy_id(job: str, delivery_key: str) -> str:
    """Returns 32 hex digits, the same in each run of the job."""
    return sha256(f"copy\x1f{job}\x1f{delivery_key}".encode()).hexdigest()[:KEY_LENGTH]


def copied_fields(kept: KeptRow, new_id: str, message_id: str, now: int) -> dict[str, Any]:
    """Returns the copy's envelope: unchanged, with unknown fields, for this receiver alone. Raises
    NoEnvelope."""
    if not kept.payload:
        raise NoEnvelope("its payload is missing")
    try:
        fields = msgspec.json.decode(kept.payload, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise NoEnvelope(f"its payload is no envelope: {exc}") from exc
    own = {"v": VERSION, "id": new_id, "receivers": [kept.receiver], "resend_of": message_id}
    return fields | own | {"created_at": now}
