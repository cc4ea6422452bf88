"""DingTalk's group robot: the access_token, the sign, its time, the message's shape, 20 a minute.

It checks a sign as the provider documents: base64 of HMAC-SHA256 over `<timestamp>\\n<secret>` under the
secret, the time within an hour. A robot sends 20 messages a minute, and is then silent for ten minutes
(behaviour `limits`: "off" takes any number). Credentials: `access_token`, `secret`.

Source: https://open.dingtalk.com/document/robots/customize-robot-security-settings
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from simulator.protocols._dingtalk import answer, query
from simulator.protocols._json import json_object
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import ID, OneReceiver, ProtocolContext, ReceivedCall, Recipient, Reply, Verdict

_HOUR_MS: Final = 3_600_000
_MAX_BYTES: Final = 20_000
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "text": ("content",),
    "markdown": ("title", "text"),
    "link": ("title", "text", "messageUrl"),
    "actionCard": ("title", "text"),
    "feedCard": ("links",),
}
_KEYWORDS: Final = "310000.keywords"


class DingTalkRobot(OneReceiver):
    """Its state is the last minute's messages."""

    name = "dingtalk_robot"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._limits = KeyedWindows(world, self.name, (20, 60), silence_s=600)

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Serves one path; any other is 404."""
        if path != "/robot/send":
            return answer(404, "请求的URI地址不存在")
        if request.method != "POST":
            return answer(43002, "需要POST请求")
        if not request.field("content-type").startswith("application/json"):
            return answer(43004, "无效的HTTP HEADER Content-Type")
        asked = query(request)
        refused = self._refused(asked)
        if refused is None and self._limits.over(asked.get("access_token", "")):
            return answer(130101, "send too fast, exceed 20 times per minute")
        return refused or self._message(request.body)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the answer for the group, the one receiver."""
        return answer(0)

    def refuse(self, code: str) -> Reply:
        """Returns an error; two codes have a form of their own."""
        if code == "1111":
            throttled = {"status": 1111, "wait": 5, "source": "x5", "punish": "deny", "uuid": "sim"}
            return Reply(msgspec.json.encode(throttled))
        if code == _KEYWORDS:
            return answer(310000, "keywords not in content")
        if code == "310000":
            return answer(310000, "sign not match")
        return answer(int(code), f"error {code}")

    def _refused(self, asked: Mapping[str, str]) -> Reply | None:
        token = asked.get("access_token", "")
        if not token:
            return answer(40035, "缺少参数 access_token")
        if token != self.world.credential(self.name, "access_token", ID):
            return answer(300005, "token is not exist")
        timestamp = asked.get("timestamp", "")
        if not timestamp.isascii() or not timestamp.isdigit():
            return answer(310000, "invalid timestamp")
        if abs(self.world.now_ms() - int(timestamp)) > _HOUR_MS:
            return answer(310000, "invalid timestamp")
        if not hmac.compare_digest(asked.get("sign", "").encode(), self._sign(timestamp)):
            self.world.count(f"{self.name}.signatures_refused")
            return answer(310000, "sign not match")
        return None

    def _sign(self, timestamp: str) -> bytes:
        secret = self.world.credential(self.name, "secret").encode()
        mac = hmac.new(secret, digestmod=hashlib.sha256)
        mac.update(timestamp.encode() + b"\n" + secret)
        return base64.standard_b64encode(mac.digest())

    def _message(self, body: bytes) -> ReceivedCall | Reply:
        message = json_object(body)
        if message is None:
            return answer(40035, "缺少参数 json")
        if len(body) > _MAX_BYTES:
            return answer(460101, "message too long, exceed 20000 bytes")
        kind = str(message.get("msgtype", ""))
        if kind not in _FIELDS:
            return answer(400105, "不支持的消息类型")
        if not _complete(kind, message):
            return answer(40035, f"缺少参数 {kind}")
        digest = hashlib.sha256(body).hexdigest()[:16]
        group = self.world.credential(self.name, "group", "group")
        return ReceivedCall([Recipient(group, f"{self.name}:{digest}")])


def _complete(kind: str, message: dict[str, Any]) -> bool:
    part, at = message.get(kind), message.get("at", {})
    if set(message) - {"msgtype", kind, "at"} or not isinstance(part, dict):
        return False
    if set(at) - {"atMobiles", "atUserIds", "isAtAll"}:
        return False
    if kind == "actionCard":
        single = bool(part.get("singleTitle")) and bool(part.get("singleURL"))
        if single == bool(part.get("btns")):
            return False
    if kind == "feedCard":
        lines = part.get("links") or [{}]
        return all({"title", "messageURL", "picURL"} <= set(line) for line in lines)
    return all(part.get(name) for name in _FIELDS[kind])


PROTOCOLS = (DingTalkRobot,)
