"""WeCom group robot: see `tests.conformance.samples`."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification

ACCOUNT: dict[str, Any] = {"key": "simulator-secret", "group": "ops"}
PATH = "/wecom_robot"
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
LIMITED = True


def notification(number: int) -> Notification:
    return Notification(
        id=f"wecom_robot-{number}",
        channel="wecom",
        kind="notice",
        receivers=["group:ops"],
        content={"text": f"订单 {number}"},
        created_at=1,
    )
