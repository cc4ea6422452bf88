"""A WeCom group robot: its key alone names the group.

It takes 20 messages a minute (behaviour `limits`: "off" takes any number).

https://developer.work.weixin.qq.com/document/path/91770
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs

from simulator.protocols._wechat import answer
from simulator.protocols._wecom import WORDS, body_of, wrong_message
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import (
    OneReceiver,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
)

_SEND: Final = "/cgi-bin/webhook/send"
_LIMITS: Final = {"text": 2_048, "markdown": 4_096}


class WecomRobot(OneReceiver):
    name = "wecom_robot"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._limits = KeyedWindows(world, self.name, (20, 60))

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        if (request.method, path) != ("POST", _SEND):
            return Reply(b"", 404)
        key = "".join(parse_qs(request.query).get("key", ()))
        if key != self.world.credential(self.name, "key"):
            return self.refuse("93000")
        body = body_of(request)
        wrong = body if isinstance(body, str) else wrong_message(body, _LIMITS)
        if wrong or self._limits.over(key):
            return self.refuse(wrong or "45009")
        # Nothing on the wire names a call: the message itself identifies it.
        digest = sha256(request.body).hexdigest()[:16]
        return ReceivedCall([Recipient("group", f"{self.name}:{digest}")])

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        return answer(0, "ok")

    def refuse(self, code: str) -> Reply:
        return answer(int(code), WORDS.get(code, "error"))


PROTOCOLS = (WecomRobot,)
