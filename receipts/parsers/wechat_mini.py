"""WeChat mini-program: the event subscribe_msg_sent_event, the outcome of a subscribe message.

    <xml>…<FromUserName>openid</…><CreateTime>1620963428</…><Event>subscribe_msg_sent_event</…>
    <SubscribeMsgSentEvent><List><TemplateId/><MsgID>1864323726461255680</…>
      <ErrorCode>0</…><ErrorStatus>success</…></List></SubscribeMsgSentEvent></xml>

    {"FromUserName": "openid", "Event": "subscribe_msg_sent_event", "CreateTime": 1620963428,
     "List": {"TemplateId", "MsgID": "…", "ErrorCode": "0", "ErrorStatus": "success"}}       one: no list

`ErrorStatus` is `success`, or the reason for a failure (`invalid template`, `failed: user block`, …). The
JSON of one message has an object where several have a list, under `List` or under the event's own name
(Wechat-Group/WxJava#2477). A receipt finds its delivery by the msgid in the answer to the send; the
provider does not promise one there. receipts/parsers/_wechat_events.py checks and opens events.

Source: https://developers.weixin.qq.com/miniprogram/dev/framework/open-ability/subscribe-message.html,
read 2026-11-22
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.parsers._wechat_events import Event, WechatSigning, answered, epoch_ms, text_of
from receipts.push import Malformed, Parsed, Parser, Push

_EVENT: Final = "subscribe_msg_sent_event"
_MEMBERS: Final = ("SubscribeMsgSentEvent", "List")


class WechatMiniEvents(Parser):
    provider: ClassVar[str] = "wechat_mini"
    options: ClassVar[type[msgspec.Struct]] = WechatSigning

    def parse(self, push: Push, options: WechatSigning) -> Parsed:
        """Returns the receipts of one event, or the answer to a test of the address."""
        return answered(push, options, _receipts)


def _receipts(account: str, event: Event) -> list[Receipt]:
    if event.get("Event") != _EVENT:
        return []
    openid = text_of(event, "FromUserName")
    entries = _entries(event)
    if not openid or not entries:
        raise Malformed("FromUserName and a list of messages are expected")
    at = epoch_ms(text_of(event, "CreateTime"))
    return [_receipt(account, openid, entry, at) for entry in entries]


def _entries(event: Event) -> Sequence[Event]:
    found: Any = event
    for name in _MEMBERS:
        if isinstance(found, dict) and name in found:
            found = found[name]
    entries = [found] if isinstance(found, dict) else found
    if found is event or not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _receipt(account: str, openid: str, entry: Event, at: int) -> Receipt:
    msgid, status = text_of(entry, "MsgID", "MsgId"), text_of(entry, "ErrorStatus")
    code = text_of(entry, "ErrorCode")
    if not msgid or not (status or code):
        raise Malformed("MsgID and ErrorStatus are expected of each message")
    good = status == "success" if status else code == "0"
    return Receipt(
        account=account,
        said=ReceiptState.DELIVERED if good else ReceiptState.UNDELIVERED,
        provider_id=msgid,
        receivers=(openid,),
        code=None if good else f"{code}: {status}".strip(": "),
        at=at,
    )


PARSERS = (WechatMiniEvents(),)
