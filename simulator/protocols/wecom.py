"""WeCom application messages: partial answers, duplicates by the request's JSON, silent drops.

https://developer.work.weixin.qq.com/document/path/90236 (send), …/91039 (gettoken), …/90312 (limits),
…/94867 (recall)
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import parse_qs

from simulator.ledger import LedgerRecord
from simulator.protocols._tokens import IssuedTokens
from simulator.protocols._wechat import answer, wrong_token
from simulator.protocols._wecom import WORDS, body_of, wrong_message
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    SECRET,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_TOKEN: Final = "/cgi-bin/gettoken"  # noqa: S105 (a path)
_SEND: Final = "/cgi-bin/message/send"
_RECALL: Final = "/cgi-bin/message/recall"
_AGENT: Final = "1000002"
_MEMBERS: Final = 1_000
_INTERVAL_S: Final = 1_800
_MAX_INTERVAL_S: Final = 14_400
_LIMITS: Final = ((30, 60_000), (1_000, 3_600_000))
_UNLICENSED: Final = "unlicenseduser"
_MS: Final = 1_000
_DAY_MS: Final = 86_400_000


class Wecom(WireProtocol):
    name = "wecom"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._tokens = IssuedTokens(world, self.name)
        self._sent: dict[str, tuple[int, str]] = {}
        """By request and member: time and msgid."""
        self._at: dict[str, int] = {}
        """Time of acceptance by msgid, epoch milliseconds."""
        self._received: defaultdict[str, deque[int]] = defaultdict(deque)
        """Times of the last hour's messages, by member."""

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        if (request.method, path) == ("GET", _TOKEN):
            return self._token(parse_qs(request.query))
        if request.method != "POST" or path not in (_SEND, _RECALL):
            return Reply(b"", 404)
        wrong = wrong_token(self._tokens, request, "40014")
        if wrong:
            return self.refuse(wrong)
        body = body_of(request)
        if path == _RECALL:
            return self._recall(body)
        wrong = body if isinstance(body, str) else self._wrong(body)
        if isinstance(body, str) or wrong:
            return self.refuse(wrong)
        return self._message(body, request)

    def provider_id(self, seq: int) -> str:
        """Returns an id as long and as meaningless as theirs."""
        return f"sim{sha256(str(seq).encode()).hexdigest()[:40]}-{seq}"

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the id of a repeat of the same JSON, or "dropped" for one of too many messages."""
        at_ms, provider_id = self._sent.get(recipient.key, (0, ""))
        if provider_id and self.world.now_ms() - at_ms < send.echo * _MS:
            return provider_id
        if self._too_many(recipient.receiver.lower()):
            self.world.count("dropped.wecom")
            return "dropped"
        return None

    def accepted(self, record: LedgerRecord) -> None:
        self._sent[record.key] = (record.at_ms, record.provider_id)
        self._at.setdefault(record.provider_id, record.at_ms)
        self._received[record.receiver.lower()].append(record.at_ms)

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Names the members that got nothing; a call that reached nobody has failed."""
        unlicensed = [v.recipient.receiver.lower() for v in verdicts if v.code == _UNLICENSED]
        refused = [v for v in verdicts if v.code]
        invalid = [v.recipient.receiver.lower() for v in refused if v.code != _UNLICENSED]
        named = {
            "invaliduser": "|".join(invalid),
            "invalidparty": "",
            "invalidtag": "",
            "unlicenseduser": "|".join(unlicensed),
        }
        code = "81013" if len(refused) == len(verdicts) else "0"
        words = WORDS.get(code, "ok")
        msgid = verdicts[0].provider_id
        self._at.setdefault(msgid, self.world.now_ms())
        return answer(int(code), words, msgid=msgid, **named)

    def refuse(self, code: str) -> Reply:
        return answer(int(code), f"{WORDS.get(code, 'error')}, hint: [1], from ip: 127.0.0.1")

    def _token(self, query: dict[str, list[str]]) -> Question | Reply:
        if query.get("corpid") != [self.world.credential(self.name, "corpid", ID)]:
            return self.refuse("40013")
        if query.get("corpsecret") != [self.world.credential(self.name, "corpsecret", SECRET)]:
            return self.refuse("40001")

        def give() -> Reply:
            text, expires_in = self._tokens.give()
            return answer(0, "ok", access_token=text, expires_in=expires_in)

        return Question("TOKEN", give)

    def _recall(self, body: dict[str, Any] | str) -> Question | Reply:
        name = "" if isinstance(body, str) else body.get("msgid")
        if not isinstance(name, str) or not name:
            return self.refuse("40058")

        def take_back() -> Reply:
            at_ms = self._at.get(name)
            if at_ms is None or self.world.now_ms() - at_ms > _DAY_MS:
                return self.refuse("40058")
            self.world.count(f"recalled.{self.name}.{name}")
            return answer(0, "ok")

        return Question("RECALL", take_back, key=name)

    def _wrong(self, body: dict[str, Any]) -> str:
        if str(body.get("agentid")) != self.world.credential(self.name, "agentid", _AGENT):
            return "40056"
        if not isinstance(body.get("touser"), str) or not body["touser"].strip("|"):
            return "82001"
        if len(body["touser"].split("|")) > _MEMBERS:
            return "40032"
        interval = body.get("duplicate_check_interval", _INTERVAL_S)
        if body.get("enable_duplicate_check", 0) not in (0, 1) or body.get("safe", 0) not in (0, 1):
            return "40058"
        if not isinstance(interval, int) or not 0 < interval <= _MAX_INTERVAL_S:
            return "40058"
        return wrong_message(body, {})

    def _message(self, body: dict[str, Any], request: Request) -> ReceivedCall:
        digest = sha256(self._compared(body, request)).hexdigest()[:32]
        checked = body.get("enable_duplicate_check", 0) == 1
        interval = body.get("duplicate_check_interval", _INTERVAL_S) if checked else 0
        members = dict.fromkeys(one for one in body["touser"].split("|") if one)
        recipients = [Recipient(one, f"{self.name}:{digest}:{one}") for one in members]
        return ReceivedCall(recipients, str(body.get("client_call", "")), interval)

    def _compared(self, body: dict[str, Any], request: Request) -> bytes:
        """Returns the bytes that identify a request: its JSON, as documented, or WeCom's own fields."""
        if self.world.behaviour(self.name, "compares", "json") == "json":
            return request.body
        known = {name: value for name, value in body.items() if name != "client_call"}
        return json.dumps(known, sort_keys=True).encode()

    def _too_many(self, member: str) -> bool:
        now, times = self.world.now_ms(), self._received[member]
        while times and now - times[0] >= _LIMITS[-1][1]:
            times.popleft()
        return any(sum(now - at < window for at in times) >= most for most, window in _LIMITS)


PROTOCOLS = (Wecom,)
