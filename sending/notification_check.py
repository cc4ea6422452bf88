"""Completes and checks a notification before it is produced, by the rules of its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from message import envelope
from message.delivery import Rendered
from message.envelope import EnvelopeError, Notification
from message.ids import new_id

Render = Callable[[Notification], Rendered | None]
"""Fills the notification's template in. Raises EnvelopeError (sending/template_check.py)."""
Check = Callable[[Notification, Rendered | None], None]
"""Raises EnvelopeError for a notification that cannot be sent (sending/receiver_check.py)."""


class Ready(msgspec.Struct, frozen=True):
    """A checked notification and the bytes to produce."""

    notification: Notification
    value: bytes


def prepared(
    fields: dict[str, Any],
    now_ms: int,
    render: Render | None = None,
    check: Check | None = None,
) -> Ready:
    """Fills in missing v, id and created_at, and checks the rest. Keeps unknown fields. Raises
    EnvelopeError."""
    try:
        return _prepared(fields, now_ms, render, check)
    except RecursionError as exc:
        raise EnvelopeError("not_json", "$", "it is nested too deeply") from exc


def _prepared(
    fields: dict[str, Any], now_ms: int, render: Render | None, check: Check | None
) -> Ready:
    filled = {"v": envelope.VERSION, "id": new_id(), "created_at": now_ms, **fields}
    try:
        value = msgspec.json.encode(filled)
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError) as exc:
        raise EnvelopeError("not_json", "$", f"cannot be written as JSON: {exc}") from exc
    notification = envelope.decode(value)
    rendered = render(notification) if render is not None else None
    if check is not None:
        check(notification, rendered)
    return Ready(notification, value)
