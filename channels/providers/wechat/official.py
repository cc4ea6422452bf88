"""WeChat Official Account (服务号): template messages, each to one OpenID.

    POST /cgi-bin/message/template/send?access_token=TOKEN
    {"touser", "template_id", "url", "miniprogram", "data": {PLACE: {"value", "color"}}, "client_msg_id"}
    {"errcode": 0, "errmsg": "ok", "msgid": 200228332}

`client_msg_id`: "for the same openid and client_msg_id one message only, for 10 minutes"; it is the call's
key. The answer to a repeat is not documented. errcode 0 is Accepted, and so is 45065 (the mass-send API's
code for a known client id): nobody else uses our keys, so the message arrived before.
The event TEMPLATESENDJOBFINISH reports later, by msgid, whether it was shown.

The call names only the AppID of the message's mini-program. 40013 means that it is not bound to the
account, 40165 that its page path is not valid. Both are the message's fault
(https://developers.weixin.qq.com/community/minihome/doc/000860335f4ca80cd0932f3dd66c00, the service's own
answer, read 2026-11-22). The token request refuses a wrong AppID of the account.

Sources: https://developers.weixin.qq.com/doc/service/api/notify/template/api_sendtemplatemessage.html,
https://developers.weixin.qq.com/doc/service/guide/product/template_message/Template_Message_Interface.html,
error codes https://developers.weixin.qq.com/doc/oplatform/developers/errCode/errCode.html
"""

from __future__ import annotations

from typing import ClassVar, Final

import httpx
import msgspec

from channels.capabilities import Capabilities
from channels.channel import Answer, Call
from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.judging.outcomes import for_all
from channels.providers._common.wechat import (
    CODES,
    COMMON_ROWS,
    ERROR_CODES,
    AppOptions,
    code_of,
    failed,
    message_id,
)
from channels.providers.wechat.template import (
    Miniprogram,
    TemplateChannel,
    Value,
    data_of,
    message_of,
)
from message.outcomes import Accepted, AnyOutcome

_DOCUMENTS: Final = "https://developers.weixin.qq.com/doc/service"
_KNOWN_ID: Final = "45065"
_DEDUP_MS: Final = 9 * MINUTE
"""WeChat promises 10 minutes; the repeat needs time to arrive."""


_SEEN: Final = RowSource(
    "https://developers.weixin.qq.com/community/minihome/doc/000860335f4ca80cd0932f3dd66c00",
    "2026-11-22",
)
_CLOSED: Final = RowSource(
    "https://developers.weixin.qq.com/community/develop/doc/00086cee348a80792ab2b04576bc00",
    "2026-11-22",
)
_LISTED: Final = "public clients list it; no page of WeChat's that was read has it"


class _Body(msgspec.Struct, omit_defaults=True):
    touser: str
    template_id: str
    data: dict[str, Value]
    client_msg_id: str
    url: str = ""
    miniprogram: Miniprogram | None = None


_encoder = msgspec.json.Encoder(order="deterministic")


class WechatOfficialChannel(TemplateChannel):
    provider: ClassVar[str] = "wechat_official"
    path: ClassVar[str] = "cgi-bin/message/template/send"
    channel: ClassVar[str] = "wechat_official"
    options: ClassVar[type[msgspec.Struct]] = AppOptions
    dedup_window_ms: ClassVar[int] = _DEDUP_MS
    errors: ClassVar[ErrorTable] = ErrorTable(
        COMMON_ROWS,
        codes.documented(
            CODES,
            codes.rejected("40003", "the OpenID is not valid for this account"),
            codes.rejected("40036", "the template id has a wrong length"),
            codes.rejected("40037", "there is no such template"),
            codes.rejected("40039", "the link is too long"),
            codes.rejected("40066", "the link is not allowed"),
            codes.rejected("40165", "the page path of the mini-program is not valid"),
            codes.rejected("43004", "the receiver does not follow the account"),
            codes.rejected("43019", "the receiver is on the account's blacklist"),
            codes.rejected("43101", "the receiver refuses these messages"),
            codes.rejected("45013", "too many places are filled in"),
            codes.rejected("45014", "the message is too long"),
            codes.rejected("45051", "the link is not of the kind that is allowed here"),
            codes.unknown("45066", "the same client_msg_id came again too fast"),
            codes.rejected("45067", "the client_msg_id is too long"),
            codes.rejected("47003", "a value does not fit its place in the template"),
        ),
        codes.documented(
            _SEEN,
            codes.rejected("40013", "the message's mini-program is not bound to the account"),
        ),
        codes.documented(
            _CLOSED,
            codes.account_fault("45109", "the API is closed to this account", HOUR),
        ),
        codes.unproved(_LISTED, codes.rejected("43116", "the template is blocked for abuse")),
    )
    promises: ClassVar[Capabilities] = Capabilities(
        title="WeChat Official Account, template messages (微信服务号模板消息)",
        idempotency="`client_msg_id`: one per OpenID and id within 10 minutes",
        resolve="repeat with the same `client_msg_id` within 9 minutes",
        receipts="event TEMPLATESENDJOBFINISH, by msgid",
        limits="one OpenID a call; 100,000 messages a day to begin with",
        source=(f"{_DOCUMENTS}/api/notify/template/api_sendtemplatemessage.html", ERROR_CODES),
    )

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery, with the call's key."""
        (delivery,) = call.deliveries
        message = message_of(delivery, self.provider)
        body = _Body(
            touser=delivery.receiver,
            template_id=message.template_id,
            data=data_of(message),
            client_msg_id=call.key,
            url=message.url,
            miniprogram=message.miniprogram,
        )
        return self._accounts.of(call.account).post(
            {"access_token": call.token}, _encoder.encode(body)
        )

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        if isinstance(answer, httpx.Response) and code_of(answer) == _KNOWN_ID:
            return for_all(call, Accepted(call.key))
        refused = failed(call, answer, self.errors)
        return refused or for_all(call, Accepted(message_id(call, answer)))


CHANNELS = (WechatOfficialChannel(),)
