"""WeCom application messages: see `tests.conformance.samples`."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

ACCOUNT: dict[str, Any] = {
    "corpid": "simulator-id",
    "corpsecret": "simulator-secret",
    "agentid": 1000002,
    "duplicate_check": True,
}
PATH = "/wecom"
PER_RECEIVER: frozenset[str] = frozenset({"invaliduser", "unlicenseduser"})
UNREACHABLE: dict[str, str] = {}
UNDOCUMENTED = "987654"


def notification(number: int) -> Notification:
    return Notification(
        id=f"wecom-{number}",
        channel="wecom",
        kind="notice",
        receivers=[f"member-{number}"],
        content={"markdown": f"**订单** {number}"},
        created_at=1,
    )
