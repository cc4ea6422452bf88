"""E-mail by Resend's HTTP API: `POST <endpoint>/emails`, one message and one receiver a call.

    options    api_key   sent as `Authorization: Bearer`
               sender    `Name <address>` on a domain verified there
    content    as every e-mail's, with `to` left at `each`; receivers who see one another need SMTP
    template   a published template's id, params as its variables: texts and numbers

`Idempotency-Key` is the call's key. For 24 hours a repeat with the same key and payload gets the first
answer and is not sent again. Another payload, or a repeat while the first is still at work, is refused
with 409. Both leave the first in doubt; they do not prove this one unsent.

An error is `{"statusCode", "name", "message"}`; `name` decides. An undocumented name is Unknown; without a
name the status decides.

Sources: https://resend.com/docs/api-reference/emails/send-email,
https://resend.com/docs/api-reference/errors, https://resend.com/docs/api-reference/rate-limit,
https://resend.com/docs/dashboard/emails/idempotency-keys,
https://resend.com/docs/dashboard/templates/template-variables, and of `suspended_api_key`
https://github.com/resend/resend-node (src/interfaces.ts).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, ClassVar, Final

import httpx
import msgspec

from channels.bad_content import BadContent
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure
from channels.endpoints import below, endpoint_url
from channels.http_client.request import extensions_of, fields_of, post_json
from channels.judging.error_table import HOUR, MINUTE, ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure, refusal
from channels.judging.retry_after import retry_after_ms
from channels.providers._common.email_content import Email, mailbox, read, receiver
from channels.providers.resend.errors import ERRORS
from channels.secret import Secret
from message.delivery import Delivery
from message.envelope import Template
from message.foreign_text import shown_name
from message.outcomes import Accepted, AnyOutcome, NotSent, Unknown

_PROVIDER: Final = "resend"
_WINDOW_MS: Final = 24 * HOUR - 10 * MINUTE
"""Resend keeps a key for 24 hours by its own clock; less a margin for clocks and slow calls."""
_MAX_VARIABLES: Final = 50
_VARIABLE = re.compile(r"[A-Za-z0-9_]{1,50}")
_RESERVED: Final = frozenset(
    {"FIRST_NAME", "LAST_NAME", "EMAIL", "UNSUBSCRIBE_URL", "contact", "this"}
)
_FORBIDDEN: Final = 403
_OF_SENDER: Final = "validation_error"
"""With 403 the account is at fault: its domain is not verified, or it has none and only the team gets mail
(https://resend.com/docs/knowledge-base/403-error-domain-mismatch, read 2026-11-22)."""
_UNVERIFIED: Final = "the sender's domain is not verified"
_RESET: Final = "ratelimit-reset"
"""Seconds to the end of the window, for answers without Retry-After."""


class ResendOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    api_key: Secret
    sender: str

    def __post_init__(self) -> None:
        mailbox(self.sender)


class _Attachment(msgspec.Struct, omit_defaults=True):
    filename: str
    content: str
    content_type: str
    content_id: str = ""


class _Template(msgspec.Struct):
    id: str
    variables: dict[str, Any]


class _Body(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"sender": "from"}):
    sender: str
    to: list[str]
    subject: str = ""
    html: str = ""
    text: str = ""
    cc: list[str] = []
    bcc: list[str] = []
    reply_to: list[str] = []
    headers: dict[str, str] = {}
    attachments: list[_Attachment] = []
    template: _Template | None = None


class _Answered(msgspec.Struct):
    id: str = ""
    name: str = ""
    message: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Answered)


class ResendChannel(BaseChannel):
    """Stateless; safe from many threads."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "email"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = ResendOptions
    endpoint: ClassVar[str] = "https://api.resend.com"
    dedup_window_ms: ClassVar[int] = _WINDOW_MS
    account_limits: ClassVar[Sequence[tuple[int, int]]] = ((2, 1),)
    """(requests, seconds) of one team, unless Resend has raised it. Resend's pages name both 2 and 5 (read
    2026-11-22). This is the lower one; an account's `rate_per_s` overrides it."""
    counted_by: ClassVar[Sequence[str]] = ("api_key",)
    errors: ClassVar[ErrorTable] = ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="Resend",
        idempotency="`Idempotency-Key` for 24 hours: the same key and payload is sent once",
        resolve="the same request once more inside the dedup window",
        receipts="pushed (webhooks email.delivered, email.bounced, …) by the e-mail's id",
        limits="one receiver a call; 2 requests a second unless raised; 40 MB with attachments",
        source=(
            "https://resend.com/docs/api-reference/emails/send-email",
            "https://resend.com/docs/api-reference/errors",
            "https://resend.com/docs/api-reference/rate-limit",
            "https://resend.com/docs/dashboard/emails/idempotency-keys",
        ),
    )

    def fingerprint(self, call: Call) -> str:
        """Returns the body's digest: a repeat with another payload is refused and proves nothing."""
        return sha256(_body(call)).hexdigest()

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Returns the reason as `code: sentence`; empty if it can be sent."""
        try:
            receiver(delivery.receiver)
            template = delivery.template_for(_PROVIDER)
            if template is not None:
                _check_template(template)
            elif read(delivery, _PROVIDER).content.to != "each":
                raise BadContent("bad_content: to: receivers who see one another need SMTP")
        except BadContent as exc:
            return str(exc)
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        account = call.account
        url = below(endpoint_url(account.endpoint), "emails")
        options: ResendOptions = account.options
        fields = [
            *fields_of(url),
            (b"Authorization", b"Bearer " + options.api_key.reveal().encode()),
            (b"Idempotency-Key", call.key.encode()),
        ]
        return post_json(url, fields, _body(call), extensions_of(account))

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        return for_all(call, _outcome(answer))


def _outcome(answer: httpx.Response) -> AnyOutcome:
    reply = decoded(_decoder.decode, answer.content) or _Answered()
    if answer.is_success:
        if reply.id and not reply.name:
            return Accepted(reply.id)
        return Unknown("bad_answer", "the answer says neither an id nor an error")
    if answer.status_code == _FORBIDDEN and reply.name == _OF_SENDER:
        return NotSent(reply.name, reply.message or _UNVERIFIED, MINUTE, account=True)
    if reply.name:
        return ERRORS.outcome(
            reply.name, reply.message, _wait_ms(answer), status=answer.status_code
        )
    refused = CONTRADICTION if reply.id else refusal(answer)
    assert refused is not None  # it is no success
    return refused


def _wait_ms(answer: httpx.Response) -> int | None:
    """Returns how long Resend asks to wait, in milliseconds; None if the answer does not say."""
    wait_ms = retry_after_ms(answer.headers, 0)
    if wait_ms is None and _RESET in answer.headers:
        wait_ms = retry_after_ms(httpx.Headers({"retry-after": answer.headers[_RESET]}), 0)
    return wait_ms


def _body(call: Call) -> bytes:
    """Returns the body. The same call has the same bytes, since no time is in it."""
    (delivery,) = call.deliveries
    options: ResendOptions = call.account.options
    body = _Body(sender=str(mailbox(options.sender)), to=[receiver(delivery.receiver).address])
    template = delivery.template_for(_PROVIDER)
    if template is None:
        _fill(body, read(delivery, _PROVIDER))
    else:
        body.template = _Template(template.id, template.params)
    return _encoder.encode(body)


def _fill(body: _Body, email: Email) -> None:
    content = email.content
    body.subject, body.html, body.text = content.subject, content.html, content.text
    body.cc = [str(one) for one in email.cc]
    body.bcc = [str(one) for one in email.bcc]
    body.reply_to = [str(one) for one in email.reply_to]
    body.headers = content.headers
    body.attachments = [
        _Attachment(one.filename, b64encode(one.content).decode(), one.mime, one.cid)
        for one in content.attachments
    ]


def _check_template(template: Template) -> None:
    if len(template.params) > _MAX_VARIABLES:
        raise BadContent(f"bad_template: more than {_MAX_VARIABLES} variables")
    for name, value in template.params.items():
        if not _VARIABLE.fullmatch(name) or name in _RESERVED:
            raise BadContent(f"bad_template: {shown_name(name)!r} is no name of a variable")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise BadContent(f"bad_template: {shown_name(name)} must be a text or a number")


CHANNELS = (ResendChannel(),)
