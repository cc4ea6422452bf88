"""WeChat mini-program (小程序): subscribe messages, each to one OpenID, one for each grant of the user.

    POST /cgi-bin/message/subscribe/send?access_token=TOKEN
    {"touser", "template_id", "page", "miniprogram_state", "lang", "data": {PLACE: {"value"}}}
    {"errcode": 0, "errmsg": "ok"}

There is no client id and no query: an attempt in doubt stays in doubt. 43101 (the user did not grant it, or
the grant is used up) rejects. An earlier attempt in doubt may have used the grant: recovery then parks the
delivery for a person (recovery/retry/stage.py).

Sources:
https://developers.weixin.qq.com/miniprogram/dev/OpenApiDoc/mp-message-management/subscribe-message/sendMessage.html,
https://www.tencentcloud.com/document/product/1219/67648 (43107, 43108, 45168),
error codes https://developers.weixin.qq.com/doc/oplatform/developers/errCode/errCode.html
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

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
    failed,
    message_id,
)
from channels.providers.wechat.template import TemplateChannel, Value, data_of, message_of
from message.outcomes import Accepted, AnyOutcome, Limit

_DOCUMENT: Final = (
    "https://developers.weixin.qq.com/miniprogram/dev/OpenApiDoc/mp-message-management/"
    "subscribe-message/sendMessage.html"
)


_PLATFORM: Final = RowSource(
    "https://www.tencentcloud.com/zh/document/product/1219/67648", "2026-11-22"
)
"""Tencent's platform for mini-programs in other applications, which has the same call."""


class MiniOptions(AppOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account: the mini-program's version that a tap opens, and its language."""

    miniprogram_state: Literal["formal", "trial", "developer"] = "formal"
    lang: Literal["zh_CN", "en_US", "zh_HK", "zh_TW"] = "zh_CN"


class _Body(msgspec.Struct, omit_defaults=True):
    touser: str
    template_id: str
    data: dict[str, Value]
    miniprogram_state: str
    lang: str
    page: str = ""


_encoder = msgspec.json.Encoder(order="deterministic")


class WechatMiniChannel(TemplateChannel):
    provider: ClassVar[str] = "wechat_mini"
    path: ClassVar[str] = "cgi-bin/message/subscribe/send"
    channel: ClassVar[str] = "wechat_mini"
    options: ClassVar[type[msgspec.Struct]] = MiniOptions
    errors: ClassVar[ErrorTable] = ErrorTable(
        COMMON_ROWS,
        codes.documented(
            CODES,
            codes.shut_out("40013", "the AppID is not valid", 10 * MINUTE),
            codes.rejected("40003", "the OpenID is empty or not valid"),
            codes.rejected("40037", "the template id is empty or there is no such template"),
            codes.rejected("41030", "the page does not exist in the published version"),
            codes.rejected("43101", "the user has not granted this message"),
            codes.rejected("47003", "a value is empty or does not fit its place"),
        ),
        codes.documented(
            _PLATFORM,
            codes.account_fault("43107", "the account or template is banned", HOUR),
            codes.paced(
                "43108", Limit.RECEIVER, "messages to this user came at the same moment", 1_000
            ),
            codes.rejected("45168", "the text holds words that are not allowed"),
        ),
    )
    promises: ClassVar[Capabilities] = Capabilities(
        title="WeChat mini-program, subscribe messages (微信小程序订阅消息)",
        receipts="event subscribe_msg_sent_event, by msgid, where the answer named one",
        limits="one OpenID a call, one message for each grant; 10 million a day, 30 with payment",
        source=(_DOCUMENT, ERROR_CODES),
    )

    def request(self, call: Call) -> httpx.Request:
        """Returns the POST of the call's one delivery."""
        (delivery,) = call.deliveries
        message, options = message_of(delivery, self.provider), call.account.options
        body = _Body(
            touser=delivery.receiver,
            template_id=message.template_id,
            data={key: Value(value.value) for key, value in data_of(message).items()},
            page=message.page,
            miniprogram_state=options.miniprogram_state,
            lang=options.lang,
        )
        return self._accounts.of(call.account).post(
            {"access_token": call.token}, _encoder.encode(body)
        )

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns the outcome of the call's one delivery."""
        refused = failed(call, answer, self.errors)
        return refused or for_all(call, Accepted(message_id(call, answer)))


CHANNELS = (WechatMiniChannel(),)
