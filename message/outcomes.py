"""The outcome of one provider call for one delivery.

Outcome
 ├─ Accepted   the provider has it
 ├─ Rejected   definitely not sent, permanent
 ├─ NotSent    definitely not sent, may be retried
 └─ Unknown    it may have been sent: only a resolver, a dedup window or the policy may decide
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec


class Limit(StrEnum):
    """Limits behind a refusal that only paces: the same call goes through later."""

    ACCOUNT = "account"
    """Of the account or application: nothing else goes through it meanwhile."""
    RECEIVER = "receiver"
    """Of one receiver: the account goes on sending to all others."""
    LOGIN = "login"
    """No limit was met: the provider refuses the account's login. Nothing goes through the account before
    somebody mends that, so that no delivery spends an attempt on it."""
    PART = "part"
    """Of a part of the account's traffic, such as one country: the account goes on with the rest."""


class Outcome(msgspec.Struct, frozen=True, gc=False, tag_field="outcome"):
    """Base of the ladder; never made itself."""


class Accepted(Outcome, frozen=True, gc=False, tag="accepted"):
    """The provider answered that it has the message; `provider_id` is its name for it."""

    provider_id: str = ""
    queued: bool = False
    """The provider took a task, and names the receivers reached only later, when asked for the task. The
    delivery is not SENT before that (docs/decisions/100)."""


class Rejected(Outcome, frozen=True, gc=False, tag="rejected"):
    """The provider will never send it: `code` is the provider's, `detail` one sentence."""

    code: str
    detail: str = ""
    account: bool = False
    """The account is refused, not this message (credentials, no balance): its breaker opens."""
    answer: str = ""
    """The provider's words as they may be shown, at most 2 KiB; empty without an answer."""
    before_call: bool = False
    """Our adapter refused it, so that no call was made; `code` is ours."""


class NotSent(Outcome, frozen=True, gc=False, tag="not_sent"):
    """Nothing was sent; `retry_after_ms` is the provider's own wish, None where it named none."""

    code: str
    detail: str = ""
    retry_after_ms: int | None = None
    account: bool = False
    """As for Rejected: the account is halted, not this message refused."""
    limit: Limit | None = None
    """The limit that was met, where the refusal only paces: it spends no attempt and is no failure of the
    account. None: it is no limit."""
    answer: str = ""
    """As for Rejected."""
    joint: bool = False
    """A joint call was refused over one delivery that the provider does not name, or it left this one out.
    Each goes alone next time, once even if its attempts are spent."""


class Unknown(Outcome, frozen=True, gc=False, tag="unknown"):
    """The request may have been acted on; `code` names the loss of the answer."""

    code: str
    detail: str = ""
    answer: str = ""
    """As for Rejected."""


def is_paced(outcome: object) -> bool:
    """Returns True for a refusal that only paces."""
    return isinstance(outcome, NotSent) and outcome.limit is not None


AnyOutcome = Accepted | Rejected | NotSent | Unknown


class CallEnd(StrEnum):
    """Ends of a provider call without an answer."""

    TIMED_OUT = "timed_out"
    """The whole request was written, and no whole answer came in time."""
    LOST = "lost"
    """The whole request was written, and no usable answer came."""
    NOT_STARTED = "not_started"
    """Not all of the request was written."""


WITHOUT_ANSWER: Final = frozenset(
    {
        "adapter_error",
        "closed",
        "connect",
        "dns",
        "not_read",
        "protocol",
        "reset",
        "thread_died",
        "timeout",
        "tls",
        "too_large",
        "too_late",
        "withdrawn",
    }
)
"""Codes of calls that no provider answered; a transport gives no others."""
_TIMEOUT: Final = "timeout"


def provider_code(outcome: Outcome | None) -> str:
    """Returns the provider's code; empty where it accepted the call or did not answer."""
    return "" if end_without_answer(outcome) else getattr(outcome, "code", "")


def end_without_answer(outcome: Outcome | None) -> str:
    """Returns the end of the call with that outcome, as a trace has it; empty for an answer."""
    code = getattr(outcome, "code", "")
    if code not in WITHOUT_ANSWER or isinstance(outcome, Rejected):
        return ""
    if isinstance(outcome, NotSent):
        return CallEnd.NOT_STARTED.value
    return (CallEnd.TIMED_OUT if code == _TIMEOUT else CallEnd.LOST).value
