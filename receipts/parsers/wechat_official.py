"""WeChat Official Account: the event TEMPLATESENDJOBFINISH, in the clear or encrypted.

    <xml><ToUserName/><FromUserName>openid</…><CreateTime>1395658920</…><MsgType>event</…>
    <Event>TEMPLATESENDJOBFINISH</…><MsgID>200163836</…><Status>success</…></xml>

`Status` is `success`, `failed:user block` or `failed: system failed`. receipts/parsers/_wechat_events.py
checks and opens events.

Source: https://developers.weixin.qq.com/doc/service/guide/product/template_message/Template_Message_Interface.html
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.parsers._wechat_events import Event, WechatSigning, answered, epoch_ms, text_of
from receipts.push import Malformed, Parsed, Parser, Push

_EVENT: Final = "TEMPLATESENDJOBFINISH"


class WechatEvents(Parser):
    provider: ClassVar[str] = "wechat_official"
    options: ClassVar[type[msgspec.Struct]] = WechatSigning

    def parse(self, push: Push, options: WechatSigning) -> Parsed:
        """Returns the receipt of one event, or the answer to a test of the address."""
        return answered(push, options, _receipts)


def _receipts(account: str, event: Event) -> list[Receipt]:
    if event.get("Event") != _EVENT:
        return []
    msgid = text_of(event, "MsgID", "MsgId")
    openid, status = text_of(event, "FromUserName"), text_of(event, "Status")
    if not (msgid and openid and status):
        raise Malformed("MsgID, FromUserName and Status are expected")
    good = status == "success"
    return [
        Receipt(
            account=account,
            said=ReceiptState.DELIVERED if good else ReceiptState.UNDELIVERED,
            provider_id=msgid,
            receivers=(openid,),
            code=None if good else status.removeprefix("failed:").strip(),
            at=epoch_ms(text_of(event, "CreateTime")),
        )
    ]


PARSERS = (WechatEvents(),)
