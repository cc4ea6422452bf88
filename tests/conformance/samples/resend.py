"""Mail by Resend's API."""

from typing import Any

from message.envelope import Notification

ACCOUNT: dict[str, Any] = {
    "api_key": "simulator-secret",
    "sender": "鸿雁 <no-reply@example.com>",
}
PATH = "/resend"
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
BY_STATUS = True


def notification(number: int) -> Notification:
    """One receiver, text and HTML."""
    return Notification(
        id=f"resend-{number}",
        channel="email",
        kind="notice",
        receivers=[f"user-{number}@example.com"],
        content={
            "subject": f"订单 {number} 已发货",
            "text": "您的订单已发货。",
            "html": "<p>您的订单已<b>发货</b>。</p>",
        },
        created_at=1_790_000_000_000,
    )
