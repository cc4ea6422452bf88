"""A valid DingTalk work notice account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PATH = "/dingtalk"
ACCOUNT: dict[str, Any] = {
    "provider": "dingtalk",
    "app_key": "simulator-id",
    "app_secret": "simulator-secret",
    "agent_id": 1_000_001,
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="dingtalk",
        kind="notice",
        receivers=[f"user-{number}"],
        content={"text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
