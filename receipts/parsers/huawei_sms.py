"""Huawei Cloud SMS: the status report, pushed to the call's own `statusCallback`.

    POST  sequence=1&total=1&updateTime=2018-10-31T08%3A43%3A41Z&source=2&extend=<call key>
          &smsMsgId=2ea20735-…_11840135&status=DELIVRD&to=%2B8615123456789
    200   anything

`smsMsgId` is one for each number, `extend` the call's own text. A long message has `total` parts, and a
report for each: the last part's DELIVRD is taken for the whole message, any part's failure too. ACCEPTD and
UNKNOWN are not final. Any other status is a code of Huawei's or of a carrier's for a message that did not
arrive. The push is not signed: the callback's address carries a secret.

Source, read 2026-11-22: https://support.huaweicloud.com/intl/en-us/devg-msgsms/sms_04_0002.html (Receiving
Status Reports)
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import Malformed, Parsed, Parser, Push, SharedSecret, check_secret

_DELIVERED: Final = "DELIVRD"
_NO_END: Final = frozenset({"ACCEPTD", "UNKNOWN"})
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class HuaweiSmsReports(Parser):
    provider: ClassVar[str] = "huawei_sms"
    options: ClassVar[type[msgspec.Struct]] = SharedSecret

    def parse(self, push: Push, options: SharedSecret) -> Parsed:
        """Returns the receipt in the report of one part of a message, if it is final."""
        check_secret(push, options)
        return Parsed(_receipts(push.account, dict(push.form())))


def _receipts(account: str, form: dict[str, str]) -> list[Receipt]:
    name, status = form.get("smsMsgId", ""), form.get("status", "")
    if not name or not status:
        raise Malformed("smsMsgId and status are expected")
    arrived = status == _DELIVERED
    if status in _NO_END or (arrived and form.get("sequence", "1") != form.get("total", "1")):
        return []
    to = form.get("to", "")
    receipt = Receipt(
        account=account,
        said=ReceiptState.DELIVERED if arrived else ReceiptState.UNDELIVERED,
        provider_id=name,
        call_key=form.get("extend", ""),
        receivers=(to,) if to.removeprefix("+").isdecimal() else (),
        code=None if arrived else status,
        at=_epoch_ms(form.get("updateTime", "")),
    )
    return [receipt]


def _epoch_ms(text: str) -> int:
    """Returns epoch milliseconds; 0 for any other text."""
    try:
        return int(datetime.strptime(text, _TIME).replace(tzinfo=UTC).timestamp() * 1_000)
    except ValueError:
        return 0


PARSERS = (HuaweiSmsReports(),)
