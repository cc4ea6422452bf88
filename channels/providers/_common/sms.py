"""What the SMS providers share: receivers, template parameters, senders, errors of a whole call.

A receiver is an E.164 number (`+8613800000001`). `template` is the provider's own, its parameters texts or
numbers by name. `content` is `{"text": "…"}`, for providers that send free text. The signature in front
of a Chinese SMS (签名) is the account's `sign_name`; a notification with `attributes.sign_name` brings
another one that the account has.
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
from message.outcomes import AnyOutcome, NotSent, Unknown

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
"""An id of the provider's that stands in header fields and paths."""
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
    """What all requests of an account share, made once. Safe from many threads: what is kept is whole
    and never changed, and made twice it is the same."""

    def __init__(self, prepare: Callable[[Account], P]) -> None:
        self._prepare = prepare
        self._kept: dict[str, tuple[Account, P]] = {}

    def get(self, account: Account) -> P:
        """Of this very account: a reloaded configuration brings new ones under the same name."""
        kept = self._kept.get(account.name)
        if kept is None or kept[0] is not account:
            kept = self._kept[account.name] = (account, self._prepare(account))
        return kept[1]


def rooted(url: httpx.URL) -> str:
    """The path of a provider that has but one, below the endpoint's own."""
    return url.raw_path.partition(b"?")[0].decode("ascii").rstrip("/") + "/"


def number_refusal(receiver: str) -> str:
    """Why the receiver is no number that an SMS can go to; empty: it may be one."""
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
    """Whether the number is one of mainland China."""
    return receiver.startswith(MAINLAND)


def sign_of(default: str, delivery: Delivery) -> str:
    """The notification's signature, else the account's; empty: neither names one, or not by a text."""
    sign = delivery.notification.attributes.get(SIGN_NAME, default)
    return sign if isinstance(sign, str) else ""


def template_refusal(delivery: Delivery, provider: str, sign: str, *, needs_sign: bool) -> str:
    """Why a provider that knows approved templates alone cannot send this; empty: it can."""
    template = delivery.template_for(provider)
    if template is None or not template.id:
        return no_form(delivery, provider) or _NO_TEMPLATE
    if needs_sign and not sign:
        return "no_sign_name: set sign_name in the account or in the notification's attributes"
    return params_refusal(template.params)


def params_refusal(params: Mapping[str, Any]) -> str:
    """Why the parameters cannot be sent; empty: they can."""
    for name, value in params.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            return f"bad_params: parameter {shown_name(name)!r} must be a text or a number"
    return ""


def texts(params: Mapping[str, Any]) -> dict[str, str]:
    """The parameters as the providers take them: texts all."""
    return {name: str(value) for name, value in params.items()}


def places(delivery: Delivery, provider: str) -> list[str]:
    """The template's parameters in the order of their places, where the provider's have no names."""
    template = delivery.template_for(provider)
    params = texts(template.params) if template else {}
    return [params[name] for name in sorted(params, key=_place)]


def _place(name: str) -> int:
    return int(name) if name.isascii() and name.isdigit() and len(name) < 4 else 0


def places_refusal(delivery: Delivery, provider: str) -> str:
    """Why the parameters have no places; empty: they have."""
    template = delivery.template_for(provider)
    names = template.params if template else {}
    if sorted(names) == sorted(str(place) for place in range(1, len(names) + 1)):
        return ""
    return (
        'bad_params: parameters of this provider have places: name them "1", "2", … without a gap'
    )


def told(message: str) -> str:
    """The provider's sentence without the numbers it may repeat, and not longer than a sentence."""
    return shown(message, most=_MAX_TOLD)


def unread(call: Call, answer: Any) -> list[AnyOutcome]:
    """The outcomes of an answer without a readable body: what its status says, else Unknown."""
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
    """The outcomes of an error for the whole call. `status` as for `ErrorTable.outcome`.

    A code `about_one` number says in a call for many that one of them was refused, and nothing was sent:
    they all come back, each alone (`batch_key`), and then it is told which one it was.
    """
    if code in about_one and len(call.deliveries) > 1:
        detail = "one number of the call was refused; each goes alone next time"
        return for_all(call, NotSent(code, detail, _ALONE_MS))
    return for_all(call, table.outcome(code, told(message), wait_ms, status=status))


def wait_of(answer: Any, now_s: float) -> int | None:
    """The answer's Retry-After in milliseconds; None where it has none."""
    return retry_after_ms(answer.headers, now_s) if "retry-after" in answer.headers else None


def alone(delivery: Delivery) -> str:
    """What keeps a delivery that comes back out of calls for many; empty the first time."""
    return delivery.key if delivery.spent > 1 else ""
