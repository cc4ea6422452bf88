"""Aliyun SMS as it is documented: SendSms, SendBatchSms, QuerySendDetails over a checked signature V3.

A call is taken whole or refused whole. A rule that refuses all numbers of a call refuses the call, with the
first one's code. If it refuses some, the call is OK, and QuerySendDetails shows those as failed (status 2),
as the provider's own receipts would. The ledger does not have them as accepted, and a restart forgets them.
TotalCount counts rows that are not listed yet.

Credentials: `access_key_id`, `access_key_secret`. Sources: see channels/providers/aliyun_sms/adapter.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from simulator.ledger import LedgerRecord
from simulator.protocols._json import json_reply, parsed
from simulator.protocols._sms import CHINA_MS, is_number
from simulator.protocols._sms_acs3 import Gateway, fields
from simulator.servers.http_request import Request
from simulator.wire import (
    ProtocolContext,
    Question,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_VERSION: Final = "2017-05-25"
_MAX_EQUAL, _MAX_EACH = 1_000, 100
_MAX_OUT_ID: Final = 256
_MAX_PAGE: Final = 50
_REACH_MS: Final = 30 * 86_400_000
_WAITING, _FAILED, _DELIVERED = 1, 2, 3
_MOBILE = re.compile(r"1[3-9][0-9]{9}", re.ASCII)
_TEMPLATE = re.compile(r"SMS_[0-9]{1,16}", re.ASCII)
_STATUSES: Final = {
    "InternalError": 500,
    "ServiceUnavailable": 503,
    **dict.fromkeys(("Forbidden", "ActionUnauthorized", "NoPermission"), 403),
    **dict.fromkeys(("InvalidAction.NotFound", "InvalidApi.NotFound"), 404),
    "InvalidAccessKeyId.NotFound": 404,
}
"""HTTP statuses of the gateway's codes; its others answer 400, the service's own (isv, isp) 200."""
_REQUEST_ID: Final = "0A974B78-02BF-4C79-ADF3-90CFBA1B55B1"


class _Detail(NamedTuple):
    """One row of QuerySendDetails, and its time (epoch milliseconds)."""

    at_ms: int
    row: dict[str, Any]


class AliyunSmsProtocol(WireProtocol):
    """Belongs to the loop's thread."""

    name = "aliyun_sms"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._gateway = Gateway(world, self.name)
        self._biz_id = ""
        """BizId of the call that is being decided; empty before its first number."""
        self._details: dict[str, list[_Detail]] = {}
        """By number as the provider writes it; kept for good."""

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Checks the signature, then version and operation, then the operation's parameters."""
        self._biz_id = ""
        if request.method not in ("GET", "POST"):
            return self.refuse("InvalidApi.NotFound")
        if fault := self._gateway.fault(request):
            return self.refuse(fault)
        if request.field("x-acs-version") != _VERSION:
            return self.refuse("InvalidVersion")
        given = fields(request.query) | fields(request.body.decode("latin-1"))
        action = request.field("x-acs-action")
        if action == "SendSms":
            return self._send(given)
        if action == "SendBatchSms":
            return self._send_batch(given)
        if action == "QuerySendDetails":
            return self._question(given)
        return self.refuse("InvalidAction.NotFound")

    def provider_id(self, seq: int) -> str:
        """Returns one BizId for all numbers of a call."""
        self._biz_id = self._biz_id or f"{900_619_746_936_000_000 + seq}^0"
        return self._biz_id

    def accepted(self, record: LedgerRecord) -> None:
        """Adds a row for QuerySendDetails."""
        self._keep(record.receiver, record.id, record.at_ms, _DELIVERED, "DELIVERED")

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns OK and the call's BizId."""
        failed = [one for one in verdicts if one.code]
        if len(failed) == len(verdicts):
            return self.refuse(failed[0].code)
        for one in failed:
            self._keep(one.recipient.receiver, send.id, self.world.now_ms(), _FAILED, one.code)
        return _ok(BizId=verdicts[0].provider_id)

    def refuse(self, code: str) -> Reply:
        """Returns an error. The service's own are ordinary answers; the gateway's have a status."""
        if code.startswith(("isv.", "isp.")):
            status = 200
        else:
            status = 403 if code.startswith("Forbidden.") else _STATUSES.get(code, 400)
        content = {"RequestId": _REQUEST_ID, "Code": code, "Message": f"simulated: {code}"}
        return json_reply(content, status)

    def _send(self, given: Mapping[str, str]) -> ReceivedCall | Reply:
        for name in ("PhoneNumbers", "SignName", "TemplateCode"):
            if not given.get(name):
                return self.refuse(f"Missing{name}")
        numbers = [_e164(one) for one in given["PhoneNumbers"].split(",")]
        if len(numbers) > _MAX_EQUAL:
            return self.refuse("isv.MOBILE_COUNT_OVER_LIMIT")
        params = parsed(given["TemplateParam"]) if "TemplateParam" in given else {}
        return self._checked(given, numbers, [params])

    def _send_batch(self, given: Mapping[str, str]) -> ReceivedCall | Reply:
        lists = []
        for name in ("PhoneNumberJson", "SignNameJson"):
            if not given.get(name):
                return self.refuse(f"Missing{name}")
            lists.append(parsed(given[name]))
        params = parsed(given.get("TemplateParamJson", "[]"))
        numbers, signs = lists
        if not all(_is_texts(one) for one in lists) or not isinstance(params, list):
            return self.refuse("isv.INVALID_JSON_PARAM")
        if len(numbers) > _MAX_EACH:
            return self.refuse("isv.MOBILE_COUNT_OVER_LIMIT")
        if len(signs) != len(numbers) or len(params) not in (0, len(numbers)):
            return self.refuse("isv.INVALID_PARAMETERS")
        return self._checked(given, [_e164(one) for one in numbers], params)

    def _checked(
        self, given: Mapping[str, str], numbers: Sequence[str], params: Sequence[Any]
    ) -> ReceivedCall | Reply:
        if not all(is_number(one) for one in numbers):
            return self.refuse("isv.MOBILE_NUMBER_ILLEGAL")
        if not _TEMPLATE.fullmatch(given.get("TemplateCode", "")):
            return self.refuse("isv.SMS_TEMPLATE_ILLEGAL")
        if not all(_is_params(one) for one in params):
            return self.refuse("isv.INVALID_JSON_PARAM")
        if len(given.get("OutId", "")) >= _MAX_OUT_ID:
            return self.refuse("isv.INVALID_PARAMETERS")
        return ReceivedCall([Recipient(one) for one in numbers], given.get("OutId", ""))

    def _question(self, given: Mapping[str, str]) -> Question | Reply:
        for name in ("PhoneNumber", "SendDate", "PageSize", "CurrentPage"):
            if not given.get(name):
                return self.refuse(f"Missing{name}")
        size, page = _count(given["PageSize"]), _count(given["CurrentPage"])
        if not (1 <= size <= _MAX_PAGE and page >= 1 and self._in_reach(given["SendDate"])):
            return self.refuse("isv.INVALID_PARAMETERS")
        number = given["PhoneNumber"]
        answer = partial(self._answered, number, given["SendDate"], size, page)
        return Question("GET", answer, _e164(number), given["SendDate"])

    def _in_reach(self, date: str) -> bool:
        try:
            day = datetime.strptime(date, "%Y%m%d").replace(tzinfo=UTC)
        except ValueError:
            return False
        age_ms = self.world.now_ms() + CHINA_MS - day.timestamp() * 1_000
        return 0 <= age_ms <= _REACH_MS

    def _answered(self, number: str, date: str, size: int, page: int) -> Reply:
        kept = [one for one in self._details.get(number, []) if _day(one.row) == date]
        listed = [one.row for one in kept if self.world.listed(one.at_ms)]
        shown = listed[(page - 1) * size : page * size]
        return _ok(TotalCount=str(len(kept)), SmsSendDetailDTOs={"SmsSendDetailDTO": shown})

    def _keep(self, receiver: str, out_id: str, at_ms: int, status: int, code: str) -> None:
        number = receiver.removeprefix("+86").lstrip("+")
        at = datetime.fromtimestamp((at_ms + CHINA_MS) / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        row: dict[str, Any] = {
            "PhoneNum": number,
            "OutId": out_id,
            "SendStatus": status,
            "ErrCode": code,
        }
        row |= {"SendDate": at, "ReceiveDate": at}
        self._details.setdefault(number, []).append(_Detail(at_ms, row))


def _ok(**content: Any) -> Reply:
    return json_reply({"Message": "OK", "RequestId": _REQUEST_ID, "Code": "OK", **content})


def _day(row: Mapping[str, Any]) -> str:
    return str(row["SendDate"])[:10].replace("-", "")


def _e164(number: str) -> str:
    """Returns the number with its country. A mainland mobile number may have any of the prefixes or none,
    so `13125550123` and `+13125550123` are mainland ones. No other country's code has 00 before it."""
    for prefix in ("+86", "0086", "86", "+", ""):
        rest = number.removeprefix(prefix)
        if number.startswith(prefix) and _MOBILE.fullmatch(rest):
            return f"+86{rest}"
    return "+" + number.removeprefix("+")


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _is_params(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


PROTOCOLS = (AliyunSmsProtocol,)
