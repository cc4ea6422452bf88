"""Twilio Programmable Messaging (2010-04-01): Messages.

    POST /2010-04-01/Accounts/{AccountSid}/Messages.json    Basic: account SID and auth token, or API key
    To=+1…&From=+1…&Body=…                       content {"text": "…"}, 1 to 1,600 characters
    To=+1…&MessagingServiceSid=MG…&ContentSid=HX…&ContentVariables={"1":"…"}       template
    201 {"sid":"SM…","status":"queued",…}        4xx {"code":21211,"message":"…","more_info","status":400}

One receiver a call. There is no dedup key. The only mark of ours on a message is its StatusCallback, whose
query has the call's key (`hongyan_call`). Twilio signs it, so a receipt proves a call in doubt
(receipts/parsers/twilio.py). The list of Messages by To can only prove "not sent": read to its end, it has
no message made since the first call, `query_lag_s` (60; the lag is not documented) after the last. A
message in it may be this one or another: texts may be redacted, changed by smart encoding, or equal in two
notifications. If the account redacts numbers, the list by number proves nothing. The account's latest
messages show whether it does.

Sources: https://www.twilio.com/docs/messaging/api/message-resource
https://www.twilio.com/docs/api/errors/23005, …/23006 (redaction of numbers and of texts, read 2026-11-22)
https://www.twilio.com/docs/usage/security#validating-requests (the signature covers the query)
https://www.twilio.com/docs/content/send-templates-created-with-the-content-template-builder
https://www.twilio.com/docs/api/errors, https://www.twilio.com/docs/api/errors/20429 (safe to retry)
https://www.twilio.com/docs/api/errors/20500 (not safe to retry)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from time import time
from typing import ClassVar, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.bad_content import no_form
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure
from channels.judging.error_table import ErrorTable
from channels.judging.foreign_json import decoded
from channels.judging.listing import Listing
from channels.judging.outcomes import CONTRADICTION, for_all, of_failure
from channels.providers._common import sms
from channels.providers.twilio import wire
from channels.providers.twilio.errors import OF_COUNTRY, TABLE
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Rejected, Unknown

_MAX_TEXT: Final = 1_600
_SHORT_CODE = re.compile(r"[0-9]{3,8}", re.ASCII)
"""A sender of few digits without a plus; a number has one (E.164)."""


class _Created(msgspec.Struct):
    sid: str = ""
    code: int | str = ""
    message: str = ""


_created = msgspec.json.Decoder(_Created).decode


class Twilio(BaseChannel):
    """Thread-safe: `PerAccount.get` stores the prepared parts whole, and nothing changes them."""

    provider: ClassVar[str] = wire.PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = wire.TwilioOptions
    endpoint: ClassVar[str] = "https://api.twilio.com"
    counted_by: ClassVar[Sequence[str]] = ("account_sid",)
    errors: ClassVar[ErrorTable] = TABLE
    promises: ClassVar[Capabilities] = Capabilities(
        title="Twilio Programmable Messaging (Messages 2010-04-01)",
        resolve="sent: a receipt that names its call (`status_callback`); not sent: the list of Messages "
        "by To, empty since the first call, `query_lag_s` after the last; not with numbers redacted",
        needs="set `status_callback` to the account's address at `hongyan receipts`; with redaction of "
        "numbers (PII) switched on at Twilio, receipts alone prove anything",
        receipts="pushed (StatusCallback) by SID and by the call's key in its query",
        limits="one number a call; 1,600 characters",
        source=(
            "https://www.twilio.com/docs/messaging/api/message-resource",
            "https://www.twilio.com/docs/api/errors",
        ),
    )

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._accounts = sms.PerAccount(wire.prepare)

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Refuses impossible numbers, a missing or too long text, variables that are no texts."""
        if refused := sms.number_refusal(delivery.receiver):
            return refused
        template = delivery.template_for(wire.PROVIDER)
        if template is not None:
            return _template_refusal(template)
        content = delivery.content_for(wire.PROVIDER)
        if content is None:
            return no_form(delivery, wire.PROVIDER) or _text_refusal(None)
        return _text_refusal(content.get("text"))

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._accounts.get(call.account)
        sender = _sender(prepared.options, call.key)
        form = {"To": delivery.receiver} | sender | wire.content_fields(delivery)
        body = urlencode(form).encode("ascii")
        fields = [
            *prepared.fields,
            (b"Content-Type", b"application/x-www-form-urlencoded"),
            (b"Content-Length", b"%d" % len(body)),
        ]
        stream, extensions = httpx.ByteStream(body), dict(prepared.extensions)
        return httpx.Request(
            "POST", prepared.url, headers=fields, stream=stream, extensions=extensions
        )

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        created = decoded(_created, answer.content)
        if created is None:
            return sms.unread(call, answer)
        if answer.is_success:
            return for_all(call, Accepted(created.sid) if created.sid else _NO_SID)
        if not created.code:
            return for_all(call, CONTRADICTION) if created.sid else sms.unread(call, answer)
        code, sender = str(created.code), call.account.options.sender
        if code in OF_COUNTRY and _SHORT_CODE.fullmatch(sender):
            detail = sms.shown_message(created.message) or "a short code sends to its country alone"
            return for_all(call, Rejected(code, detail))
        wait_ms = sms.wait_of(answer, self._clock())
        return sms.refused(
            self.errors,
            call,
            code,
            created.message,
            wait_ms=wait_ms,
            status=answer.status_code,
        )

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Looks for messages to the number since the first call."""
        prepared = self._accounts.get(account)
        listing = Listing(attempt, lag_s=prepared.options.query_lag_s)
        yield from wire.listed(prepared, attempt, listing)
        if not listing.decided:
            yield from wire.unmasked(prepared, listing)
        return listing.verdict()


_NO_SID: Final = Unknown("unreadable", "the provider made a message and did not name it")


def _template_refusal(template: Template) -> str:
    if not template.id.startswith("HX"):
        return "bad_template: give the SID of a content template, which begins with HX"
    return sms.params_refusal(template.params)


def _text_refusal(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        return 'no_text: give the text as content {"text": "…"}'
    if len(text) > _MAX_TEXT:
        return f"text_too_long: {len(text):,} characters; at most {_MAX_TEXT:,} are taken"
    return ""


def _sender(options: wire.TwilioOptions, call_key: str) -> dict[str, str]:
    named = {
        "From": options.sender,
        "MessagingServiceSid": options.messaging_service_sid,
        "StatusCallback": wire.callback(options, call_key),
    }
    return {name: value for name, value in named.items() if value}


CHANNELS = (Twilio(),)
