"""WeChat Official Account: the event TEMPLATESENDJOBFINISH, in the clear or encrypted.

    GET   ?signature&timestamp&nonce&echostr      the address is tried out: answer echostr
    POST  ?signature&timestamp&nonce[&encrypt_type=aes&msg_signature]
          <xml><ToUserName/><FromUserName>openid</…><CreateTime>1395658920</…><MsgType>event</…>
          <Event>TEMPLATESENDJOBFINISH</…><MsgID>200163836</…><Status>success</…></xml>
    200   success                                 else it comes again, three times in all

`Status` is `success`, `failed:user block` or `failed: system failed`. An account has one address for
everything its users do: whatever is no receipt is received and forgotten. In the clear the signature does
not cover the body, so whoever sees one request can make others for ten minutes: choose the encrypted mode.

Sources: https://developers.weixin.qq.com/doc/service/guide/product/template_message/Template_Message_Interface.html
https://developers.weixin.qq.com/doc/service/guide/dev/push/
"""

from __future__ import annotations

from typing import ClassVar, Final
from xml.etree import ElementTree as ET

import msgspec

from channels.secret import Secret
from idempotency.receipts import Receipt, Said
from receipts.parsers._wechat_crypto import Undecipherable, aes_key, decrypt, signature
from receipts.parsing import Malformed, Parsed, Push, Unauthentic, check_age, same

_EVENT: Final = "TEMPLATESENDJOBFINISH"
_TOLERANCE_S: Final = 600
_TEXT: Final = "text/plain"


class WechatSigning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the account's events are checked with."""

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


class WechatEvents:
    """See `receipts.parsing.Parser`."""

    provider: ClassVar[str] = "wechat_official"
    options: ClassVar[type[msgspec.Struct]] = WechatSigning

    def parse(self, push: Push, options: WechatSigning) -> Parsed:
        """One event, or the question whether the address is ours."""
        given = push.parameters
        parts = (options.token.reveal(), given.get("timestamp", ""), given.get("nonce", ""))
        if not same(given.get("signature", ""), signature(*parts)):
            raise Unauthentic("the signature is missing or wrong")
        check_age(push, given.get("timestamp", ""), _TOLERANCE_S)
        if push.method == "GET":
            return Parsed(answer=given.get("echostr", "").encode(), media_type=_TEXT)
        fields = _fields(push.body)
        if options.aes_key is not None:
            fields = _opened(fields, given, parts, options, options.aes_key)
        return Parsed(_receipts(push.account, fields), b"success", _TEXT)


def _opened(
    fields: dict[str, str],
    given: dict[str, str],
    parts: tuple[str, str, str],
    options: WechatSigning,
    key: Secret,
) -> dict[str, str]:
    encrypted = fields.get("Encrypt", "")
    if not same(given.get("msg_signature", ""), signature(*parts, encrypted)):
        raise Unauthentic("msg_signature is missing or wrong")
    try:
        return _fields(decrypt(aes_key(key.reveal()), encrypted, options.app_id))
    except Undecipherable as exc:
        raise Unauthentic(f"the event cannot be decrypted: {exc}") from exc


def _fields(body: bytes) -> dict[str, str]:
    """The elements below the root. A document type is refused unread: entities come with it."""
    try:
        text = body.decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text:
            raise Malformed("XML with a document type is not read")
        root = ET.fromstring(text)  # noqa: S314 - without a document type nothing expands
    except (ET.ParseError, ValueError, LookupError) as exc:
        raise Malformed(f"XML in UTF-8 is expected: {exc}") from exc
    return {child.tag: (child.text or "").strip() for child in root}


def _receipts(account: str, fields: dict[str, str]) -> list[Receipt]:
    if fields.get("Event") != _EVENT:
        return []
    msgid = fields.get("MsgID") or fields.get("MsgId", "")
    openid, status = fields.get("FromUserName", ""), fields.get("Status", "")
    if not (msgid and openid and status):
        raise Malformed("MsgID, FromUserName and Status are expected")
    good = status == "success"
    at = fields.get("CreateTime", "")
    return [
        Receipt(
            account=account,
            said=Said.DELIVERED if good else Said.UNDELIVERED,
            provider_id=msgid,
            receivers=(openid,),
            code=None if good else status.removeprefix("failed:").strip(),
            at=int(at) * 1_000 if at.isascii() and at.isdigit() and len(at) < 12 else 0,
        )
    ]


PARSERS = (WechatEvents(),)
