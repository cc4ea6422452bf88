"""A valid Feishu account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PATH = "/feishu"
ACCOUNT: dict[str, Any] = {
    "provider": "feishu",
    "app_id": "simulator-id",
    "app_secret": "simulator-secret",
}
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
LIMITED = True


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="feishu",
        kind="notice",
        receivers=[f"ou_{number:032x}"],
        content={"text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
