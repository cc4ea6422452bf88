"""A valid GeTui account and notification, for the suite over all adapters."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

PATH = "/getui"
ACCOUNT: dict[str, Any] = {
    "provider": "getui",
    "app_id": "simulator-id",
    "app_key": "simulator-id",
    "master_secret": "simulator-secret",
}
PER_RECEIVER: frozenset[str] = frozenset({"successed_ignore"})
UNREACHABLE: dict[str, str] = {}
BY_STATUS = True
RECEIPT_KEYS = {"master_secret": "simulator-secret"}
UNDOCUMENTED = "29999"


def notification(number: int) -> Notification:
    """One notification, unlike those of other numbers."""
    return Notification(
        id=f"{PATH[1:]}-{number}",
        channel="push",
        kind="notice",
        receivers=[f"{number:032x}"],
        content={"title": "a notice", "text": f"notice {number}"},
        created_at=1_700_000_000_000,
        ttl_ms=86_400_000,
    )
