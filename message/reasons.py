"""Reasons of deliveries that ended, or wait, before any provider was called: their one table.

Counters, trace stages and docs/trace.md are made from it or tested against it. A new gate needs a row:
`tests/dispatcher/test_reasons.py` lets each gate decide, and looks its reason up here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class IntakeEnd(StrEnum):
    """Results of intake."""

    KNOWN = "duplicate"
    """The ledger or Redis had it already."""
    CONFLICT = "conflict"
    EXPIRED = "expired"
    BEHIND = "behind"
    HELD = "held"
    DROPPED = "dropped"


class IntakeReason(NamedTuple):
    """One row."""

    code: str
    end: IntakeEnd
    text: str
    gate: str = ""
    """The table of the lane's policy for the gate that decides so; empty: no gate does."""


QUIET_HOURS: Final = "quiet_hours"
FREQUENCY_CAP: Final = "frequency_cap"
DUPLICATE_CONTENT: Final = "duplicate_content"
RECEIVER_LIMIT: Final = "receiver_limit"
TTL_AT_INTAKE: Final = "ttl_at_intake"
BEHIND: Final = "behind"
RECALLED: Final = "recalled"
DUPLICATE: Final = "duplicate"
DUPLICATE_PREFILTER: Final = "duplicate_prefilter"
CONFLICT: Final = "conflict"
UNKNOWN_ACCOUNT: Final = "unknown_account"

INTAKE: Final = (
    IntakeReason(
        QUIET_HOURS,
        IntakeEnd.HELD,
        "quiet hours: waits for their end, or is dropped",
        "quiet_hours",
    ),
    IntakeReason(
        FREQUENCY_CAP, IntakeEnd.DROPPED, "the receiver had as many as the cap allows", "frequency"
    ),
    IntakeReason(
        DUPLICATE_CONTENT, IntakeEnd.DROPPED, "the receiver had the same content before", "dedup"
    ),
    IntakeReason(
        RECEIVER_LIMIT, IntakeEnd.HELD, "waits: the provider limits this receiver or robot"
    ),
    IntakeReason(TTL_AT_INTAKE, IntakeEnd.EXPIRED, "past its time to live when it was read"),
    IntakeReason(BEHIND, IntakeEnd.BEHIND, "waits for an earlier one of its ordering key"),
    IntakeReason(RECALLED, IntakeEnd.DROPPED, "taken back before it was read"),
    IntakeReason(UNKNOWN_ACCOUNT, IntakeEnd.DROPPED, "the lane lost the account that it names"),
    IntakeReason("template_unknown", IntakeEnd.DROPPED, "there is no template of that name"),
    IntakeReason("template_channel", IntakeEnd.DROPPED, "the template is another channel's"),
    IntakeReason("variable_missing", IntakeEnd.DROPPED, "a variable of the template is missing"),
    IntakeReason("variable_surplus", IntakeEnd.DROPPED, "the template has no such variable"),
    IntakeReason("variable_type", IntakeEnd.DROPPED, "a variable is of another type"),
    IntakeReason("template_failed", IntakeEnd.DROPPED, "the template fails over its variables"),
    IntakeReason("template_too_large", IntakeEnd.DROPPED, "the text would be longer than 1 MiB"),
    IntakeReason(DUPLICATE, IntakeEnd.KNOWN, "the ledger had it already"),
    IntakeReason(DUPLICATE_PREFILTER, IntakeEnd.KNOWN, "Redis knew it to be settled"),
    IntakeReason(CONFLICT, IntakeEnd.CONFLICT, "the ledger had its id with another body"),
)
BY_CODE: Final = {reason.code: reason for reason in INTAKE}
GATE_REASONS: Final = tuple(reason.code for reason in INTAKE if reason.gate)


def code_of(reason: str) -> str:
    """Returns the code in `code: sentence`."""
    return reason.partition(":")[0]
