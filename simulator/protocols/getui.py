"""GeTui's REST v2: `auth` with its sign and time, `push/single/cid`, `push/single/alias`.

A request_id that was seen is answered as a success and sends nothing: the worst reading of the documents
("the message is lost"). Credentials: `app_id`, `app_key`, `master_secret`.

Sources, read 2026-11-22: https://docs.getui.com/getui/server/rest_v2/push and …/code
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simulator.ledger import LedgerRecord
from simulator.protocols._json import json_reply, parsed
from simulator.protocols._tokens import IssuedTokens, Standing
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_WINDOW_MS: Final = 10 * 60_000
_MAX_TTL_MS: Final = 3 * 86_400_000
_MAX_TITLE, _MAX_BODY = 50, 256
_FIELDS: Final = frozenset(
    {"request_id", "group_name", "settings", "audience", "push_message", "push_channel"}
)
_FORMS: Final = frozenset({"notification", "transmission", "revoke"})
_CLICKS: Final = frozenset({"intent", "url", "payload", "payload_custom", "startapp", "none"})
_IGNORED: Final = "successed_ignore"


class GetuiProtocol(WireProtocol):
    """Its state is the tokens it gave and the request ids that it saw."""

    name = "getui"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._tokens = IssuedTokens(world, self.name)
        self._seen: dict[str, str] = {}

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves three paths below the application's."""
        app = f"/{self.world.credential(self.name, 'app_id', ID)}"
        if not path.startswith(f"{app}/"):
            return self.refuse("301")
        if request.method != "POST":
            return self.refuse("405")
        body = parsed(request.body)
        if not isinstance(body, dict):
            return self.refuse("1")
        if path == f"{app}/auth":
            return self._auth(body)
        kind = path.removeprefix(f"{app}/push/single/")
        if kind not in ("cid", "alias"):
            return self.refuse("404")
        if self._tokens.standing(request.field("token")) is not Standing.GOOD:
            return self.refuse("10001")
        return self._push(body, kind)

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return f"RASS_1122_{seq:032x}"

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the task of a request id that was seen; else None."""
        return self._seen.get(send.id)

    def accepted(self, record: LedgerRecord) -> None:
        """Remembers the request id."""
        self._seen[record.id] = record.provider_id

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns the device's status under the task's id."""
        (verdict,) = verdicts
        if verdict.code not in ("", _IGNORED):
            return self.refuse(verdict.code)
        status = {verdict.recipient.receiver: verdict.code or "successed_online"}
        return _reply(0, "", {verdict.provider_id: status})

    def refuse(self, code: str) -> Reply:
        """Returns an error; the code's first digit gives the HTTP status, as documented."""
        if code == _IGNORED:
            return _reply(0, "", {self.provider_id(0): {"cid": code}})
        statuses = {"1": 200, "2": 200, "301": 200, "404": 404, "405": 405}
        by_kind = {"1": 401, "2": 400, "3": 403}
        return _reply(
            int(code), f"error {code}", status=statuses.get(code) or by_kind.get(code[0], 400)
        )

    def _auth(self, body: Mapping[str, Any]) -> Question | Reply:
        key = self.world.credential(self.name, "app_key", ID)
        timestamp = str(body.get("timestamp", ""))
        secret = self.world.credential(self.name, "master_secret")
        sign = hashlib.sha256(f"{key}{timestamp}{secret}".encode()).hexdigest()
        timely = timestamp.isdigit() and abs(self.world.now_ms() - int(timestamp)) <= _WINDOW_MS
        signed = hmac.compare_digest(sign, str(body.get("sign", "")))
        if body.get("appkey") != key or not timely or not signed:
            self.world.count(f"{self.name}.signatures_refused")
            return _reply(20001, "sign is invalid", status=400)
        return Question("TOKEN", self._give)

    def _give(self) -> Reply:
        token, seconds = self._tokens.give()
        ends = self.world.now_ms() + seconds * 1_000
        return _reply(0, "success", {"expire_time": str(ends), "token": token})

    def _push(self, body: Mapping[str, Any], kind: str) -> ReceivedCall | Reply:
        name, audience = body.get("request_id"), body.get("audience")
        receivers = audience.get(kind) if isinstance(audience, dict) else None
        if not isinstance(name, str) or not 10 <= len(name) <= 32:
            return _reply(20001, "request_id is invalid", status=400)
        if not isinstance(receivers, list) or len(receivers) != 1 or not set(body) <= _FIELDS:
            return _reply(20001, "target user is invalid", status=400)
        if fault := _fault(body):
            return _reply(20001, fault, status=400)
        receiver = str(receivers[0])
        return ReceivedCall([Recipient(receiver, f"{self.name}:{name}")], name)


def _fault(body: Mapping[str, Any]) -> str:
    """Returns the fault of the message; empty: none."""
    ttl = body.get("settings", {}).get("ttl", 0)
    if not isinstance(ttl, int) or not -1 <= ttl <= _MAX_TTL_MS:
        return "ttl is invalid"
    message = body.get("push_message")
    if not isinstance(message, dict) or len(_FORMS & set(message)) != 1:
        return "please choose one of notification and transmission and revoke"
    shown = message.get("notification")
    if shown is None:
        return ""
    if not 0 < len(shown.get("title", "")) <= _MAX_TITLE:
        return "title size over limit"
    if not 0 < len(shown.get("body", "")) <= _MAX_BODY:
        return "body size over limit"
    return "" if shown.get("click_type") in _CLICKS else "click_type is invalid"


def _reply(code: int, msg: str, data: Any = None, *, status: int = 200) -> Reply:
    return json_reply({"code": code, "msg": msg, "data": data}, status)


PROTOCOLS = (GetuiProtocol,)
