"""The content of a WeChat template message, for Official Accounts and mini-programs.

A notification names the template in one of two ways:

    template   {"id": TEMPLATE_ID, "params": {"first": "…", "date": {"value": "…", "color": "#173177"}}}
               and optionally attributes.wechat: {"url", "miniprogram": {"appid", "pagepath"}, "page"}
    content    {"template_id", "data": {…}, and the same three}

A value is a text, a number, or an object with `value`. `url` and `miniprogram` are for Official Accounts,
`page` for mini-programs. A receiver is an OpenID.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.bad_content import BadContent, no_form
from channels.base import BaseChannel
from channels.channel import Account, TokenSource
from channels.providers._common.wechat import (
    TOKEN_CODES,
    PreparedAccounts,
    StableToken,
    code_of,
    holds_control,
)
from message.delivery import Delivery
from message.foreign_text import broken_rule, shown_name

_OPENID = re.compile(r"[A-Za-z0-9_-]{6,64}")
_MAX_URL: Final = 1_024
_PLACE = re.compile(r"\w{1,64}")


class Miniprogram(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The mini-program that a tap opens."""

    appid: str
    pagepath: str = ""


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The value of one place of the template."""

    value: str | int | float
    color: str = ""


class TemplateMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message as the notification has it."""

    template_id: str
    data: dict[str, str | int | float | Value]
    url: str = ""
    miniprogram: Miniprogram | None = None
    page: str = ""


class _Leads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str = ""
    miniprogram: Miniprogram | None = None
    page: str = ""


def message_of(delivery: Delivery, provider: str) -> TemplateMessage:
    """Returns the message for this provider. Raises BadContent."""
    try:
        return msgspec.convert(_fields(delivery, provider), TemplateMessage)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc


def refusal_of(delivery: Delivery, provider: str) -> str:
    """Returns why it can never be sent, as `code: sentence`; empty if it can."""
    if not _OPENID.fullmatch(delivery.receiver):
        return "bad_openid: an OpenID is 6 to 64 letters, digits, - and _"
    try:
        message = message_of(delivery, provider)
    except BadContent as exc:
        return str(exc)
    if holds_control(msgspec.to_builtins(message)):
        return "bad_character: a control character is not taken"
    if not message.template_id or not message.template_id.isprintable():
        return "no_template: name the template's id"
    if len(message.url.encode()) > _MAX_URL:
        return f"url_too_long: a link has at most {_MAX_URL:,} bytes"
    wrong = next((key for key in message.data if not _PLACE.fullmatch(key)), None)
    return (
        f"bad_content: {shown_name(wrong)!r} is no place in a template" if wrong is not None else ""
    )


def data_of(message: TemplateMessage) -> dict[str, Value]:
    """Returns the values by place, as texts."""
    return {key: _value(value) for key, value in message.data.items()}


def _fields(delivery: Delivery, provider: str) -> Any:
    content = delivery.content_for(provider)
    if content is not None:
        return content
    template = delivery.template_for(provider)
    if template is None:
        refused = no_form(delivery, provider)
        raise BadContent(refused or "bad_content: neither a template nor a content")
    leads = delivery.notification.attributes.get("wechat", {})
    return {
        "template_id": template.id,
        "data": template.params,
        **msgspec.structs.asdict(msgspec.convert(leads, _Leads)),
    }


def _value(value: str | int | float | Value) -> Value:
    if isinstance(value, Value):
        return Value(str(value.value), value.color)
    return Value(str(value))


class TemplateChannel(BaseChannel):
    """Base of both adapters. Thread-safe: its only state is a `PreparedAccounts`."""

    knows_templates: ClassVar[bool] = True
    endpoint: ClassVar[str] = "https://api.weixin.qq.com"
    tokens: ClassVar[TokenSource | None] = StableToken()
    counted_by: ClassVar[Sequence[str]] = ("appid",)
    provider: ClassVar[str]
    path: ClassVar[str]
    """The path of a send."""

    def __init__(self) -> None:
        self._accounts = PreparedAccounts(self.path)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses an impossible OpenID, and a message without a template or with wrong places."""
        return refusal_of(delivery, self.provider)

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether the token was refused; WeChat checks it before it sends."""
        return code_of(answer) in TOKEN_CODES
