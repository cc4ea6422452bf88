"""Mail by SMTP: the endpoint is the `smtp` address of the simulator's start line (smtp_port=0)."""

from typing import Any

from message.envelope import Notification

ACCOUNT: dict[str, Any] = {
    "sender": "鸿雁 <no-reply@example.com>",
    "user": "simulator-id",
    "password": "simulator-secret",
    "tls": "none",
}
PATH = ""
SCHEME = "smtp"
PER_RECEIVER: frozenset[str] = frozenset({"450", "550", "551", "553", "556"})
UNREACHABLE: dict[str, str] = {}


def notification(number: int) -> Notification:
    """A message whose receivers see one another, and so share a transaction."""
    return Notification(
        id=f"smtp-{number}",
        channel="email",
        kind="notice",
        receivers=[f"user-{number}@example.com"],
        content={
            "subject": f"订单 {number} 已发货",
            "text": "您的订单已发货。\n.\n",
            "html": "<p>您的订单已<b>发货</b>。</p>",
            "to": "together",
        },
        created_at=1_790_000_000_000,
    )
