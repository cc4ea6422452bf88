"""The common part of Feishu's two protocols: answers with `code` and `msg`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from simulator.wire import Reply

RATE_LIMITED: Final = 99991400
RESET_S: Final = 60


def answer(code: int, text: str = "success", status: int = 200, **more: Any) -> Reply:
    """Returns a JSON object; over the rate limit with the fields that say how long."""
    body = msgspec.json.encode({"code": code, "msg": text, **more})
    if code != RATE_LIMITED:
        return Reply(body, status)
    limits = [("x-ogw-ratelimit-limit", "100"), ("x-ogw-ratelimit-reset", str(RESET_S))]
    return Reply(body, 429, limits)
