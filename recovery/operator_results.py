"""What a person is told of each delivery, and the copies that are made of some."""

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


class OperatorVerdict(StrEnum):
    """What became of one delivery."""

    RETRIED = "retried"
    HELD = "held"
    """It goes by itself, but not now; the detail says when."""
    SENT = "sent"
    DISCARDED = "discarded"
    COPIED = "copied"
    COPIED_BEFORE = "copied_before"
    """The same job made this copy already."""
    REFUSED = "refused"
    """Nothing was done; the reason says why."""
    OVERTAKEN = "overtaken"
    """It was written meanwhile: look at it again."""


class OperatorResult(msgspec.Struct, frozen=True):
    """What a person is told of one delivery."""

    delivery_key: str
    message_id: str
    lane: str
    state: str
    """Before."""
    verdict: OperatorVerdict
    detail: str = ""
    new_id: str = ""
    """Of a copy."""


class Copy(NamedTuple):
    """A notification of its own, ready for Kafka: its envelope's fields."""

    fields: dict[str, Any]
    told: OperatorResult


def told_of(pick: Pick, verdict: OperatorVerdict, detail: str = "") -> OperatorResult:
    """Of a delivery in the ledger."""
    return OperatorResult(pick.key, pick.message_id, pick.lane, pick.state.value, verdict, detail)


def archived_told(row: ArchivedRow, verdict: OperatorVerdict, detail: str) -> OperatorResult:
    """Of a delivery that is not in the ledger any more."""
    return OperatorResult(row.delivery_key, row.message_id, row.lane, row.state, verdict, detail)


def copy_id(job: str, delivery_key: str) -> str:
    """32 hex digits, the same whenever the job is run again."""
    return sha256(f"copy\x1f{job}\x1f{delivery_key}".encode()).hexdigest()[:KEY_LENGTH]


def copied_fields(kept: KeptRow, new_id: str, message_id: str, now: int) -> dict[str, Any]:
    """The envelope of the copy: as it came, unknown fields and all, for this receiver alone."""
    fields: dict[str, Any] = msgspec.json.decode(kept.payload)
    own = {"v": VERSION, "id": new_id, "receivers": [kept.receiver], "resend_of": message_id}
    return fields | own | {"created_at": now}
