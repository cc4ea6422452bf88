"""Shared by the SMS providers: receivers, template parameters, senders, errors of a whole call.

A receiver is an E.164 number (`+8613800000001`). `template` is the provider's own; its parameters are texts
or numbers by name. `content` is `{"text": "…"}`, for providers that send free text. The account's
`sign_name` is the signature in front of a Chinese SMS (签名). `attributes.sign_name` of a notification
chooses another signature of the account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Generic, TypeVar

import httpx
import msgspec
import phonenumbers

from channels.bad_content import no_form
from channels.channel import Account, Call
from channels.judging.error_table import ErrorTable
from channels.judging.outcomes import for_all, refusal
from channels.judging.retry_after import retry_after_ms
from message.delivery import Delivery
from message.foreign_text import shown, shown_name
from message.outcomes import AnyOutcome, NotSent, Rejected, Unknown

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
"""A provider's id, safe in header fields and paths."""
Lag = Annotated[int, msgspec.Meta(ge=0, le=30 * 86_400)]
"""Seconds."""
MAINLAND: Final = "+86"
"""The prefix of mainland China alone: Hong Kong is +852, Macao +853, Taiwan +886."""
SIGN_NAME: Final = "sign_name"
_MOBILE = re.compile(r"\+861[3-9][0-9]{9}", re.ASCII)
_MAX_TOLD: Final = 200
_NO_TEMPLATE: Final = "no_template: this provider sends approved templates only; give template.id"
_ALONE_MS: Final = 0
P = TypeVar("P")


class PerAccount(Generic[P]):
    """The parts that all requests of an account share, prepared once. Thread-safe: `get` stores a finished
    value that is never changed; two threads that race store equal ones."""

    def __init__(self, prepare: Callable[[Account], P]) -> None:
        self._prepare = prepare
        self._kept: dict[str, tuple[Account, P]] = {}

    def get(self, account: Account) -> P:
        """Returns the parts of an equal account: each lane has an object of its own."""
        kept = self._kept.get(account.name)
        if kept is None or kept[0] != account:
            kept = self._kept[account.name] = (account, self._prepare(account))
        return kept[1]


def rooted(url: httpx.URL) -> str:
    """Returns the endpoint's own path with a slash at its end, for providers with a single path."""
    return url.raw_path.partition(b"?")[0].decode("ascii").rstrip("/") + "/"


def number_refusal(receiver: str) -> str:
    """Returns why no SMS can reach the receiver; empty if one may."""
    if _MOBILE.fullmatch(receiver):
        return ""
    if receiver.startswith(MAINLAND):
        return "bad_number: a mainland number is +86 and 11 digits that begin with 13 to 19"
    try:
        number = phonenumbers.parse(receiver, None)
    except phonenumbers.NumberParseException:
        return "bad_number: give the receiver in E.164, such as +8613800000001"
    if phonenumbers.is_possible_number(number):
        return ""
    return "bad_number: there is no such number in the plan of its country"


def mainland(receiver: str) -> bool:
    """Returns whether the number is one of mainland China."""
    return receiver.startswith(MAINLAND)


def sign_of(default: str, delivery: Delivery) -> str:
    """Returns the notification's signature, else the account's; empty if there is none or it is no text."""
    sign = delivery.notification.attributes.get(SIGN_NAME, default)
    return sign if isinstance(sign, str) else ""


def template_refusal(delivery: Delivery, provider: str, sign: str, *, needs_sign: bool) -> str:
    """Returns why a provider that sends only approved templates cannot send this; empty if it can."""
    template = delivery.template_for(provider)
    if template is None or not template.id:
        return no_form(delivery, provider) or _NO_TEMPLATE
    if needs_sign and not sign:
        return "no_sign_name: set sign_name in the account or in the notification's attributes"
    return params_refusal(template.params)


def params_refusal(params: Mapping[str, Any]) -> str:
    """Returns why the parameters cannot be sent; empty if they can."""
    for name, value in params.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return f"bad_params: parameter {shown_name(name)!r} must be a text or a number"
    return ""


def texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Returns all parameters as texts."""
    return {name: str(value) for name, value in params.items()}


def places(delivery: Delivery, provider: str) -> list[str]:
    """Returns the template's parameters in order of place, for providers whose parameters have no names."""
    template = delivery.template_for(provider)
    params = texts(template.params) if template else {}
    return [params[name] for name in sorted(params, key=_place)]


def _place(name: str) -> int:
    return int(name) if name.isascii() and name.isdigit() and len(name) < 4 else 0


def places_refusal(delivery: Delivery, provider: str) -> str:
    """Returns why the parameters' names are not places; empty if they are."""
    template = delivery.template_for(provider)
    names = template.params if template else {}
    if sorted(names) == sorted(str(place) for place in range(1, len(names) + 1)):
        return ""
    return (
        'bad_params: parameters of this provider have places: name them "1", "2", … without a gap'
    )


def shown_message(message: str) -> str:
    """Returns the provider's message with numbers masked and its length limited."""
    return shown(message, most=_MAX_TOLD)


def unread(call: Call, answer: Any) -> list[AnyOutcome]:
    """Returns the outcomes of an answer without a readable body: by its status, else Unknown."""
    return for_all(
        call, refusal(answer) or Unknown("unreadable", "the answer is not the provider's")
    )


def refused(
    table: ErrorTable,
    call: Call,
    code: str,
    message: str,
    *,
    wait_ms: int | None = None,
    about_one: frozenset[str] = frozenset(),
    status: int = 0,
) -> list[AnyOutcome]:
    """Returns the outcomes of an error for the whole call. `status` as for `ErrorTable.outcome`.

    In a call for many, a code of `about_one`, or one without a row that rejects, refuses one unnamed
    delivery, and nothing was sent. All come back, each in a call of its own (`batch_key`), which shows the
    refused one.
    """
    outcome = table.outcome(code, shown_message(message), wait_ms, status=status)
    unlisted = isinstance(outcome, Rejected) and table.row(code) is None
    if len(call.deliveries) > 1 and (code in about_one or unlisted):
        detail = "one delivery of the call was refused; each goes alone next time"
        return for_all(call, NotSent(code, detail, _ALONE_MS, joint=True))
    return for_all(call, outcome)


def wait_of(answer: Any, now_s: float) -> int | None:
    """Returns the answer's Retry-After in milliseconds; None if it has none."""
    return retry_after_ms(answer.headers, now_s) if "retry-after" in answer.headers else None


def alone(delivery: Delivery) -> str:
    """Returns a `batch_key` part that sends a retry in a call of its own; empty for the first attempt."""
    return delivery.key if delivery.spent > 1 else ""
