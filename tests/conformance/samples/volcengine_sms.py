"""Volcengine SMS for the conformance suite."""

from typing import Any

from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {
    "provider": "volcengine_sms",
    "access_key_id": "simulator-id",
    "access_key_secret": "simulator-secret",
    "sms_account": "simulator-id",
    "sign_name": "鸿雁",
}
PATH = "/volcengine_sms"
PER_RECEIVER: frozenset[str] = frozenset()
"""None: the answer to a call has no place for one number's error."""
UNREACHABLE: dict[str, str] = {}
BY_STATUS = True
RECEIPTS_NAME_CALL = True


def notification(number: int) -> Notification:
    """One code to one number of its own."""
    return Notification(
        id=f"volcengine-{number}",
        channel="sms",
        kind="verification",
        receivers=[f"+86136{number:08d}"],
        template=Template("ST_6f8c0000", {"code": f"{number:06d}"}),
        created_at=1_790_000_000_000,
        ttl_ms=3_650 * 86_400_000,
    )
