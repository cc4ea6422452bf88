"""Volcengine SMS: the status report (短信状态报告回调), pushed to the address that the console names.

    POST  [{"account":"200…","sub_account":"1504…","signature":"短信服务","mobile":"188…",
            "channel_type":"CN_OTP","send_time":1669171012444,"recv_time":1669171015000,
            "template_id":"SPT_0fa7…","ext":"<call key>","message_id":"bde1b10d-…","status_code":"0",
            "description":"…","msg_count":1}, …]
    200   anything

`message_id` is one for each number, `ext` is the call's Tag. `status_code` is "0" for a success. Any other
is a code such as NE:0105 or CR:0202: the message did not arrive. `msg_count` counts the parts of a long
message; there is one report for all of them. Numbers of mainland China come without their country. The push
is not signed: the callback's address carries a secret. The page names neither an answer nor repeats of a
push.

Sources, read 2026-11-22: https://www.volcengine.com/docs/6361/171584 (callback),
https://www.volcengine.com/docs/6361/173291 (codes)
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import Parsed, Parser, Push, SharedSecret, check_secret, read_list

_GOOD: Final = "0"
_MAINLAND: Final = 11
"""Digits of a mainland number without its country."""


class _Report(msgspec.Struct):
    message_id: str
    status_code: str
    mobile: str = ""
    ext: str | None = ""
    recv_time: int | None = 0


class VolcengineSmsReports(Parser):
    provider: ClassVar[str] = "volcengine_sms"
    options: ClassVar[type[msgspec.Struct]] = SharedSecret

    def parse(self, push: Push, options: SharedSecret) -> Parsed:
        """The reports of any calls and numbers."""
        check_secret(push, options)
        receipts, unreadable = read_list(
            push.body, _Report, lambda report: _receipt(push.account, report)
        )
        return Parsed(receipts, unreadable=unreadable)


def _receipt(account: str, report: _Report) -> Receipt:
    """Raises ValueError for a report without its id or its status: it would be of any message."""
    if not report.message_id or not report.status_code:
        raise ValueError("message_id and status_code are expected")
    arrived = report.status_code == _GOOD
    return Receipt(
        account=account,
        said=ReceiptState.DELIVERED if arrived else ReceiptState.UNDELIVERED,
        provider_id=report.message_id,
        call_key=report.ext or "",
        receivers=_spellings(report.mobile),
        code=None if arrived else report.status_code,
        at=report.recv_time or 0,
    )


def _spellings(number: str) -> tuple[str, ...]:
    """A mainland number and an American one both have eleven digits; the row tells which it was."""
    digits = number.removeprefix("+").removeprefix("00")
    if not digits.isdecimal():
        return ()
    if len(digits) == _MAINLAND and digits.startswith("1"):
        return f"+86{digits}", f"+{digits}"
    return (f"+{digits}",)


PARSERS = (VolcengineSmsReports(),)
