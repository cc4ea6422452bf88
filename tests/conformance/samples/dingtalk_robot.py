"""A valid DingTalk robot account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PATH = "/dingtalk_robot"
ACCOUNT: dict[str, Any] = {
    "provider": "dingtalk_robot",
    "access_token": "simulator-id",
    "secret": "simulator-secret",
    "group": "ops",
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
LIMITED = True
UNDOCUMENTED = "987654"


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="dingtalk",
        kind="notice",
        receivers=["group:ops"],
        content={"text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
