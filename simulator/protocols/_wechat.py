"""The common part of Tencent's messaging APIs: errcode answers, tokens in the query, `stable_token`.

https://developers.weixin.qq.com/doc/service/api/base/api_getstableaccesstoken.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from simulator.protocols._tokens import IssuedTokens, Standing
from simulator.servers.http_request import Request
from simulator.wire import ID, SECRET, OneReceiver, ProtocolContext, Question, ReceivedCall, Reply

_STABLE: Final = "/cgi-bin/stable_token"
_OVERLAP_S: Final = 300.0
_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\u")
WORDS: Final[Mapping[str, str]] = {
    "-1": "system error",
    "40001": "invalid credential, access_token is invalid or not latest",
    "40002": "invalid grant_type",
    "40003": "invalid openid",
    "40013": "invalid appid",
    "40033": "invalid charset. please check your request, if include \\uxxxx will create fail!",
    "40037": "invalid template_id",
    "40039": "invalid url size",
    "40125": "invalid appsecret",
    "41001": "access_token missing",
    "42001": "access_token expired",
    "43002": "require POST method",
    "43004": "require subscribe",
    "43019": "require remove blacklist",
    "43101": "user refuse to accept the msg",
    "44002": "empty post data",
    "45009": "reach max api daily quota limit",
    "45067": "clientmsgid size out of limit",
    "47001": "data format error",
    "47003": "argument invalid!",
}


class WechatProtocol(OneReceiver):
    """One provider of theirs: subclasses define the path of a send and the rules of its body."""

    path: str = ""

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._tokens = IssuedTokens(world, self.name, overlap_s=_OVERLAP_S)

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        if path not in (_STABLE, self.path):
            return Reply(b"", 404)
        if request.method != "POST":
            return self.refuse("43002")
        if not request.body:
            return self.refuse("44002")
        if has_escape(request.body):
            return self.refuse("40033")
        try:
            body = json.loads(request.body)
        except ValueError:
            return self.refuse("47001")
        if not isinstance(body, dict):
            return self.refuse("47001")
        if path == _STABLE:
            return self._token(body)
        wrong = wrong_token(self._tokens, request, "40001")
        return self.refuse(wrong) if wrong else self.message(body, request)

    def message(self, body: dict[str, Any], request: Request) -> ReceivedCall | Reply:
        """Returns the call if its body is in order, else the refusal."""
        raise NotImplementedError

    def refuse(self, code: str) -> Reply:
        return answer(int(code), WORDS.get(code, "error"))

    def _token(self, body: Mapping[str, Any]) -> Question | Reply:
        if body.get("grant_type") != "client_credential":
            return self.refuse("40002")
        if body.get("appid") != self.world.credential(self.name, "appid", ID):
            return self.refuse("40013")
        if body.get("secret") != self.world.credential(self.name, "secret", SECRET):
            return self.refuse("40125")
        force = body.get("force_refresh", False)
        if not isinstance(force, bool):
            return self.refuse("47001")

        def give() -> Reply:
            text, expires_in = self._tokens.give(force=force)
            return reply({"access_token": text, "expires_in": expires_in})

        return Question("TOKEN", give)


def has_escape(body: bytes) -> bool:
    """Returns whether the JSON holds a character as \\uXXXX."""
    return _ESCAPE.search(body) is not None


def wrong_token(tokens: IssuedTokens, request: Request, unknown: str) -> str:
    """Returns the code of the query's token; empty: it is good. `unknown`: it was never given out."""
    (text,) = parse_qs(request.query).get("access_token", [""])[:1]
    if not text:
        return "41001"
    standing = tokens.standing(text)
    return {Standing.GOOD: "", Standing.EXPIRED: "42001", Standing.UNKNOWN: unknown}[standing]


def template_values(data: Any) -> list[Any] | None:
    """Returns the values of a template's places; None if it is not `{place: {"value": …}}`."""
    if not isinstance(data, dict):
        return None
    places = list(data.values())
    if not all(isinstance(place, dict) and "value" in place for place in places):
        return None
    return [place["value"] for place in places]


def answer(code: int, words: str, **more: Any) -> Reply:
    """Returns an answer with an errcode and HTTP 200, as all of theirs."""
    return reply({"errcode": code, "errmsg": words, **more})


def reply(body: Mapping[str, Any]) -> Reply:
    """Returns JSON as they write it."""
    return Reply(json.dumps(body, ensure_ascii=False).encode())
