"""Volcengine's status report (短信状态报告回调). It is not signed."""

from __future__ import annotations

from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JsonReports, ReceiptReport
from simulator.wire import ID, ProtocolContext


def _report(report: ReceiptReport, world: ProtocolContext) -> dict[str, Any]:
    good, number = report.planned.status == DELIVERED, report.record.receiver
    return {
        "account": "2000000000",
        "sub_account": world.credential("volcengine_sms", "sms_account", ID),
        "status_code": "0" if good else report.planned.code,
        "description": "发送成功" if good else "simulated",
        "signature": "鸿雁",
        "template_id": "ST_00000000",
        "mobile": number.removeprefix("+86"),
        "channel_type": "CN_NTC" if number.startswith("+86") else "I18N_OTP",
        "message_id": report.record.provider_id,
        "msg_count": 1,
        "service_id": "",
        "ext": report.record.id,
        "send_time": report.record.at_ms,
        "recv_time": report.at_ms,
        "mccmnc": "",
        "iso_code": "CN" if number.startswith("+86") else "",
    }


FORMATS = {"volcengine_sms": JsonReports(_report)}
