"""Notifications in bulk, and what the ledger will call their deliveries."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from message.delivery import deliveries_of
from message.envelope import Notification, encode
from message.ids import new_id

LANE = "webhook.notice"


def webhook(endpoint: str) -> dict[str, Any]:
    """An account's table: its endpoint answers the status query, and knows each call at once."""
    return {
        "provider": "webhook",
        "endpoint": endpoint,
        "status_query": True,
        "query_lag_s": 0,
    }


def now_ms() -> int:
    """This machine's clock; the stack runs beside it."""
    return time.time_ns() // 1_000_000


def notification(lane: str = LANE, **changes: Any) -> Notification:
    """One notification to one receiver of its own; `changes` are envelope fields."""
    channel, _, kind = lane.partition(".")
    identity = changes.pop("id", None) or new_id()
    fields: dict[str, Any] = {
        "id": identity,
        "channel": channel,
        "kind": kind,
        "receivers": [f"to-{identity}"],
        "content": {"text": "hello"},
        "created_at": now_ms(),
    }
    return Notification(**{**fields, **changes})


def notifications(count: int, lane: str = LANE, **changes: Any) -> list[Notification]:
    """So many of them. A callable in `changes` is called with the number of each, from 0."""
    return [notification(lane, **_for(number, changes)) for number in range(count)]


def keys_of(one: Notification) -> list[str]:
    """The delivery keys of a notification, one per distinct receiver."""
    payload = encode(one)
    return [d.key for d in deliveries_of(one, payload, expires_at=one.created_at + 1)]


def _for(number: int, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value(number) if callable(value) else value for name, value in changes.items()}
