"""Volcengine's status report (短信状态报告回调). It is not signed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import JSON, Pushed, ReceiptReport
from simulator.wire import ID, ProtocolContext


class VolcengineSmsReceiptFormat:
    """A JSON list, as its page has it."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        """See `Format`."""
        group = world.credential("volcengine_sms", "sms_account", ID)
        return Pushed(url, [JSON], json.dumps([_report(one, group) for one in reports]).encode())


def _report(report: ReceiptReport, group: str) -> dict[str, Any]:
    good, number = report.planned.status == DELIVERED, report.record.receiver
    return {
        "account": "2000000000",
        "sub_account": group,
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


FORMATS = {"volcengine_sms": VolcengineSmsReceiptFormat()}
