"""Tencent Cloud SMS for the conformance suite."""

from typing import Any

from channels.providers.tencent_sms.adapter import TencentSms
from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {
    "provider": "tencent_sms",
    "secret_id": "simulator-id",
    "secret_key": "simulator-secret",
    "sdk_app_id": "1400006666",
    "sign_name": "鸿雁",
    "query_lag_s": 0,
}
PATH = "/tencent_sms"
_OF_THE_CALL = (
    "ActionOffline",
    "AuthFailure",
    "DryRunOperation",
    "InvalidAction",
    "InvalidRequest",
    "IpInBlacklist",
    "IpNotInWhitelist",
    "MissingParameter",
    "NoSuch",
    "Request",
    "Resource",
    "Response",
    "ServiceUnavailable",
    "UnauthorizedOperation",
    "UnknownParameter",
    "UnsupportedProtocol",
    "UnsupportedRegion",
)
_WHOLE = frozenset({"FailedOperation", "InternalError", "InvalidParameter", "LimitExceeded"})
PER_RECEIVER: frozenset[str] = frozenset(
    row.code
    for row in TencentSms.errors
    if not row.code.startswith(_OF_THE_CALL) and row.code not in _WHOLE
)
"""What stands in `Code` of a number; the common errors of API 3.0 stand in `Response.Error`."""
UNREACHABLE: dict[str, str] = {}


def notification(number: int) -> Notification:
    """One code to one number of its own."""
    return Notification(
        id=f"tencent-{number}",
        channel="sms",
        kind="verification",
        receivers=[f"+86139{number:08d}"],
        template=Template("1110", {"1": f"{number:06d}"}),
        created_at=1_790_000_000_000,
        ttl_ms=3_650 * 86_400_000,
    )
