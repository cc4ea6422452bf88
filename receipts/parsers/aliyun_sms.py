"""Aliyun SMS: SmsReport, pushed by HTTP.

    POST  [{"phone_number":"13900000001","send_time":"2017-01-01 00:00:00","report_time":"…",
            "success":true,"err_code":"DELIVERED","err_msg":"用户接收成功","sms_size":"1",
            "biz_id":"12345","out_id":"67890"}, …]
    200   {"code":0,"msg":"接收成功"}          anything else: pushed again, three times at most

`biz_id` names a whole call, so the number names the delivery; `out_id` is our call's key. Numbers of
mainland China come without their country, others with it and without a plus. Times are China's. The push is
not signed: the callback's address carries a secret.

Sources: https://help.aliyun.com/zh/sms/developer-reference/smsreport-2
https://www.alibabacloud.com/help/en/sms/developer-reference/smsreport-2
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import Parsed, Parser, Push, SharedSecret, check_secret, china_ms, read_list

_ANSWER: Final = '{"code":0,"msg":"接收成功"}'.encode()
_MAINLAND: Final = 11
"""Digits of a mainland number without its country."""


class _Report(msgspec.Struct):
    phone_number: str
    success: bool
    biz_id: str
    err_code: str = ""
    out_id: str | None = ""
    report_time: str = ""


class AliyunSmsReports(Parser):
    provider: ClassVar[str] = "aliyun_sms"
    options: ClassVar[type[msgspec.Struct]] = SharedSecret

    def parse(self, push: Push, options: SharedSecret) -> Parsed:
        """Returns the receipts of any calls and numbers."""
        check_secret(push, options)
        receipts, unreadable = read_list(
            push.body, _Report, lambda report: _receipt(push.account, report)
        )
        return Parsed(receipts, _ANSWER, unreadable=unreadable)


def _receipt(account: str, report: _Report) -> Receipt:
    return Receipt(
        account=account,
        said=ReceiptState.DELIVERED if report.success else ReceiptState.UNDELIVERED,
        provider_id=report.biz_id,
        call_key=report.out_id or "",
        receivers=_spellings(report.phone_number),
        code=None if report.success else report.err_code,
        at=china_ms(report.report_time),
    )


def _spellings(number: str) -> tuple[str, ...]:
    """Returns the number's spellings: mainland and American numbers have eleven digits, the row decides."""
    digits = number.removeprefix("+").removeprefix("00")
    if len(digits) == _MAINLAND and digits.startswith("1"):
        return f"+86{digits}", f"+{digits}"
    return (f"+{digits}",)


PARSERS = (AliyunSmsReports(),)
