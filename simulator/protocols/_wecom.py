"""Checks of WeCom's messages that applications and group robots have in common.

https://developer.work.weixin.qq.com/document/path/90236 and …/91770
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from hashlib import md5
from typing import Any, Final

from simulator.protocols._wechat import has_escape
from simulator.servers.http_request import Request

_TASK_ID = re.compile(r"[A-Za-z0-9_@-]{1,128}")
_CARDS: Final = frozenset(
    {
        "text_notice",
        "news_notice",
        "button_interaction",
        "vote_interaction",
        "multiple_interaction",
    }
)
WORDS: Final[Mapping[str, str]] = {
    "-1": "system busy",
    "40001": "invalid credential",
    "40008": "invalid message type",
    "40013": "invalid corpid",
    "40014": "invalid access_token",
    "40032": "invalid user list size",
    "40033": "invalid request character",
    "40056": "invalid agentid",
    "40058": "invalid request parameter",
    "41001": "access_token missing",
    "41016": "missing title",
    "42001": "access_token expired",
    "44004": "empty content",
    "45002": "content size out of limit",
    "45008": "article size out of limit",
    "45009": "api freq out of limit",
    "81013": "user & party & tag all invalid",
    "82001": "all user, party and tag are empty",
    "93000": "invalid webhook url",
}


def body_of(request: Request) -> dict[str, Any] | str:
    """Returns the call's JSON object, or the code of its error."""
    if has_escape(request.body):
        return "40033"
    try:
        body = json.loads(request.body)
    except ValueError:
        return "40058"
    return body if isinstance(body, dict) else "40058"


def wrong_message(body: Mapping[str, Any], limits: Mapping[str, int]) -> str:
    """Returns a message's error; empty: none. `limits`: bytes of each kind's text, if more is refused."""
    kind = body.get("msgtype")
    check = _CHECKS.get(kind) if isinstance(kind, str) else None
    if check is None or not isinstance(kind, str):
        return "40008"
    inner = body.get(kind)
    if not isinstance(inner, dict):
        return "40058"
    wrong = check(inner)
    size = len(str(inner.get("content", "")).encode())
    return wrong or ("40058" if size > limits.get(kind, size) else "")


def _text(inner: Mapping[str, Any]) -> str:
    content = inner.get("content")
    return "" if isinstance(content, str) and content else "44004"


def _textcard(inner: Mapping[str, Any]) -> str:
    if not inner.get("title"):
        return "41016"
    return "" if inner.get("description") and inner.get("url") else "40058"


def _news(inner: Mapping[str, Any]) -> str:
    articles = inner.get("articles")
    if not isinstance(articles, list) or not 1 <= len(articles) <= 8:
        return "45008"
    return "" if all(isinstance(one, dict) and one.get("title") for one in articles) else "41016"


def _file(inner: Mapping[str, Any]) -> str:
    return "" if inner.get("media_id") else "40058"


def _image(inner: Mapping[str, Any]) -> str:
    """Checks an image: an application's names uploaded material, a robot's is the data with its MD5."""
    if inner.get("media_id"):
        return ""
    try:
        data = b64decode(str(inner.get("base64", "")), validate=True)
    except ValueError:
        return "40058"
    good = data and inner.get("md5") == md5(data, usedforsecurity=False).hexdigest()
    return "" if good else "40058"


def _card(inner: Mapping[str, Any]) -> str:
    task_id = inner.get("task_id", "x")
    if not isinstance(task_id, str) or not _TASK_ID.fullmatch(task_id):
        return "40058"
    return "" if inner.get("card_type") in _CARDS else "40058"


_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "text": _text,
    "markdown": _text,
    "textcard": _textcard,
    "news": _news,
    "file": _file,
    "voice": _file,
    "video": _file,
    "image": _image,
    "markdown_v2": _text,
    "template_card": _card,
}
