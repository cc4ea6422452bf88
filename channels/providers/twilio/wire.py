"""Twilio on the wire: the fields of an account and of a message, and the list of Messages."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Generator
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import msgspec

from channels.channel import Account, Answer, Attempt
from channels.endpoints import HTTP, endpoint_url
from channels.http_client.request import extensions_of, fields_of
from channels.judging.foreign_json import decoded
from channels.judging.listing import Listing
from channels.providers._common import sms
from channels.secret import Secret
from message.delivery import Delivery

PROVIDER: Final = "twilio"
_PAGE: Final = 200
_MAX_PAGES: Final = 40
_MS: Final = 1_000
_LATEST: Final = 20
"""The account's latest messages, checked for redacted numbers."""
_NUMBER = re.compile(r"([a-z]+:)?\+?[0-9]{3,15}", re.ASCII)
"""An unredacted receiver: a redacted one has letters or asterisks for digits."""
CALL_PARAMETER: Final = "hongyan_call"
"""The parameter of the StatusCallback's query with the call's key, which receipts repeat, signed."""
_PRINTABLE = re.compile(r"[!-~]+")
_MAX_CALLBACK: Final = 3_900
"""Characters: Twilio takes 4,000, with the parameter for the call's key among them."""
Sid = Annotated[str, msgspec.Meta(pattern=r"^[A-Z]{2}[0-9a-fA-F]{32}$")]
OptionalSid = Annotated[str, msgspec.Meta(pattern=r"^([A-Z]{2}[0-9a-fA-F]{32})?$")]


class TwilioOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account; `sender` or `messaging_service_sid` is required."""

    account_sid: Sid
    auth_token: Secret
    """Of the account, or of the API key."""
    api_key_sid: OptionalSid = ""
    """An API key to sign in with in the account's place."""
    sender: str = ""
    """`From`: a number of the account's, a short code or an alphanumeric sender."""
    messaging_service_sid: OptionalSid = ""
    status_callback: str = ""
    """Where Twilio sends receipts: a full URL with a path, without an underscore in its host. Empty: where
    the account or the messaging service says, and then no receipt names its call."""
    query_lag_s: sms.Lag = 60
    """How old a call must be before an empty list is believed."""

    def __post_init__(self) -> None:
        if not (self.sender or self.messaging_service_sid):
            raise ValueError("sender or messaging_service_sid must be given")
        if self.status_callback and (fault := _callback_fault(self.status_callback)):
            raise ValueError(f"status_callback: {fault}")


def _callback_fault(callback: str) -> str:
    """Returns why Twilio would refuse every message for it (21609), or why its receipts could name no call;
    empty if neither. Whether Twilio can reach it shows at the first message."""
    if not _PRINTABLE.fullmatch(callback):
        return "must be a URL of printable ASCII characters, any other one percent-encoded"
    if "#" in callback or CALL_PARAMETER in callback:
        return f"must have no fragment and no parameter {CALL_PARAMETER}"
    if len(callback) > _MAX_CALLBACK:
        return f"must have at most {_MAX_CALLBACK:,} characters"
    try:
        url = urlsplit(callback)
        host = url.hostname or ""
    except ValueError:
        return "is not a URL"
    if url.scheme not in HTTP or not host or not url.path:
        return "must be a full http:// or https:// URL with a path"
    return "must have no underscore in its host: Twilio refuses it" if "_" in host else ""


class _Message(msgspec.Struct):
    sid: str = ""
    to: str | None = ""
    direction: str = ""
    date_created: str | None = ""


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_page_uri: str | None = None


class TwilioPrepared(msgspec.Struct, frozen=True):
    """The parts that all requests of one account share."""

    options: TwilioOptions
    url: httpx.URL
    fields: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


_page = msgspec.json.Decoder(_Page).decode
_json = msgspec.json.Encoder(order="deterministic")


def prepare(account: Account) -> TwilioPrepared:
    """Prepares requests of this account; the endpoint's own path stays in front."""
    url = endpoint_url(account.endpoint)
    options: TwilioOptions = account.options
    prefix = url.raw_path.partition(b"?")[0].rstrip(b"/")
    path = b"%b/2010-04-01/Accounts/%b/Messages.json" % (prefix, options.account_sid.encode())
    user = options.api_key_sid or options.account_sid
    login = b64encode(f"{user}:{options.auth_token.reveal()}".encode())
    fields = [
        *fields_of(url),
        (b"Accept", b"application/json"),
        (b"Authorization", b"Basic " + login),
    ]
    extensions = extensions_of(account)
    return TwilioPrepared(options, url.copy_with(raw_path=path), fields, extensions)


def callback(options: TwilioOptions, call_key: str) -> str:
    """Returns the account's StatusCallback with the call's key in its query; empty if there is none."""
    if not options.status_callback:
        return ""
    mark = "&" if "?" in options.status_callback else "?"
    return f"{options.status_callback}{mark}{CALL_PARAMETER}={call_key}"


def content_fields(delivery: Delivery) -> dict[str, str]:
    """Returns the form fields of the text, or of the content template and its variables."""
    template = delivery.template_for(PROVIDER)
    if template is None:
        return {"Body": str((delivery.content_for(PROVIDER) or {})["text"])}
    if not template.params:
        return {"ContentSid": template.id}
    variables = _json.encode(sms.texts(template.params)).decode()
    return {"ContentSid": template.id, "ContentVariables": variables}


def listed(
    prepared: TwilioPrepared, attempt: Attempt, listing: Listing
) -> Generator[httpx.Request, Answer, None]:
    """Reads every message to the number, of any date: a queued message has none. Each one made since the
    first call may be this attempt's."""
    pages, receiver = listing.pages(), attempt.delivery.receiver
    asked = urlencode({"To": receiver, "PageSize": str(_PAGE)})
    for _ in range(_MAX_PAGES):
        page = _read((yield _question(prepared, asked)), listing)
        if page is None:
            return
        for one in page.messages:
            if one.direction != "inbound" and _made_ms(one) >= listing.since:
                reason = f"{one.sid} went to the number; it may be this one"
                # Only a receipt with the call's key could still prove it.
                listing.later(reason, final=not prepared.options.status_callback)
        pages.page(one.sid for one in page.messages)
        asked = (page.next_page_uri or "").partition("?")[2]
        if not asked:
            pages.end()
        if not asked or listing.decided:
            return
    listing.later(f"more than {_MAX_PAGES * _PAGE:,} messages")


def unmasked(prepared: TwilioPrepared, listing: Listing) -> Generator[httpx.Request, Answer, None]:
    """Checks whether the account redacts numbers: a list by number then proves nothing."""
    page = _read((yield _question(prepared, urlencode({"PageSize": str(_LATEST)}))), listing)
    if page is not None and any(not _NUMBER.fullmatch(one.to or "") for one in page.messages):
        listing.later("numbers are redacted in the account's list, which so proves nothing")


def _question(prepared: TwilioPrepared, query: str) -> httpx.Request:
    """Returns a request for one page. Only the query of `next_page_uri` is used, never its host or path."""
    path = prepared.url.raw_path + b"?" + query.encode("ascii", "replace")
    url = prepared.url.copy_with(raw_path=path)
    return httpx.Request("GET", url, headers=prepared.fields, extensions=dict(prepared.extensions))


def _read(answer: Answer, listing: Listing) -> _Page | None:
    """Returns one page; None if it cannot be read, which the listing notes."""
    if not listing.answered(answer):
        return None
    page = decoded(_page, answer.content)
    if page is None:
        listing.later("unreadable")
    return page


def _made_ms(message: _Message) -> float:
    """Returns when it was created, epoch milliseconds. An unreadable date may be ours: infinity."""
    try:
        return parsedate_to_datetime(message.date_created or "").timestamp() * _MS
    except (ValueError, TypeError, OverflowError, IndexError):
        return float("inf")
