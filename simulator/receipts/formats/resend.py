"""Resend's webhooks, signed with `credentials`: `resend.signing_secret`."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any, Final

from simulator.receipts.plan import DELIVERED, SENT
from simulator.receipts.receipt_format import JSON, Pushed, ReceiptReport
from simulator.wire import SECRET, ProtocolContext

SIGNING_SECRET: Final = "whsec_" + b64encode(SECRET.encode()).decode()
"""Where the credentials name none."""


class ResendReceiptFormat:
    """Webhooks, signed as Svix does."""

    steps, batch = True, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        body = json.dumps(_event(report)).encode()
        key = world.credential("resend", "signing_secret", SIGNING_SECRET)
        message_id, now = f"msg_{token_hex(12)}", str(world.now_ms() // 1_000)
        signed = f"{message_id}.{now}.".encode() + body
        made = hmac.new(b64decode(key.removeprefix("whsec_")), signed, hashlib.sha256).digest()
        fields = [
            JSON,
            ("svix-id", message_id),
            ("svix-timestamp", now),
            ("svix-signature", f"v1,{b64encode(made).decode()}"),
        ]
        return Pushed(url, fields, body)


def _event(report: ReceiptReport) -> dict[str, Any]:
    status = report.planned.status
    kind = status if status in (SENT, DELIVERED) else "bounced"
    at = datetime.fromtimestamp(report.at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    data: dict[str, Any] = {
        "created_at": at,
        "email_id": report.record.provider_id,
        "to": [report.record.receiver],
    }
    if kind == "bounced":
        data["bounce"] = {"type": report.planned.code, "subType": "General", "message": "simulated"}
    return {"type": f"email.{kind}", "created_at": at.replace("+00:00", "Z"), "data": data}


FORMATS = {"resend": ResendReceiptFormat()}
