"""Events that WeChat pushes for an Official Account or a mini-program: checked and opened.

    GET   ?signature&timestamp&nonce&echostr      a test of the address: answer echostr
    POST  ?signature&timestamp&nonce[&encrypt_type=aes&msg_signature]
          <xml>…</xml>, or for a mini-program that chose it {…}; encrypted, the same around `Encrypt`
    200   success                                 else it comes again, three times in all

An account has one address for all events of its users; events that are no receipts are dropped. In the
clear the signature does not cover the body: an observer of one request can make others for ten minutes.
Choose the encrypted mode.

Sources: https://developers.weixin.qq.com/doc/service/guide/dev/push/,
https://developers.weixin.qq.com/miniprogram/dev/framework/server-ability/message-push.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import msgspec

from channels.secret import Secret
from idempotency.receipts.rules import Receipt
from receipts.parsers._wechat_crypto import Undecipherable, aes_key, decrypt, signature
from receipts.push import Malformed, Parsed, Push, Unauthentic, check_age, same

_TOLERANCE_S: Final = 600
_TEXT: Final = "text/plain"
Event = dict[str, Any]
"""The members of one event: texts, dictionaries and lists."""


class WechatSigning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Secrets that check and open the account's events."""

    token: Secret
    """As entered on the account's server settings."""
    aes_key: Secret | None = None
    """The EncodingAESKey; without it only events in the clear are read, with it only encrypted ones."""
    app_id: str = ""

    def __post_init__(self) -> None:
        if self.aes_key is not None:
            aes_key(self.aes_key.reveal())
            if not self.app_id:
                raise ValueError("app_id must be given with aes_key")


def answered(
    push: Push, options: WechatSigning, receipts: Callable[[str, Event], Sequence[Receipt]]
) -> Parsed:
    """Returns the receipts of one event, or a test's answer. Raises Unauthentic or Malformed."""
    given = push.parameters
    parts = (options.token.reveal(), given.get("timestamp", ""), given.get("nonce", ""))
    if not same(given.get("signature", ""), signature(*parts)):
        raise Unauthentic("the signature is missing or wrong")
    check_age(push, given.get("timestamp", ""), _TOLERANCE_S)
    if push.method == "GET":
        return Parsed(answer=given.get("echostr", "").encode(), media_type=_TEXT)
    event = _event(push.body)
    if options.aes_key is not None:
        event = _opened(event, given, parts, options, options.aes_key)
    return Parsed(receipts(push.account, event), b"success", _TEXT)


def text_of(event: Event, *names: str) -> str:
    """Returns the first of these members that is there, as text; empty where none is."""
    found = (event[name] for name in names if name in event)
    return next((str(one) for one in found if isinstance(one, str | int)), "")


def epoch_ms(text: str) -> int:
    """Returns seconds as milliseconds; 0 for any other text."""
    return int(text) * 1_000 if text.isascii() and text.isdigit() and len(text) < 12 else 0


def _opened(
    event: Event,
    given: dict[str, str],
    parts: tuple[str, str, str],
    options: WechatSigning,
    key: Secret,
) -> Event:
    encrypted = text_of(event, "Encrypt")
    if not same(given.get("msg_signature", ""), signature(*parts, encrypted)):
        raise Unauthentic("msg_signature is missing or wrong")
    try:
        return _event(decrypt(aes_key(key.reveal()), encrypted, options.app_id))
    except Undecipherable as exc:
        raise Unauthentic(f"the event cannot be decrypted: {exc}") from exc


def _event(body: bytes) -> Event:
    """Returns the body's members, from XML or JSON. Refuses a document type unread: it brings entities."""
    if body.lstrip().startswith(b"{"):
        return _of_json(body)
    try:
        text = body.decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise Malformed("XML with a document type is not read")
        root = ET.fromstring(text)  # noqa: S314 - without a document type nothing expands
    except (ET.ParseError, ValueError, LookupError) as exc:
        raise Malformed(f"XML in UTF-8 is expected: {exc}") from exc
    return {child.tag: _part(child) for child in root}


def _part(element: ET.Element) -> Any:
    """Returns a text, or the members of the element's members: events go two levels deep."""
    if not len(element):
        return (element.text or "").strip()
    return {"List": [{one.tag: (one.text or "").strip() for one in entry} for entry in element]}


def _of_json(body: bytes) -> Event:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise Malformed("a JSON object is expected") from exc
