"""Subscribe messages of a WeChat mini-program: no client id, no query.

https://developers.weixin.qq.com/miniprogram/dev/OpenApiDoc/mp-message-management/subscribe-message/sendMessage.html
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final

from simulator.protocols._wechat import WechatProtocol, answer, template_values
from simulator.servers.http_request import Request
from simulator.wire import ReceivedCall, Recipient, Reply, Verdict

_STATES: Final = ("developer", "trial", "formal")
_LANGUAGES: Final = ("zh_CN", "en_US", "zh_HK", "zh_TW")
_FIRST_ID: int = 1_864_323_726_461_000_000


class WechatMiniProtocol(WechatProtocol):
    name = "wechat_mini"
    path = "/cgi-bin/message/subscribe/send"

    def message(self, body: dict[str, Any], request: Request) -> ReceivedCall | Reply:
        openid, template = body.get("touser"), body.get("template_id")
        if not isinstance(openid, str) or not openid:
            return self.refuse("40003")
        if not isinstance(template, str) or not template:
            return self.refuse("40037")
        values = template_values(body.get("data"))
        if values is None or not all(values):
            return self.refuse("47003")
        if body.get("miniprogram_state", "formal") not in _STATES:
            return self.refuse("47003")
        if body.get("lang", "zh_CN") not in _LANGUAGES:
            return self.refuse("47003")
        # Nothing on the wire names a call: the message itself identifies it.
        digest = sha256(request.body).hexdigest()[:16]
        return ReceivedCall([Recipient(openid, f"{self.name}:{digest}:{openid}")])

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        if self.world.behaviour(self.name, "msgid") == "true":
            return answer(0, "ok", msgid=int(verdict.provider_id))
        return answer(0, "ok")

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return str(_FIRST_ID + seq)


PROTOCOLS = (WechatMiniProtocol,)
