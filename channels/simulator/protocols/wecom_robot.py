"""A WeCom group robot: its key says which group, and that is all there is.

It takes 20 messages a minute; a simulator enforces that where its credentials say so
(`wecom_robot.per_minute = "20"`), since one robot here stands for as many as a test wants.

https://developer.work.weixin.qq.com/document/path/91770
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs

from channels.simulator.http import Request
from channels.simulator.ledger import Record
from channels.simulator.protocols._wechat import answer
from channels.simulator.protocols._wecom import WORDS, body_of, wrong_message
from channels.simulator.wire import BaseProtocol, Question, Recipient, Reply, Send, Verdict, World

_SEND: Final = "/cgi-bin/webhook/send"
_MINUTE_MS: Final = 60_000
_LIMITS: Final = {"text": 2_048, "markdown": 4_096}


class WecomRobot(BaseProtocol):
    """See the module."""

    name = "wecom_robot"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._per_minute = int(world.credential(self.name, "per_minute", "0"))
        self._times: deque[int] = deque()

    def read(self, request: Request, path: str) -> Send | Question | Reply:
        """See `WireProtocol.read`."""
        if (request.method, path) != ("POST", _SEND):
            return Reply(b"", 404)
        if parse_qs(request.query).get("key") != [self.world.credential(self.name, "key")]:
            return self.refuse("93000")
        body = body_of(request)
        wrong = body if isinstance(body, str) else wrong_message(body, _LIMITS)
        if wrong or self._too_many():
            return self.refuse(wrong or "45009")
        # Nothing on the wire names a call: what is told apart are the messages themselves.
        digest = sha256(request.body).hexdigest()[:16]
        return Send([Recipient("group", f"{self.name}:{digest}")])

    def accepted(self, record: Record) -> None:
        """See `WireProtocol.accepted`."""
        self._times.append(record.at_ms)

    def reply(self, send: Send, verdicts: Sequence[Verdict]) -> Reply:
        """See `WireProtocol.reply`."""
        (verdict,) = verdicts
        return self.refuse(verdict.code) if verdict.code else answer(0, "ok")

    def refuse(self, code: str) -> Reply:
        """See `WireProtocol.refuse`."""
        return answer(int(code), WORDS.get(code, "error"))

    def _too_many(self) -> bool:
        now = self.world.now_ms()
        while self._times and now - self._times[0] >= _MINUTE_MS:
            self._times.popleft()
        return 0 < self._per_minute <= len(self._times)


PROTOCOLS = (WecomRobot,)
