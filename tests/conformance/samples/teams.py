"""A valid Teams webhook account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PATH = "/teams"
ACCOUNT: dict[str, Any] = {
    "provider": "teams",
    "hook": "workflows/0a1b/triggers/manual/paths/invoke"
    "?api-version=2016-06-01&sig=simulator-secret",
    "group": "ops",
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
LIMITED = True
BY_STATUS = True


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="chat",
        kind="notice",
        receivers=["group:ops"],
        content={"text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
