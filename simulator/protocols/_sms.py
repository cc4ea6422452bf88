"""The common part of the simulated SMS providers: their form of numbers, and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from simulator.wire import Reply

_E164 = re.compile(r"\+[1-9][0-9]{6,14}", re.ASCII)
_MAINLAND = re.compile(r"\+861[3-9][0-9]{9}", re.ASCII)
_encoder = msgspec.json.Encoder()
CHINA_MS: Final = 8 * 3_600_000
"""Time by which China's clocks are ahead of UTC."""


def is_number(text: str) -> bool:
    """Returns whether it is a number in E.164, and a mobile one if it is of mainland China."""
    return bool(_MAINLAND.fullmatch(text) if text.startswith("+86") else _E164.fullmatch(text))


def json_reply(content: Any, status: int = 200, fields: Sequence[tuple[str, str]] = ()) -> Reply:
    """Returns an answer in JSON."""
    return Reply(_encoder.encode(content), status, fields)


def parsed(text: str | bytes) -> Any:
    """Returns the JSON value; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
