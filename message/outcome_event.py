"""Outcome events: the business learns the end of each delivery (docs/outcomes.md).

An event is one message of the topic `hongyan.outcomes`, or one member of `events` in a post of the webhook.
Its id follows from the ledger row, so a repeat carries the same one.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

import msgspec

from message.keys import KEY_LENGTH
from message.reasons import ADAPTER_REFUSALS
from message.states import State

VERSION: Final = 1
_SEPARATOR: Final = "\x1f"
_SPENT: Final = frozenset({"attempts_spent", "horizon_over", "paced", "refused_in_doubt"})
"""Reasons with the last call's code behind their colon."""
_OF_PROVIDER: Final = frozenset({State.REJECTED, State.UNDELIVERED})
"""States whose reason in the ledger is a provider's code, but for refusals before any call."""

ANNOUNCED: Final[dict[State, str]] = {
    State.SENT: "The provider accepted it. A receipt may follow with DELIVERED or UNDELIVERED.",
    State.DELIVERED: "A receipt proves that it arrived.",
    State.UNDELIVERED: "A receipt says that it did not arrive; `provider_code` says why.",
    State.REJECTED: "It was refused for good: by the provider, `provider_code` says why; or before any"
    " call, `reason` says why.",
    State.EXPIRED: "Its time to live was over before it was sent.",
    State.DROPPED: "A gate, a recall or a person ended it unsent; `reason` says which.",
    State.PARKED: "It waits for a person, who may send it again; `reason` says why.",
}
"""States that an event announces. A person may open PARKED, REJECTED and EXPIRED again: then the delivery's
next end has an event of its own."""


class OutcomeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One end of one delivery. Times are epoch milliseconds by the ledger's clock."""

    v: int = VERSION
    event_id: str
    """32 hex digits, the same in each repeat. A delivery's next end has another one."""
    id: str
    """Of the notification."""
    biz_id: str | None
    channel: str
    kind: str
    lane: str
    receiver_hash: str | None
    """64 hex digits of HMAC-SHA256 under `outcomes.hash_key`; None if the ledger's key does not open the
    receiver."""
    receiver_mask: str
    state: State
    reason: str | None
    """A code of Hongyan's own; None where the state says all."""
    provider_code: str | None
    """Code of the call, or of the receipt, that ended it; None where no call did."""
    provider_id: str | None
    """The provider's name for the message."""
    account: str | None
    """The account of the last call."""
    attempt: int
    """Provider calls made."""
    delivery_key: str
    created_at: int
    """Start of the delivery's row, at its claim."""
    ended_at: int
    """Start of this state."""
    resend_of: str | None


class OutcomePost(msgspec.Struct, frozen=True, kw_only=True):
    """The body of one post of the webhook."""

    v: int = VERSION
    type: str = "hongyan.outcomes"
    events: list[OutcomeEvent]


def event_id_of(delivery_key: str, state: str, version: int) -> str:
    """Returns 32 hex digits of SHA-256 over key, state and the row's version, joined by U+001F. The version
    counts the row's writes, so no two ends of one delivery share it."""
    text = f"{delivery_key}{_SEPARATOR}{state}{_SEPARATOR}{version}"
    return sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def receiver_hash(key: bytes, channel: str, receiver: str) -> str:
    """Returns 64 hex digits of HMAC-SHA256 over channel and receiver, joined by U+001F. `receiver` must be
    normalised (message/keys.py)."""
    text = f"{channel}{_SEPARATOR}{receiver}"
    return hmac.digest(key, text.encode(errors="replace"), "sha256").hex()


def codes_of(state: State, reason: str | None, attempt: int) -> tuple[str | None, str | None]:
    """Returns our code and the provider's from a ledger row's reason and its number of calls. Text behind
    the colon of any other reason is a person's or ours, and is in no event."""
    if not reason:
        return None, None
    if state in _OF_PROVIDER:
        before_call = state is State.REJECTED and (not attempt or reason in ADAPTER_REFUSALS)
        return (reason, None) if before_call else (None, reason)
    ours, _, rest = reason.partition(":")
    has_code = ours in _SPENT and rest not in ADAPTER_REFUSALS
    return ours, rest or None if has_code else None
