"""WeChat mini-program: see `tests.conformance.samples`."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {"appid": "simulator-id", "secret": "simulator-secret"}
PATH = "/wechat_mini"
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
RECEIPT_KEYS = {"token": "simulator-secret"}


def notification(number: int) -> Notification:
    return Notification(
        id=f"wechat_mini-{number}",
        channel="wechat_mini",
        kind="notice",
        receivers=[f"oSimulator{number:018d}"],
        template=Template(
            "SIMULATOR_TEMPLATE", {"thing1": f"订单 {number}", "time2": "2026-11-21 12:00"}
        ),
        created_at=1,
    )
