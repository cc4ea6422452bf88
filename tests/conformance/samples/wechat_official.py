"""WeChat Official Account: see `tests.conformance.samples`."""

from __future__ import annotations

from typing import Any

from message.envelope import Notification, Template

ACCOUNT: dict[str, Any] = {"appid": "simulator-id", "secret": "simulator-secret"}
PATH = "/wechat_official"
PER_RECEIVER: frozenset[str] = frozenset()
UNREACHABLE: dict[str, str] = {}
SIGNS_WITH = {"aes_key": "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", "app_id": "wx-app"}
RECEIPT_KEYS = {"token": "simulator-secret", **SIGNS_WITH}


def notification(number: int) -> Notification:
    return Notification(
        id=f"wechat_official-{number}",
        channel="wechat_official",
        kind="notice",
        receivers=[f"oSimulator{number:018d}"],
        template=Template(
            "SIMULATOR_TEMPLATE", {"thing1": f"订单 {number}", "time2": "2026-11-21 12:00"}
        ),
        created_at=1,
    )
