"""Tencent Cloud SMS: the delivery status, pushed, or pulled with PullSmsSendStatus.

    POST  [{"user_receive_time":"2015-10-17 08:03:04","nationcode":"86","mobile":"13xxxxxxxxx",
            "report_status":"SUCCESS","errmsg":"DELIVRD","description":"用户短信送达成功","sid":"…"}, …]
    200   {"result":0,"errmsg":"OK"}

    pull  {"Response":{"PullSmsSendStatusSet":[{"UserReceiveTime":1620734188,"PhoneNumber":"+86…",
            "SerialNo":"…","ReportStatus":"SUCCESS","Description":"DELIVRD","SessionContext":"…"}],…}}

`sid` is the SerialNo, one for each number. `report_status` is SUCCESS or FAIL, `errmsg` the carrier's code.
The push is not signed: the callback's address carries a secret. Pulled statuses leave the queue.

Sources: https://cloud.tencent.com/document/product/382/59178 (push, Chinese),
https://www.tencentcloud.com/document/product/382/43547 (push, English),
https://www.tencentcloud.com/document/api/382/40519 (pull)
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from idempotency.receipts.rules import Receipt, ReceiptState
from receipts.push import (
    Malformed,
    Parsed,
    Parser,
    Push,
    SharedSecret,
    check_secret,
    china_ms,
    read_each,
    read_list,
)

_ANSWER: Final = b'{"result":0,"errmsg":"OK"}'
_SAID: Final = {"SUCCESS": ReceiptState.DELIVERED, "FAIL": ReceiptState.UNDELIVERED}


class _Status(msgspec.Struct):
    nationcode: str
    mobile: str
    report_status: str
    sid: str
    errmsg: str = ""
    user_receive_time: str = ""


class _Pulled(msgspec.Struct):
    PhoneNumber: str
    SerialNo: str
    ReportStatus: str
    Description: str = ""
    SessionContext: str | None = ""
    UserReceiveTime: int = 0


class _Error(msgspec.Struct):
    Code: str = ""


class _Response(msgspec.Struct):
    PullSmsSendStatusSet: list[msgspec.Raw] | None = None
    Error: _Error | None = None


class _Answer(msgspec.Struct):
    Response: _Response


class TencentSmsStatuses(Parser):
    provider: ClassVar[str] = "tencent_sms"
    options: ClassVar[type[msgspec.Struct]] = SharedSecret

    def parse(self, push: Push, options: SharedSecret) -> Parsed:
        """Returns the receipts of any numbers."""
        check_secret(push, options)
        receipts, unreadable = read_list(
            push.body, _Status, lambda status: _receipt(push.account, status)
        )
        return Parsed(receipts, _ANSWER, unreadable=unreadable)


def pulled(account: str, body: bytes) -> Parsed:
    """Returns the receipts in the answer to a PullSmsSendStatus, and the number of unreadable ones: the
    provider has forgotten those, too. Raises Malformed with the provider's code."""
    try:
        response = msgspec.json.decode(body, type=_Answer).Response
    except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
        raise Malformed(f"the answer cannot be read: {exc}") from exc
    if response.Error is not None:
        raise Malformed(f"the provider refused: {response.Error.Code}")
    entries = response.PullSmsSendStatusSet or []
    receipts = list(read_each(entries, _Pulled, lambda one: _of_pull(account, one)))
    return Parsed(receipts, unreadable=len(entries) - len(receipts))


def _receipt(account: str, status: _Status) -> Receipt:
    state = _said(status.report_status)
    return Receipt(
        account=account,
        said=state,
        provider_id=status.sid,
        receivers=(f"+{status.nationcode}{status.mobile}",),
        code=None if state is ReceiptState.DELIVERED else status.errmsg,
        at=china_ms(status.user_receive_time),
    )


def _of_pull(account: str, one: _Pulled) -> Receipt:
    state = _said(one.ReportStatus)
    return Receipt(
        account=account,
        said=state,
        provider_id=one.SerialNo,
        call_key=one.SessionContext or "",
        receivers=(one.PhoneNumber,),
        code=None if state is ReceiptState.DELIVERED else one.Description,
        at=one.UserReceiveTime * 1_000,
    )


def _said(status: str) -> ReceiptState:
    """Returns the proved state. Raises ValueError for an undocumented status: no guess moves a delivery."""
    if status not in _SAID:
        raise ValueError(status)
    return _SAID[status]


PARSERS = (TencentSmsStatuses(),)
