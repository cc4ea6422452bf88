"""Tencent's delivery status callback. It is not signed."""

from __future__ import annotations

from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JsonReports, ReceiptReport, china_time
from simulator.wire import ProtocolContext


def _status(report: ReceiptReport, world: ProtocolContext) -> dict[str, Any]:
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


FORMATS = {"tencent_sms": JsonReports(_status)}
