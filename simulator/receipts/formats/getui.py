"""GeTui's receipts; each line is signed with `credentials`: `getui.app_id`, `getui.master_secret`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from simulator.receipts.plan import DELIVERED
from simulator.receipts.receipt_format import Pushed, ReceiptReport
from simulator.wire import ID, ProtocolContext


class GetuiReceiptFormat:
    """The receipt: one JSON object a line, each signed."""

    steps, batch = False, 100

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        lines = [json.dumps(_line(report, world)) for report in reports]
        return Pushed(url, [("Content-Type", "text/plain")], "\n".join(lines).encode())


def _line(report: ReceiptReport, world: ProtocolContext) -> dict[str, Any]:
    app, cid = world.credential("getui", "app_id", ID), report.record.receiver
    task, name = report.record.provider_id, f"{report.record.seq:032x}"
    secret = world.credential("getui", "master_secret")
    text = f"{app}{cid}{task}{name}{secret}"
    good = report.planned.status == DELIVERED
    return {
        "appid": app,
        "cid": cid,
        "taskid": task,
        "msgid": name,
        "code": "200" if good else report.planned.code,
        "desc": "success" if good else "simulated",
        "sign": hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    }


FORMATS = {"getui": GetuiReceiptFormat()}
