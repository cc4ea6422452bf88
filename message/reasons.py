"""Reasons of deliveries that ended, or wait, before any provider was called: their one table.

A fault that a person can mend parks a delivery; only a fault that nobody can mend drops it. The column
`mender` decides. Counters, trace stages, alerts, the answers of `hongyan resend` and docs/trace.md are made
from the table or tested against it (`tests/dispatcher/test_reasons.py`).
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
    PARKED = "parked"


class Mender(StrEnum):
    """The person who can mend a cause, so that the same delivery can be sent."""

    NOBODY = ""
    TEMPLATE_AUTHOR = "template author"
    OPERATOR = "operator"


class IntakeReason(NamedTuple):
    """One row."""

    code: str
    end: IntakeEnd
    text: str
    gate: str = ""
    """The table of the lane's policy for the gate that decides so; empty: no gate does."""
    mender: Mender = Mender.NOBODY
    copy: str = ""
    """Where it drops: what a copy of the delivery (`hongyan resend --new-id`) comes to."""


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
TEMPLATE_UNKNOWN: Final = "template_unknown"
TEMPLATE_FAILED: Final = "template_failed"
NO_TEMPLATE: Final = "no_template"
LOST: Final = "lost"
"""A Spark job found it lost, and recovery entered it (recovery/lost/)."""
DISCARDED: Final = "discarded"
"""A person ended it (recovery/operator_rules.py)."""


def _for_author(code: str, text: str) -> IntakeReason:
    return IntakeReason(code, IntakeEnd.PARKED, text, mender=Mender.TEMPLATE_AUTHOR)


INTAKE: Final = (
    IntakeReason(
        QUIET_HOURS,
        IntakeEnd.HELD,
        "quiet hours: waits for their end, or is dropped",
        "quiet_hours",
        copy="a copy is dropped, too, until they end",
    ),
    IntakeReason(
        FREQUENCY_CAP,
        IntakeEnd.DROPPED,
        "the receiver had as many as the cap allows",
        "frequency",
        copy="a copy is dropped, too, until the cap's span is over",
    ),
    IntakeReason(
        DUPLICATE_CONTENT,
        IntakeEnd.DROPPED,
        "the receiver had the same content before",
        "dedup",
        copy="a copy is sent, as a repeat on purpose",
    ),
    IntakeReason(
        RECEIVER_LIMIT, IntakeEnd.HELD, "waits: the provider limits this receiver or robot"
    ),
    IntakeReason(TTL_AT_INTAKE, IntakeEnd.EXPIRED, "past its time to live when it was read"),
    IntakeReason(BEHIND, IntakeEnd.BEHIND, "waits for an earlier one of its ordering key"),
    IntakeReason(
        RECALLED,
        IntakeEnd.DROPPED,
        "taken back before it was read",
        copy="a copy is made of its ID alone, and is sent",
    ),
    IntakeReason(
        UNKNOWN_ACCOUNT,
        IntakeEnd.PARKED,
        "the lane lost the account that it names",
        mender=Mender.OPERATOR,
    ),
    _for_author(TEMPLATE_UNKNOWN, "there is no template of that name"),
    _for_author("template_channel", "the template is another channel's"),
    _for_author("variable_missing", "a variable of the template is missing"),
    _for_author("variable_surplus", "the template has no such variable"),
    _for_author("variable_type", "a variable is of another type"),
    _for_author(TEMPLATE_FAILED, "the template fails over its variables"),
    _for_author("template_too_large", "the text would be longer than 1 MiB"),
    _for_author(NO_TEMPLATE, "the template has nothing for the account's provider"),
    IntakeReason(DUPLICATE, IntakeEnd.KNOWN, "the ledger had it already"),
    IntakeReason(DUPLICATE_PREFILTER, IntakeEnd.KNOWN, "Redis knew it to be settled"),
    IntakeReason(CONFLICT, IntakeEnd.CONFLICT, "its id is known with another body"),
)
BY_CODE: Final = {reason.code: reason for reason in INTAKE}
GATE_REASONS: Final = tuple(reason.code for reason in INTAKE if reason.gate)
_COPIES: Final = {reason.code: reason.copy for reason in INTAKE if reason.copy} | {
    DISCARDED: "a copy is sent",
}
DROP_CODES: Final = tuple(_COPIES)
"""Codes with which a delivery is DROPPED in the ledger."""


ADAPTER_REFUSALS: Final = frozenset(
    {
        "adapter_error",
        "ambiguous_number",
        "bad_address",
        "bad_attachment",
        "bad_character",
        "bad_content",
        "bad_header",
        "bad_mobile",
        "bad_number",
        "bad_openid",
        "bad_params",
        "bad_receiver",
        "bad_template",
        "bad_userid",
        "no_content",
        "no_provider_template",
        "no_sign_name",
        "text_too_long",
        "tls_required",
        "too_long",
        "url_too_long",
        "wrong_group",
        "wrong_receiver",
    }
)
"""Codes with which an adapter refuses a delivery before any call, and which no provider answers. Twilio's
adapter refuses with `no_text`, too, which Slack answers."""


def code_of(reason: str) -> str:
    """Returns the code in `code: sentence`."""
    return reason.partition(":")[0]


def is_final(reason: str) -> bool:
    """Returns whether the reason drops a delivery. One without a row parks it, so that nothing is lost."""
    row = BY_CODE.get(code_of(reason))
    return row is not None and not row.mender


def mender_of(reason: str) -> Mender:
    """Returns the person who can mend the cause."""
    row = BY_CODE.get(code_of(reason))
    return Mender.NOBODY if row is None else row.mender


def resend_of_dropped(reason: str) -> str:
    """Returns one sentence: what `hongyan resend` can do about a delivery that was DROPPED so."""
    code = code_of(reason)
    if mender_of(code):  # by an earlier version: this one parks it
        return (
            f"an earlier version dropped it ({code}), and this one parks instead: mend the cause, then"
            " --new-id makes a copy"
        )
    found = _COPIES.get(code)
    return (
        f"it was dropped ({code}) for good, and --new-id makes a copy"
        f"{f': {found}' if found else ''}"
    )
