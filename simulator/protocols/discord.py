"""Discord's webhooks: execute, delete; the address, the body, 2,000 characters, `allowed_mentions`.

The documented worst is the default: without `wait` the answer is 204 and has no id, without
`allowed_mentions` everybody named is called on, and a 429 comes with a fraction of a second.

Sources, read 2026-11-22: https://discord.com/developers/docs/resources/webhook,
https://discord.com/developers/docs/topics/rate-limits
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from simulator.ledger import LedgerRecord
from simulator.protocols._chat import HookProtocol
from simulator.protocols._json import json_object
from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext, Question, ReceivedCall, Reply, Verdict

_STATUS: Final = {
    **dict.fromkeys(("10003", "10015", "10016", "10008"), 404),
    **dict.fromkeys(("50013", "40333", "20028", "20029", "40004"), 403),
    **dict.fromkeys(("429", "20016", "40062"), 429),
    "50027": 401,
    "40005": 413,
    "130000": 503,
}
_RETRY_S: Final = 1.0
_MAX_TEXT: Final = 2_000
_USER: Final = re.compile(r"<@!?([0-9]+)>")
_ROLE: Final = re.compile(r"<@&([0-9]+)>")
_EVERYONE: Final = re.compile(r"@(?:everyone|here)")
_FIRST_ID: Final = 1_084_000_000_000_000_000


class Discord(HookProtocol):
    """Its state is the messages in the channel."""

    name = "discord"
    hook = "api/webhooks/1234567890/simulator-secret"
    paces = ((5, 2), (30, 60))

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._messages: set[str] = set()

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Serves execute and delete."""
        address, _, query = request.target.decode("ascii", "replace").partition("?")
        hook = f"/{self.name}/{self.world.credential(self.name, 'hook', self.hook)}"
        webhook, messages, message = address.partition("/messages/")
        if webhook != hook:
            return self.refuse("50027" if "/api/webhooks/" in webhook else "10015")
        if request.method == "DELETE" and message:
            return Question("RECALL", lambda: self._delete(message), key=message)
        if request.method != "POST" or messages:
            return _error(405, 0, "405: Method Not Allowed")
        if self.too_many():
            return self.refuse("429")
        body = json_object(request.body)
        if body is None:
            return self.refuse("50109")
        return self._message(body, "wait=true" in query.split("&"))

    def provider_id(self, seq: int) -> str:
        """Returns a snowflake."""
        return str(_FIRST_ID + seq)

    def accepted(self, record: LedgerRecord) -> None:
        """Adds the message to the channel."""
        self._messages.add(record.provider_id)

    def taken(self, send: ReceivedCall, verdict: Verdict) -> Reply:
        """Returns the message if it was waited for."""
        if not send.echo:
            return Reply(b"", 204)
        return Reply(msgspec.json.encode({"id": verdict.provider_id, "type": 0, "webhook_id": "1"}))

    def refuse(self, code: str) -> Reply:
        """Returns an error; 429 has words of its own."""
        if code == "429":
            limited = {"message": "You are being rate limited.", "retry_after": _RETRY_S}
            fields = [
                ("Retry-After", "1"),
                ("X-RateLimit-Limit", "5"),
                ("X-RateLimit-Remaining", "0"),
                ("X-RateLimit-Reset-After", str(_RETRY_S)),
                ("X-RateLimit-Scope", "user"),
            ]
            return Reply(msgspec.json.encode({**limited, "global": False}), 429, fields)
        return _error(_STATUS.get(code, 400), int(code), f"error {code}")

    def _message(self, body: dict[str, Any], wait: bool) -> ReceivedCall | Reply:
        content, embeds = body.get("content", ""), body.get("embeds", [])
        if not isinstance(content, str) or not isinstance(embeds, list) or len(embeds) > 10:
            return self.refuse("50035")
        if len(content) > _MAX_TEXT:
            return self.refuse("50035")
        if not content.strip() and not embeds:
            return self.refuse("50006")
        send = self.send(body, _called(content, body.get("allowed_mentions")))
        send.echo = wait
        return send

    def _delete(self, message: str) -> Reply:
        if message not in self._messages:
            return self.refuse("10008")
        self._messages.remove(message)
        return Reply(b"", 204)


def _called(content: str, allowed: Any) -> int:
    """Counts the names mentioned: without `allowed_mentions` all that the text has. `everyone` in `parse`
    allows both @everyone and @here, anywhere in the text."""
    users, roles = set(_USER.findall(content)), set(_ROLE.findall(content))
    everyone = len(set(_EVERYONE.findall(content)))
    if not isinstance(allowed, dict):
        return len(users) + len(roles) + everyone
    parse = allowed.get("parse", [])
    if "users" not in parse:
        users &= set(allowed.get("users", []))
    if "roles" not in parse:
        roles &= set(allowed.get("roles", []))
    return len(users) + len(roles) + (everyone if "everyone" in parse else 0)


def _error(status: int, code: int, message: str) -> Reply:
    return Reply(msgspec.json.encode({"message": message, "code": code}), status)


PROTOCOLS = (Discord,)
