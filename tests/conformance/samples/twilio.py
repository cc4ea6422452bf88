"""Twilio for the conformance suite."""

from typing import Any

from message.envelope import Notification

ACCOUNT: dict[str, Any] = {
    "provider": "twilio",
    "account_sid": "AC" + "0" * 32,
    "auth_token": "simulator-secret",
    "sender": "+15005550006",
    "query_lag_s": 0,
}
PATH = "/twilio"
PER_RECEIVER: frozenset[str] = frozenset()
"""None: one receiver a call."""
UNREACHABLE: dict[str, str] = {}
ABSENCE_ALONE = True
RECEIPT_KEYS = {"auth_token": "simulator-secret", "public_url": "{url}"}
RECEIPTS_NAME_CALL = True
BY_STATUS = True


def notification(number: int) -> Notification:
    """One text to one number of its own."""
    return Notification(
        id=f"twilio-{number}",
        channel="sms",
        kind="notice",
        receivers=[f"+1415{2_000_000 + number}"],
        content={"text": f"Your order {number} is on its way"},
        created_at=1_790_000_000_000,
        ttl_ms=3_650 * 86_400_000,
    )
