"""Feishu's custom robot: the hook, the sign, its time, the message's shape, 20 KB.

It checks a sign as the provider documents: base64 of HMAC-SHA256 over nothing, under
`<timestamp>\\n<secret>`, the time in seconds within an hour. A robot sends 5 messages a second and 100 a
minute (behaviour `limits`: "off" takes any number). Credentials: `hook`, `secret`.

Source: https://open.feishu.cn/document/ukTMukTMukTM/ucTM5YjL3ETO24yNxkjN
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Final

import msgspec

from simulator.protocols._feishu import answer
from simulator.protocols._json import json_object
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import ID, OneReceiver, ProtocolContext, ReceivedCall, Recipient, Reply, Verdict

_HOUR_S: Final = 3_600
_MS: Final = 1_000
_MAX_BYTES: Final = 20 * 1_024
_HOOK: Final = "/open-apis/bot/v2/hook/"
_FIELDS: Final = {
    "text": "text",
    "post": "post",
    "image": "image_key",
    "share_chat": "share_chat_id",
}
_TOO_MANY: Final = "9499.too_many"


class FeishuRobot(OneReceiver):
    """Its state is the last minute's messages."""

    name = "feishu_robot"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._limits = KeyedWindows(world, self.name, (5, 1), (100, 60))

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Serves one path, whose end is the hook."""
        if not path.startswith(_HOOK) or request.method != "POST":
            return Reply(b"404 page not found", 404, [("Content-Type", "text/plain")])
        if path.removeprefix(_HOOK) != self.world.credential(self.name, "hook", ID):
            return answer(19001, "param invalid: incoming webhook access token invalid", 400)
        body = json_object(request.body)
        if body is None or len(request.body) > _MAX_BYTES:
            return answer(9499, "Bad Request", 400, data={})
        refused = self._refused(body)
        if refused is None and self._limits.over(path.removeprefix(_HOOK)):
            return answer(11232, "frequency limited", data={})
        return refused or self._message(body)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the answer for the group, the one receiver."""
        return answer(0, data={}, Extra=None, StatusCode=0, StatusMessage="success")

    def refuse(self, code: str) -> Reply:
        """Returns an error; 9499 has two meanings."""
        if code == _TOO_MANY:
            return answer(9499, "too many request", 400, data={})
        texts = {"9499": "Bad Request", "19024": "Key Words Not Found", "19022": "Ip Not Allowed"}
        return answer(int(code), texts.get(code, f"error {code}"), data={})

    def _refused(self, body: dict[str, Any]) -> Reply | None:
        timestamp = str(body.get("timestamp", ""))
        on_time = timestamp.isascii() and timestamp.isdigit()
        if on_time:
            on_time = abs(self.world.now_ms() // _MS - int(timestamp)) <= _HOUR_S
        sign = str(body.get("sign", "")).encode()
        if on_time and hmac.compare_digest(sign, self._sign(timestamp)):
            return None
        self.world.count(f"{self.name}.signatures_refused")
        text = "sign match fail or timestamp is not within one hour from current time"
        return answer(19021, text, data={})

    def _sign(self, timestamp: str) -> bytes:
        secret = self.world.credential(self.name, "secret")
        mac = hmac.new(f"{timestamp}\n{secret}".encode(), digestmod=hashlib.sha256)
        return base64.standard_b64encode(mac.digest())

    def _message(self, body: dict[str, Any]) -> ReceivedCall | Reply:
        kind = body.get("msg_type")
        if not kind:
            return answer(19002, "params error, msg_type need", data={})
        part = body.get("card") if kind == "interactive" else body.get("content")
        if not isinstance(part, dict) or not part or not _complete(str(kind), part):
            return answer(9499, "Bad Request", 400, data={})
        digest = hashlib.sha256(msgspec.json.encode(part, order="deterministic")).hexdigest()[:16]
        group = self.world.credential(self.name, "group", "group")
        return ReceivedCall([Recipient(group, f"{self.name}:{digest}")])


def _complete(kind: str, part: dict[str, Any]) -> bool:
    if kind == "interactive":
        return True
    return kind in _FIELDS and bool(part.get(_FIELDS[kind]))


PROTOCOLS = (FeishuRobot,)
