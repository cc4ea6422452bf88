"""Twilio: StatusCallback of a message.

    POST  MessageSid=SM…&MessageStatus=delivered&To=%2B1…&From=…&AccountSid=AC…[&ErrorCode=30003]
          X-Twilio-Signature: base64(HMAC-SHA1(auth token, address + every parameter, sorted by name))
    2xx   whatever its body

The address is the one given to Twilio, query and all, character for character. Behind a proxy we see
another one, so it is configured. Twilio signs it with its port or without; its own validator tries both,
and so does this one. New parameters may come at any time and are signed too. `queued`, `sending` and the
like say nothing about arrival; `sent` proves that the message went out. `hongyan_call` in the query names
the call (channels/providers/twilio/adapter.py): it is signed, and so proves a call in doubt. A redacted
number names nobody.

Sources: https://www.twilio.com/docs/usage/security#validating-requests
https://github.com/twilio/twilio-python/blob/main/twilio/request_validator.py (9.13.0, read 2026-11-22)
https://www.twilio.com/docs/messaging/guides/track-outbound-message-status
https://www.twilio.com/docs/messaging/api/message-resource#message-status-values
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Iterable
from typing import ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from channels.providers.twilio.wire import CALL_PARAMETER
from channels.secret import Secret
from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import Malformed, Parsed, Parser, Push, Unauthentic, same

_SAID: Final = {
    "sent": ReceiptState.SENT,
    "delivered": ReceiptState.DELIVERED,
    "read": ReceiptState.DELIVERED,
    "undelivered": ReceiptState.UNDELIVERED,
    "failed": ReceiptState.UNDELIVERED,
    "canceled": ReceiptState.UNDELIVERED,
}


class TwilioSigning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The secret and the address that check the account's receipts."""

    auth_token: Secret
    """The account's, also where messages are sent with an API key."""
    public_url: str
    """The callback's address as given to Twilio, without its query."""

    def __post_init__(self) -> None:
        if not self.public_url.startswith(("http://", "https://")) or "?" in self.public_url:
            raise ValueError("public_url must be a full URL without a query")
        urlsplit(self.public_url).port  # noqa: B018 (raises ValueError for what is no port)


class TwilioCallbacks(Parser):
    provider: ClassVar[str] = "twilio"
    options: ClassVar[type[msgspec.Struct]] = TwilioSigning

    def parse(self, push: Push, options: TwilioSigning) -> Parsed:
        """Returns the receipt in the status of one message, if it proves anything."""
        pairs = push.form()
        if not _signed(push, options, pairs):
            raise Unauthentic("X-Twilio-Signature is missing or wrong: compare public_url")
        call_key = push.parameters.get(CALL_PARAMETER, "")
        return Parsed(_receipts(push.account, dict(pairs), call_key), media_type="text/plain")


def _signed(push: Push, options: TwilioSigning, pairs: list[tuple[str, str]]) -> bool:
    """Returns True if the signature is right for the address with its port or without."""
    given, token = push.fields.get("x-twilio-signature", ""), options.auth_token.reveal()
    query = f"?{push.query}" if push.query else ""
    return any(
        same(given, signature(token, url + query, pairs)) for url in _spellings(options.public_url)
    )


def _spellings(address: str) -> tuple[str, str]:
    """Returns the address without a port and with one; the scheme's own where it has none."""
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    bare = parts.netloc.removesuffix(f":{parts.port}")
    return parts._replace(netloc=bare).geturl(), parts._replace(netloc=f"{bare}:{port}").geturl()


def signature(auth_token: str, url: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns the value of X-Twilio-Signature; a parameter given twice the same counts once."""
    text = url + "".join(name + value for name, value in sorted(set(pairs)))
    return b64encode(hmac.digest(auth_token.encode(), text.encode(), "sha1")).decode()


def _receipts(account: str, form: dict[str, str], call_key: str) -> list[Receipt]:
    sid, status = form.get("MessageSid") or form.get("SmsSid"), form.get("MessageStatus")
    if not sid or not status:
        raise Malformed("MessageSid and MessageStatus are expected")
    state = _SAID.get(status)
    if state is None:
        return []
    to = form.get("To", "").rpartition(":")[2]  # whatsapp:+1…
    receivers = (to,) if to.removeprefix("+").isdecimal() else ()
    code = form.get("ErrorCode") or status if state is ReceiptState.UNDELIVERED else None
    return [Receipt(account, state, sid, call_key, receivers=receivers, code=code)]


PARSERS = (TwilioCallbacks(),)
