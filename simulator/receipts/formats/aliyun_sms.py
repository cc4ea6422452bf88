"""Aliyun's SmsReport. It is not signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JSON, Pushed, ReceiptReport, china_time
from simulator.wire import ProtocolContext


class AliyunSmsReceiptFormat:
    """SmsReport."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        """See `Format`."""
        return Pushed(url, [JSON], json.dumps([_report(one) for one in reports]).encode())


def _report(report: ReceiptReport) -> dict[str, Any]:
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


FORMATS = {"aliyun_sms": AliyunSmsReceiptFormat()}
