"""Template messages of a WeChat Official Account: one per OpenID and client_msg_id within 10 minutes.

https://developers.weixin.qq.com/doc/service/api/notify/template/api_sendtemplatemessage.html
"""

from __future__ import annotations

import re
from typing import Any, Final

from simulator.ledger import LedgerRecord
from simulator.protocols._wechat import WechatProtocol, answer, template_values
from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext, ReceivedCall, Recipient, Reply, Verdict

_WINDOW_MS: Final = 600_000
_FIRST_ID: Final = 3_000_000_000_000
_OPENID = re.compile(r"[A-Za-z0-9_-]+")


class WechatOfficialProtocol(WechatProtocol):
    name = "wechat_official"
    path = "/cgi-bin/message/template/send"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._sent: dict[str, tuple[int, str]] = {}
        """By OpenID and client id: time and msgid."""

    def message(self, body: dict[str, Any], request: Request) -> ReceivedCall | Reply:
        openid, template = body.get("touser"), body.get("template_id")
        if not isinstance(openid, str) or not _OPENID.fullmatch(openid):
            return self.refuse("40003")
        if not isinstance(template, str) or not template:
            return self.refuse("40037")
        if template_values(body.get("data")) is None:
            return self.refuse("47003")
        if len(str(body.get("url", "")).encode()) > 1_024:
            return self.refuse("40039")
        client = body.get("client_msg_id", "")
        if not isinstance(client, str) or len(client.encode()) > 64:
            return self.refuse("45067")
        key = f"{self.name}:{client}:{openid}" if client else ""
        return ReceivedCall([Recipient(openid, key)], client)

    def provider_id(self, seq: int) -> str:
        """Returns a number."""
        return str(_FIRST_ID + seq)

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        at_ms, provider_id = self._sent.get(recipient.key, (0, ""))
        return provider_id if recipient.key and self.world.now_ms() - at_ms < _WINDOW_MS else None

    def accepted(self, record: LedgerRecord) -> None:
        self._sent[record.key] = (record.at_ms, record.provider_id)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        return answer(0, "ok", msgid=int(verdict.provider_id))


PROTOCOLS = (WechatOfficialProtocol,)
