"""JSON as the simulated providers read and write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from simulator.wire import Reply

_encoder = msgspec.json.Encoder()


def json_reply(content: Any, status: int = 200, fields: Sequence[tuple[str, str]] = ()) -> Reply:
    """Returns an answer in JSON."""
    return Reply(_encoder.encode(content), status, fields)


def parsed(text: str | bytes) -> Any:
    """Returns the JSON value; None if it is none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Returns the text's JSON object; None for any other text."""
    value = parsed(text)
    return value if isinstance(value, dict) else None
