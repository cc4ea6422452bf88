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

from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from time import time
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.base import BaseChannel
from channels.channel import Account, Answer, Attempt, Call, Dialogue, Failure, Resolution, Resolved
from channels.endpoints import endpoint_url
from channels.error_table import ErrorTable
from channels.outcomes import for_all, of_failure
from channels.promises import Promises
from channels.providers import _sms as sms
from channels.providers._sms_twilio_errors import TABLE
from channels.secret import Secret
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, Unknown

_MAX_TEXT: Final = 1_600
_PAGE: Final = 200
_MAX_PAGES: Final = 40
_MS: Final = 1_000
_SKEW_MS: Final = 60_000
"""How far Twilio's clock and the ledger's may be apart."""
_TRIAL: Final = "Sent from your Twilio trial account - "
"""What Twilio puts in front of the texts of trial accounts."""
Sid = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2}[0-9a-fA-F]{32}$")]
OptionalSid = Annotated[str, msgspec.Meta(pattern=r"^([A-Z]{2}[0-9a-fA-F]{32})?$")]


class TwilioOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account may say; one of `sender` and `messaging_service_sid` it must."""

    account_sid: Sid
    auth_token: Secret
    """Of the account, or of the API key."""
    api_key_sid: OptionalSid = ""
    """An API key to sign in with in the account's place."""
    sender: str = ""
    """`From`: a number of the account's, a short code or an alphanumeric sender."""
    messaging_service_sid: OptionalSid = ""
    status_callback: str = ""
    """Where Twilio sends receipts; empty: where the account or the messaging service says."""
    query_lag_s: sms.Lag = 60
    """How old a call must be before a list without it is believed."""

    def __post_init__(self) -> None:
        if not (self.sender or self.messaging_service_sid):
            raise ValueError("sender or messaging_service_sid must be given")


class _Created(msgspec.Struct):
    sid: str = ""
    code: int | str = ""
    message: str = ""


class _Message(msgspec.Struct):
    sid: str = ""
    to: str = ""
    body: str | None = ""
    direction: str = ""
    date_created: str | None = ""


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_page_uri: str | None = None


class _Prepared(msgspec.Struct, frozen=True):
    """What all requests of one account share."""

    account: Account
    options: TwilioOptions
    url: httpx.URL
    fields: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


_created = msgspec.json.Decoder(_Created).decode
_page = msgspec.json.Decoder(_Page).decode
_json = msgspec.json.Encoder(order="deterministic")


class Twilio(BaseChannel):
    """Safe from many threads: the prepared parts are written whole and never changed."""

    provider: ClassVar[str] = "twilio"
    channel: ClassVar[str] = "sms"
    options: ClassVar[type[msgspec.Struct]] = TwilioOptions
    endpoint: ClassVar[str] = "https://api.twilio.com"
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
        self._prepared: dict[str, _Prepared] = {}

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """A number that cannot be, no text or one that is too long, variables that are no texts."""
        if refused := sms.number_refusal(delivery.receiver):
            return refused
        if delivery.template is not None:
            return _template_refusal(delivery)
        return _text_refusal((delivery.content or {}).get("text"))

    def request(self, call: Call) -> httpx.Request:
        """The POST of the call's one delivery."""
        (delivery,) = call.deliveries
        prepared = self._for(call.account)
        form = {"To": delivery.receiver} | _sender(prepared.options) | _said(delivery)
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
            return sms.unread(call, answer)
        wait_ms = sms.wait_of(answer, self._clock())
        return sms.refused(self.errors, call, str(created.code), created.message, wait_ms=wait_ms)

    def resolve(self, account: Account, attempt: Attempt) -> Dialogue:
        """Look for the message in the list of those to its number."""
        prepared = self._for(account)
        to = attempt.delivery.receiver
        day = datetime.fromtimestamp((attempt.called_at - _SKEW_MS) / _MS, UTC).date()
        for dated in ({"DateSent>": day.isoformat()}, {}):
            found = yield from _looked_up(prepared, attempt, {"To": to, **dated})
            if found is not None:
                return found
        return sms.not_found(attempt, prepared.options.query_lag_s)

    def _for(self, account: Account) -> _Prepared:
        prepared = self._prepared.get(account.name)
        if prepared is None or prepared.account is not account:
            prepared = self._prepared[account.name] = _prepare(account)
        return prepared


_NO_SID: Final = Unknown("unreadable", "the provider made a message and did not name it")


def _prepare(account: Account) -> _Prepared:
    url = endpoint_url(account.endpoint)
    options: TwilioOptions = account.options
    prefix = url.raw_path.partition(b"?")[0].rstrip(b"/")
    path = b"%b/2010-04-01/Accounts/%b/Messages.json" % (prefix, options.account_sid.encode())
    user = options.api_key_sid or options.account_sid
    login = b64encode(f"{user}:{options.auth_token.reveal()}".encode())
    fields = [
        (b"Host", url.netloc),
        (b"User-Agent", b"hongyan"),
        (b"Accept", b"application/json"),
        (b"Authorization", b"Basic " + login),
    ]
    extensions = {"ca_file": account.ca_file} if account.ca_file else {}
    return _Prepared(account, options, url.copy_with(raw_path=path), fields, extensions)


def _template_refusal(delivery: Delivery) -> str:
    assert delivery.template is not None
    if not delivery.template.id.startswith("HX"):
        return "bad_template: give the SID of a content template, which begins with HX"
    return sms.params_refusal(delivery.template.params)


def _text_refusal(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        return 'no_text: give the text as content {"text": "…"}'
    if len(text) > _MAX_TEXT:
        return f"text_too_long: {len(text):,} characters; at most {_MAX_TEXT:,} are taken"
    return ""


def _sender(options: TwilioOptions) -> dict[str, str]:
    named = {
        "From": options.sender,
        "MessagingServiceSid": options.messaging_service_sid,
        "StatusCallback": options.status_callback,
    }
    return {name: value for name, value in named.items() if value}


def _said(delivery: Delivery) -> dict[str, str]:
    template = delivery.template
    if template is None:
        return {"Body": str((delivery.content or {})["text"])}
    if not template.params:
        return {"ContentSid": template.id}
    variables = _json.encode(sms.texts(template.params)).decode()
    return {"ContentSid": template.id, "ContentVariables": variables}


def _looked_up(
    prepared: _Prepared, attempt: Attempt, query: Mapping[str, str]
) -> Generator[httpx.Request, Answer, Resolved | None]:
    """Go through the pages of one list; None: the message is on none of them."""
    asked = urlencode({**query, "PageSize": str(_PAGE)})
    for _ in range(_MAX_PAGES):
        answer = yield _question(prepared, asked)
        page = _read(answer)
        if isinstance(page, Resolved):
            return page
        found = _found(attempt, page.messages)
        if found is not None:
            return found
        asked = (page.next_page_uri or "").partition("?")[2]
        if not asked:
            return None
    return Resolved(Resolution.ASK_LATER, detail=f"more than {_MAX_PAGES * _PAGE:,} messages")


def _question(prepared: _Prepared, query: str) -> httpx.Request:
    """Of `next_page_uri` the query alone is followed: where to ask is the account's to say."""
    path = prepared.url.raw_path + b"?" + query.encode("ascii", "replace")
    url = prepared.url.copy_with(raw_path=path)
    return httpx.Request("GET", url, headers=prepared.fields, extensions=dict(prepared.extensions))


def _read(answer: Answer) -> _Page | Resolved:
    if isinstance(answer, Failure) or not answer.is_success:
        return sms.ask_later(answer)
    return sms.read(_page, answer.content) or sms.ask_later(answer, "unreadable")


def _found(attempt: Attempt, messages: Iterable[_Message]) -> Resolved | None:
    since_s = (attempt.called_at - _SKEW_MS) / _MS
    text = None if attempt.delivery.template else _said(attempt.delivery)["Body"]
    for one in messages:
        if one.direction == "inbound" or one.to != attempt.delivery.receiver:
            continue
        if _made_s(one) < since_s:
            continue
        if text is None:
            return Resolved(
                Resolution.ASK_LATER, detail=f"{one.sid} went to the number; it may be this one"
            )
        if one.body in (text, _TRIAL + text):
            return Resolved(Resolution.SENT, one.sid)
    return None


def _made_s(message: _Message) -> float:
    """When it was created, epoch seconds; what cannot be read may be ours, so it counts as just now."""
    try:
        return parsedate_to_datetime(message.date_created or "").timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("inf")


CHANNELS = (Twilio(),)
