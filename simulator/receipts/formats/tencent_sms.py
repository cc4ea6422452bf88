"""Tencent's delivery status callback. It is not signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JSON, Pushed, ReceiptReport, china_time
from simulator.wire import ProtocolContext


class TencentSmsReceiptFormat:
    """The delivery status callback."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        """See `Format`."""
        return Pushed(url, [JSON], json.dumps([_status(one) for one in reports]).encode())


def _status(report: ReceiptReport) -> dict[str, Any]:
    good, number = report.planned.status == DELIVERED, report.record.receiver
    nation = "86" if number.startswith("+86") else ""
    return {
        "user_receive_time": china_time(report.at_ms),
        "nationcode": nation,
        "mobile": number.removeprefix(f"+{nation}"),
        "report_status": "SUCCESS" if good else "FAIL",
        "errmsg": "DELIVRD" if good else report.planned.code,
        "description": "用户短信送达成功" if good else "simulated",
        "sid": report.record.provider_id,
    }


FORMATS = {"tencent_sms": TencentSmsReceiptFormat()}
