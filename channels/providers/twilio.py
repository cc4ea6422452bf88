"""Twilio Programmable Messaging (2010-04-01): Messages.

    POST /2010-04-01/Accounts/{AccountSid}/Messages.json    Basic: account SID and auth token, or API key
    To=+1…&From=+1…&Body=…                       content {"text": "…"}, 1 to 1,600 characters
    To=+1…&MessagingServiceSid=MG…&ContentSid=HX…&ContentVariables={"1":"…"}       template
    201 {"sid":"SM…","status":"queued",…}        4xx {"code":21211,"message":"…","more_info","status":400}

One receiver a call. There is no dedup key, and nothing of ours travels with a message. An attempt in
doubt is looked up in the list of Messages by To, first with DateSent from the day of the call on, then
without: a message that still waits has no date. One with the same text, made since the call, says it
was sent; another notification with the very same text to the same number within that time would be
taken for it. The text of a content template is Twilio's, so of those only "nothing was sent to this
number at all" can be found out. The list's lag is not documented: `query_lag_s` (60) after the claim
an empty one is believed.

Sources: https://www.twilio.com/docs/messaging/api/message-resource
https://www.twilio.com/docs/content/send-templates-created-with-the-content-template-builder
https://www.twilio.com/docs/api/errors, https://www.twilio.com/docs/api/errors/20429 (safe to retry)
https://www.twilio.com/docs/api/errors/20500 (not safe to retry)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from time import time
from typing import ClassVar, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.base import BaseChannel
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure
from channels.error_table import ErrorTable
from channels.forms import no_form
from channels.outcomes import CONTRADICTION, for_all, of_failure
from channels.promises import Promises
from channels.providers import _sms as sms
from channels.providers import _sms_twilio_wire as wire
from channels.providers._sms_twilio_errors import TABLE
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Unknown

_MAX_TEXT: Final = 1_600


class _Created(msgspec.Struct):
    sid: str = ""
    code: int | str = ""
    message: str = ""


_created = msgspec.json.Decoder(_Created).decode


class Twilio(BaseChannel):
    """Safe from many threads: the prepared parts are written whole and never changed."""

    provider: ClassVar[str] = wire.PROVIDER
    channel: ClassVar[str] = "sms"
    knows_templates: ClassVar[bool] = True
    options: ClassVar[type[msgspec.Struct]] = wire.TwilioOptions
    endpoint: ClassVar[str] = "https://api.twilio.com"
    counted_by: ClassVar[Sequence[str]] = ("account_sid",)
    errors: ClassVar[ErrorTable] = TABLE
    promises: ClassVar[Promises] = Promises(
        title="Twilio Programmable Messaging (Messages 2010-04-01)",
        resolve="the list of Messages by To and DateSent, matched by the text; of content templates "
        "only that nothing went to the number",
        receipts="pushed (StatusCallback) by SID",
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
        """A number that cannot be, no text or one that is too long, variables that are no texts."""
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
        """The POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._accounts.get(call.account)
        form = {"To": delivery.receiver} | _sender(prepared.options) | wire.said(delivery)
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
        """The outcome of the call's one delivery."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        created = sms.read(_created, answer.content)
        if created is None:
            return sms.unread(call, answer)
        if answer.is_success:
            return for_all(call, Accepted(created.sid) if created.sid else _NO_SID)
        if not created.code:
            return for_all(call, CONTRADICTION) if created.sid else sms.unread(call, answer)
        wait_ms = sms.wait_of(answer, self._clock())
        return sms.refused(
            self.errors,
            call,
            str(created.code),
            created.message,
            wait_ms=wait_ms,
            status=answer.status_code,
        )

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Look for the message in the list of those to its number."""
        prepared = self._accounts.get(account)
        to = attempt.delivery.receiver
        day = datetime.fromtimestamp((attempt.called_at - wire.SKEW_MS) / 1_000, UTC).date()
        for dated in ({"DateSent>": day.isoformat()}, {}):
            found = yield from wire.looked_up(prepared, attempt, {"To": to, **dated})
            if found is not None:
                return found
        return sms.not_found(attempt, prepared.options.query_lag_s)


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


def _sender(options: wire.TwilioOptions) -> dict[str, str]:
    named = {
        "From": options.sender,
        "MessagingServiceSid": options.messaging_service_sid,
        "StatusCallback": options.status_callback,
    }
    return {name: value for name, value in named.items() if value}


CHANNELS = (Twilio(),)
