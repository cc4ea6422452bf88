"""Aliyun's SmsReport. It is not signed."""

from __future__ import annotations

from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JsonReports, ReceiptReport, china_time
from simulator.wire import ProtocolContext


def _report(report: ReceiptReport, world: ProtocolContext) -> dict[str, Any]:
    good = report.planned.status == DELIVERED
    return {
        "phone_number": report.record.receiver.removeprefix("+86").lstrip("+"),
        "send_time": china_time(report.record.at_ms),
        "report_time": china_time(report.at_ms),
        "success": good,
        "err_code": "DELIVERED" if good else report.planned.code,
        "err_msg": "用户接收成功" if good else "simulated",
        "sms_size": "1",
        "biz_id": report.record.provider_id,
        "out_id": report.record.id,
    }


FORMATS = {"aliyun_sms": JsonReports(_report)}
