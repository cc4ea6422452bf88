"""Mail by Resend's API."""

from typing import Any

from message.envelope import Notification
from simulator.receipts.formats.resend import SIGNING_SECRET

ACCOUNT: dict[str, Any] = {
    "api_key": "simulator-secret",
    "sender": "鸿雁 <no-reply@example.com>",
}
PATH = "/resend"
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
LIMITED = True
BY_STATUS = True
SIGNS_WITH = {"signing_secret": SIGNING_SECRET}
RECEIPT_KEYS = SIGNS_WITH


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
