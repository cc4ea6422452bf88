"""The common part of DingTalk's two protocols: answers with `errcode`, and a token in the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from simulator.protocols._tokens import IssuedTokens, Standing
from simulator.servers.http_request import Request
from simulator.wire import Reply


def answer(code: int, text: str = "ok", **more: Any) -> Reply:
    """Returns an answer with status 200, as all of DingTalk's."""
    return Reply(msgspec.json.encode({"errcode": code, "errmsg": text, **more}))


def query(request: Request) -> Mapping[str, str]:
    """Returns the first of each parameter, unquoted."""
    found = parse_qs(request.query, keep_blank_values=True)
    return {name: values[0] for name, values in found.items()}


def token_refused(tokens: IssuedTokens, request: Request) -> Reply | None:
    """Returns the refusal of the token in the query; None: it is good."""
    token = query(request).get("access_token", "")
    if not token:
        return answer(41001, "缺少access_token参数")
    standing = tokens.standing(token)
    if standing is Standing.EXPIRED:
        return answer(42001, "access_token已过期")
    return None if standing is Standing.GOOD else answer(40014, "不合法的access_token")
