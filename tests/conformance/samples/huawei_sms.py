"""Huawei Cloud SMS for the conformance suite."""

from typing import Any

from channels.providers.huawei_sms.adapter import HuaweiSms
from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {
    "provider": "huawei_sms",
    "app_key": "simulator-id",
    "app_secret": "simulator-secret",
    "sender": "8823040504797",
    "sign_name": "鸿雁",
}
PATH = "/huawei_sms"
PER_RECEIVER: frozenset[str] = frozenset(
    row.code for row in HuaweiSms.errors if row.code.startswith("E2000")
)
"""What stands in `status` of a number."""
UNREACHABLE: dict[str, str] = {}
BY_STATUS = True
RECEIPTS_NAME_CALL = True
UNDOCUMENTED = "E999999"


def notification(number: int) -> Notification:
    """One code to one number of its own."""
    return Notification(
        id=f"huawei-{number}",
        channel="sms",
        kind="verification",
        receivers=[f"+86137{number:08d}"],
        template=Template("8ff55eac1d0b478ab3c06c3c6a492300", {"1": f"{number:06d}"}),
        created_at=1_790_000_000_000,
        ttl_ms=3_650 * 86_400_000,
    )
