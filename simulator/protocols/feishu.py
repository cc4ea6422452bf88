"""Feishu's messages: the tenant's token, `im/v1/messages` with its `uuid`.

Checked as the provider does: app_id and app_secret, the token, the type of receiver against its form,
`content` a text of JSON in the shape of its type, at most 150 KB of text and 30 KB of post or card, a uuid
of at most 50 characters. One request a uuid succeeds within an hour; a repeat is answered with
the first one's message_id. 50 calls a second, 1,000 a minute and 5 a second to one receiver are taken
(behaviour `limits`: "off" takes any number). Credentials: `app_id`, `app_secret`.

Source: https://open.feishu.cn/document/server-docs/im-v1/message/create
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from simulator.ledger import LedgerRecord
from simulator.protocols._feishu import answer
from simulator.protocols._json import json_object
from simulator.protocols._tokens import IssuedTokens, Standing
from simulator.protocols._windows import KeyedWindows
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    OneReceiver,
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
)

_RECALL_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_PREFIX: Final = "t-"
_OVERLAP_S: Final = 1_800.0
"""A token with less time left is replaced by another, and both are good."""
_MAX_UUID: Final = 50
_FORMS: Final[Mapping[str, str]] = {"open_id": "ou_", "union_id": "on_", "chat_id": "oc_"}
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "text": ("text",),
    "post": (),
    "interactive": (),
    "image": ("image_key",),
    "file": ("file_key",),
    "audio": ("file_key",),
    "sticker": ("file_key",),
    "media": ("file_key",),
    "share_chat": ("chat_id",),
    "share_user": ("user_id",),
}
_INVALID: Final = "Your request contains an invalid request parameter, ext="


class Feishu(OneReceiver):
    """Its state is its tokens, and the uuids of the last hour: rebuilt from the ledger."""

    name = "feishu"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._tokens = IssuedTokens(world, self.name, overlap_s=_OVERLAP_S)
        self._seen: dict[str, tuple[int, str]] = {}
        """Time of each uuid's acceptance, and its message."""
        self._at: dict[str, int] = {}
        """Time of each message's acceptance, epoch milliseconds."""
        self._gone: set[str] = set()
        self._all = KeyedWindows(world, self.name, (50, 1), (1_000, 60))
        self._each = KeyedWindows(world, self.name, (5, 1))

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves three paths; any other is 404."""
        if path == "/open-apis/auth/v3/tenant_access_token/internal":
            return self._token(request)
        if path == "/open-apis/im/v1/messages":
            return self._refused(request) or self._message(request)
        if path.startswith("/open-apis/im/v1/messages/"):
            return self._refused(request) or self._recall(request, path.rpartition("/")[2])
        return Reply(b"404 page not found", 404, [("Content-Type", "text/plain")])

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return f"om_{seq:032x}"

    def known(self, send: ReceivedCall, recipient: Recipient) -> str | None:
        """Returns the message of a uuid that was accepted within the hour; else None."""
        at_ms, message = self._seen.get(send.id, (0, ""))
        return message if message and self.world.now_ms() - at_ms < _HOUR_MS else None

    def accepted(self, record: LedgerRecord) -> None:
        """Starts the uuid's hour."""
        if record.id:
            self._seen[record.id] = (record.at_ms, record.provider_id)
        self._at[record.provider_id] = record.at_ms

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the answer for the one receiver of a call."""
        return answer(0, data={"message_id": verdict.provider_id, "msg_type": send.echo})

    def refuse(self, code: str) -> Reply:
        """Returns an error with 400, a token's with 401."""
        status = 401 if code in ("99991663", "99991668", "99991677") else 400
        return answer(int(code), f"error {code}", status)

    def _token(self, request: Request) -> Question | Reply:
        body = json_object(request.body)
        if request.method != "POST" or body is None:
            return answer(10003, "invalid param", 400)
        if body.get("app_id") != self.world.credential(self.name, "app_id", ID):
            return answer(10003, "invalid param")
        if body.get("app_secret") != self.world.credential(self.name, "app_secret"):
            return answer(10014, "app secret invalid")
        return Question("TOKEN", self._give)

    def _give(self) -> Reply:
        token, seconds = self._tokens.give()
        return answer(0, "ok", tenant_access_token=_PREFIX + token, expire=seconds)

    def _refused(self, request: Request) -> Reply | None:
        scheme, _, token = request.field("authorization").partition(" ")
        if scheme != "Bearer" or not token:
            return answer(99991661, "Missing access token for authorization", 400)
        if not token.startswith(_PREFIX):
            return answer(99991671, "Invalid access token: must start with t- or u-", 400)
        if self._tokens.standing(token.removeprefix(_PREFIX)) is Standing.GOOD:
            return None
        return answer(99991663, "Invalid access token for authorization", 401)

    def _recall(self, request: Request, message: str) -> Question | Reply:
        if request.method != "DELETE":
            return answer(230001, _INVALID + "method", 400)
        return Question("RECALL", partial(self._taken_back, message), key=message)

    def _taken_back(self, message: str) -> Reply:
        at_ms = self._at.get(message)
        if at_ms is None:
            return answer(230001, _INVALID + "invalid message_id", 400)
        if self.world.now_ms() - at_ms > _RECALL_MS:
            return answer(230026, "No permission to recall this message.", 400)
        self.world.count(f"recalled.{self.name}.{message}")
        if message in self._gone:
            return answer(230011, "The message was recalled.", 400)
        self._gone.add(message)
        return answer(0, data={})

    def _message(self, request: Request) -> ReceivedCall | Reply:
        body = json_object(request.body)
        if request.method != "POST" or body is None:
            return answer(230001, _INVALID + "invalid request body", 400)
        kind = parse_qs(request.query).get("receive_id_type", [""])[0]
        receiver, uuid = str(body.get("receive_id", "")), str(body.get("uuid", ""))
        if not _names(kind, receiver):
            return answer(230034, "The receive_id is invalid.", 400)
        if len(uuid) > _MAX_UUID:
            return answer(230001, _INVALID + "uuid is too long", 400)
        type_ = str(body.get("msg_type", ""))
        refused = _content_refused(type_, body.get("content")) or self._too_fast(receiver)
        return refused or ReceivedCall([Recipient(receiver)], uuid, type_)

    def _too_fast(self, receiver: str) -> Reply | None:
        if self._all.over("application"):
            return answer(99991400, "request trigger frequency limit", 429)
        if self._each.over(receiver):
            return answer(230020, "This operation triggers the frequency limit.", 400)
        return None


def _names(kind: str, receiver: str) -> bool:
    if kind in _FORMS:
        return receiver.startswith(_FORMS[kind])
    if kind == "email":
        return "@" in receiver
    return kind == "user_id" and bool(receiver)


def _content_refused(type_: str, content: Any) -> Reply | None:
    if type_ not in _FIELDS:
        return answer(230001, _INVALID + "invalid msg_type", 400)
    body = json_object(content) if isinstance(content, str) else None
    if not body or any(not body.get(name) for name in _FIELDS[type_]):
        return answer(230001, _INVALID + "content is not a string in json format", 400)
    limit = 30_720 if type_ in ("post", "interactive") else 153_600
    if len(content.encode()) > limit:
        return answer(230025, "The length of the message content reaches its limit.", 400)
    return None


PROTOCOLS = (Feishu,)
