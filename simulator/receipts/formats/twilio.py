"""Twilio's StatusCallback, signed with `credentials`: `twilio.account_sid`, `twilio.auth_token`."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Sequence
from urllib.parse import urlencode

from simulator.receipts.receipt_format import FORM, Pushed, ReceiptReport
from simulator.wire import ProtocolContext


class TwilioReceiptFormat:
    """StatusCallback: to the address that the message named, query and all, else to the account's."""

    steps, batch = True, 1

    def push(self, url: str, reports: Sequence[ReceiptReport], world: ProtocolContext) -> Pushed:
        (report,) = reports
        sid = report.record.provider_id
        url = world.callbacks.get(sid, url)
        form = {
            "AccountSid": world.credential("twilio", "account_sid", "AC" + "0" * 32),
            "ApiVersion": "2010-04-01",
            "MessageSid": sid,
            "MessageStatus": report.planned.status,
            "SmsSid": sid,
            "SmsStatus": report.planned.status,
            "To": report.record.receiver,
        }
        if report.planned.code:
            form["ErrorCode"] = report.planned.code
        signed = url + "".join(name + form[name] for name in sorted(form))
        key = world.credential("twilio", "auth_token").encode()
        made = b64encode(hmac.new(key, signed.encode(), hashlib.sha1).digest()).decode()
        return Pushed(url, [FORM, ("X-Twilio-Signature", made)], urlencode(form).encode())


FORMATS = {"twilio": TwilioReceiptFormat()}
