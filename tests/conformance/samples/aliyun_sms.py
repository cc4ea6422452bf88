"""Aliyun SMS for the conformance suite."""

from typing import Any

from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {
    "provider": "aliyun_sms",
    "access_key_id": "simulator-id",
    "access_key_secret": "simulator-secret",
    "sign_name": "鸿雁",
    "query_lag_s": 0,
}
PATH = "/aliyun_sms"
PER_RECEIVER: frozenset[str] = frozenset()
"""None: a call is refused whole."""
UNREACHABLE: dict[str, str] = {}
BY_STATUS = True
RECEIPTS_NAME_CALL = True


def notification(number: int) -> Notification:
    """One code to one number of its own."""
    return Notification(
        id=f"aliyun-{number}",
        channel="sms",
        kind="notice",
        receivers=[f"+86138{number:08d}"],
        template=Template("SMS_154950909", {"code": f"{number:06d}"}),
        created_at=1_790_000_000_000,
        ttl_ms=3_650 * 86_400_000,
    )
