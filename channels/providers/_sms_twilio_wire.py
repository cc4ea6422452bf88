"""Twilio on the wire: what an account says, what a message says, and the list of Messages."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Generator, Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Final
from urllib.parse import urlencode

import httpx
import msgspec

from channels.channel import Account, Answer, Attempt, Failure, Resolution, Resolved
from channels.endpoints import endpoint_url
from channels.providers import _sms as sms
from channels.secret import Secret
from message.delivery import Delivery

PROVIDER: Final = "twilio"
_PAGE: Final = 200
_MAX_PAGES: Final = 40
_MS: Final = 1_000
SKEW_MS: Final = 60_000
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


class _Message(msgspec.Struct):
    sid: str = ""
    to: str = ""
    body: str | None = ""
    direction: str = ""
    date_created: str | None = ""


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_page_uri: str | None = None


class Prepared(msgspec.Struct, frozen=True):
    """What all requests of one account share."""

    options: TwilioOptions
    url: httpx.URL
    fields: list[tuple[bytes, bytes]]
    extensions: dict[str, Any]


_page = msgspec.json.Decoder(_Page).decode
_json = msgspec.json.Encoder(order="deterministic")


def prepare(account: Account) -> Prepared:
    """For requests of this account; the endpoint's own path stays in front."""
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
    return Prepared(options, url.copy_with(raw_path=path), fields, extensions)


def said(delivery: Delivery) -> dict[str, str]:
    """The fields that carry the text, or the content template and its variables."""
    template = delivery.template_for(PROVIDER)
    if template is None:
        return {"Body": str((delivery.content_for(PROVIDER) or {})["text"])}
    if not template.params:
        return {"ContentSid": template.id}
    variables = _json.encode(sms.texts(template.params)).decode()
    return {"ContentSid": template.id, "ContentVariables": variables}


def looked_up(
    prepared: Prepared, attempt: Attempt, query: Mapping[str, str]
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


def _question(prepared: Prepared, query: str) -> httpx.Request:
    """Of `next_page_uri` the query alone is followed: where to ask is the account's to say."""
    path = prepared.url.raw_path + b"?" + query.encode("ascii", "replace")
    url = prepared.url.copy_with(raw_path=path)
    return httpx.Request("GET", url, headers=prepared.fields, extensions=dict(prepared.extensions))


def _read(answer: Answer) -> _Page | Resolved:
    if isinstance(answer, Failure) or not answer.is_success:
        return sms.ask_later(answer)
    return sms.read(_page, answer.content) or sms.ask_later(answer, "unreadable")


def _found(attempt: Attempt, messages: Iterable[_Message]) -> Resolved | None:
    since_s = (attempt.called_at - SKEW_MS) / _MS
    # Of a template of ours the ledger keeps the name: what it says today may not be what it said then.
    content = attempt.delivery.content_for(PROVIDER)
    text = None if content is None else str(content["text"])
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
