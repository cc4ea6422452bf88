"""Huawei Cloud's status report. It is not signed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import FORM, Pushed, ReceiptReport
from simulator.wire import ProtocolContext


class HuaweiSmsReceiptFormat:
    """The status report: to the address that the call named, else to the account's."""

    steps, batch = False, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        good, name = report.planned.status == DELIVERED, report.record.provider_id
        at = datetime.fromtimestamp(report.at_ms / 1_000, UTC)
        form = {
            "smsMsgId": name,
            "total": "1",
            "sequence": "1",
            "status": "DELIVRD" if good else report.planned.code,
            "source": "2",
            "updateTime": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "orgCode": "",
            "extend": report.record.id,
            "to": report.record.receiver,
        }
        url = world.callbacks.get(name, url)
        return Pushed(url, [FORM], urlencode(form).encode())


FORMATS = {"huawei_sms": HuaweiSmsReceiptFormat()}
