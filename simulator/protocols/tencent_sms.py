"""Tencent Cloud SMS as it is documented: SendSms, PullSmsSendStatusByPhoneNumber, PullSmsSendStatus; TC3.

Answers have status 200; an error of the call is in `Response.Error`, one of a number in its `Code`.
Delivery reports are in the queue as soon as a number is accepted. SessionContext is empty unless
`lists.contexts` says that it was switched on for the application.

Credentials: `secret_id`, `secret_key`, `sdk_app_id` (1400006666). Sources: see
channels/providers/tencent_sms/adapter.py.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from simulator.ledger import LedgerRecord
from simulator.protocols._json import json_reply, parsed
from simulator.protocols._sms import is_number
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

_AUTHORIZATION = re.compile(
    r"TC3-HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<date>\d{4}-\d\d-\d\d)/sms/tc3_request, "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<made>[0-9a-f]{64})"
)
_VERSION: Final = "2021-01-11"
_WINDOW_S: Final = 300
_MAX_NUMBERS: Final = 200
_MAX_CONTEXT: Final = 512
_MAX_REPORTS: Final = 100
_REACH_S: Final = 7 * 86_400
_QUEUE: Final = 100_000
_APP_ID: Final = "1400006666"
_SEND: Final = {
    "PhoneNumberSet": list,
    "SmsSdkAppId": str,
    "TemplateId": str,
    "SignName": str,
    "TemplateParamSet": list,
    "ExtendCode": str,
    "SessionContext": str,
    "SenderId": str,
}
_ASK: Final = {
    "BeginTime": int,
    "EndTime": int,
    "Offset": int,
    "Limit": int,
    "PhoneNumber": str,
    "SmsSdkAppId": str,
}
_REQUEST_ID: Final = "a0aabda6-cf91-4f3e-a81f-9198114a2279"


class TencentSmsProtocol(WireProtocol):
    """Belongs to the loop's thread."""

    name = "tencent_sms"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._id = world.credential(self.name, "secret_id", "simulator-id")
        self._secret = world.credential(self.name, "secret_key")
        self._app_id = world.credential(self.name, "sdk_app_id", _APP_ID)
        self._reports: dict[str, list[dict[str, Any]]] = {}
        self._queue: deque[dict[str, Any]] = deque(maxlen=_QUEUE)

    def read(self, request: Request, path: str) -> ReceivedCall | Question | Reply:
        """Checks the signature, then version, region and operation, then the operation's parameters."""
        if request.method != "POST":
            return self.refuse("UnsupportedProtocol")
        if fault := self._fault(request):
            return self.refuse(fault)
        given = parsed(request.body)
        if not isinstance(given, dict):
            return self.refuse("InvalidParameter")
        action = request.field("x-tc-action")
        if action == "SendSms":
            return self._send(given)
        if action == "PullSmsSendStatusByPhoneNumber":
            return self._question(given)
        if action == "PullSmsSendStatus":
            return self._pull(given)
        return self.refuse("InvalidAction")

    def provider_id(self, seq: int) -> str:
        """Returns a SerialNo."""
        return f"5000:{1_045_710_669_157_053_657_849_000_000 + seq}"

    def accepted(self, record: LedgerRecord) -> None:
        """Adds a delivery report, for the query and for the queue."""
        report = {
            "UserReceiveTime": record.at_ms // 1_000,
            "CountryCode": "86" if record.receiver.startswith("+86") else "",
            "SubscriberNumber": record.receiver.removeprefix("+86"),
            "PhoneNumber": record.receiver,
            "SerialNo": record.provider_id,
            "ReportStatus": "SUCCESS",
            "Description": "DELIVRD",
            "SessionContext": record.id,
            "at_ms": record.at_ms,
        }
        self._reports.setdefault(record.receiver, []).append(report)
        self._queue.append(report)

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns each number's own status."""
        return _answer(SendStatusSet=[_status(send, one) for one in verdicts])

    def refuse(self, code: str) -> Reply:
        """Returns an error of the whole call."""
        return _answer(Error={"Code": code, "Message": f"simulated: {code}"})

    def _fault(self, request: Request) -> str:
        found = _AUTHORIZATION.fullmatch(request.field("authorization"))
        if found is None:
            return "AuthFailure.InvalidAuthorization"
        if found["id"] != self._id:
            return "AuthFailure.SecretIdNotFound"
        text = request.field("x-tc-timestamp")
        now_s = int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
        date = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%d")
        if abs(self.world.now_ms() / 1_000 - now_s) > _WINDOW_S or found["date"] != date:
            return "AuthFailure.SignatureExpire"
        names = found["names"].split(";")
        right = self._signature(request, names, text, date)
        if not {"content-type", "host"} <= set(names) or not hmac.compare_digest(
            right, found["made"]
        ):
            return "AuthFailure.SignatureFailure"
        if request.field("x-tc-version") != _VERSION:
            return "NoSuchVersion"
        return "" if request.field("x-tc-region") else "MissingParameter"

    def _signature(self, request: Request, names: list[str], now: str, date: str) -> str:
        headers = "".join(f"{name}:{request.field(name).strip().lower()}\n" for name in names)
        digest = hashlib.sha256(request.body).hexdigest()
        canonical = "\n".join(
            [request.method, request.path, request.query, headers, ";".join(names), digest]
        )
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"TC3-HMAC-SHA256\n{now}\n{date}/sms/tc3_request\n{hashed}"
        key = ("TC3" + self._secret).encode()
        for part in (date, "sms", "tc3_request", to_sign):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key.hex()

    def _send(self, given: Mapping[str, Any]) -> ReceivedCall | Reply:
        needed = ("PhoneNumberSet", "SmsSdkAppId", "TemplateId")
        if fault := self._shape_fault(given, _SEND, needed) or _numbers_fault(given):
            return self.refuse(fault)
        texts = [*given["PhoneNumberSet"], *given.get("TemplateParamSet", [])]
        if not all(isinstance(one, str) for one in texts):
            return self.refuse("InvalidParameter")
        if not given["TemplateId"].isdigit():
            return self.refuse("FailedOperation.TemplateIncorrectOrUnapproved")
        if _home(given) and not given.get("SignName"):
            return self.refuse("FailedOperation.SignatureIncorrectOrUnapproved")
        context = given.get("SessionContext", "")
        if len(context.encode()) >= _MAX_CONTEXT:
            return self.refuse("InvalidParameterValue")
        return ReceivedCall([Recipient(one) for one in given["PhoneNumberSet"]], context)

    def _question(self, given: Mapping[str, Any]) -> Question | Reply:
        needed = ("BeginTime", "Offset", "Limit", "PhoneNumber", "SmsSdkAppId")
        if fault := self._shape_fault(given, _ASK, needed):
            return self.refuse(fault)
        now_s = self.world.now_ms() // 1_000
        begin, end = given["BeginTime"], given.get("EndTime", now_s)
        if begin < now_s - _REACH_S:
            return self.refuse("InvalidParameterValue.BeginTimeVerifyFail")
        if end < begin:
            return self.refuse("InvalidParameterValue.EndTimeVerifyFail")
        if given["Offset"] != 0:
            return self.refuse("InvalidParameterValue.OffsetVerifyFail")
        if not 1 <= given["Limit"] <= _MAX_REPORTS:
            return self.refuse("InvalidParameterValue.LimitVerifyFail")
        number = given["PhoneNumber"]
        answer = partial(self._reported, number, begin, end, given["Limit"])
        return Question("GET", answer, number, number)

    def _pull(self, given: Mapping[str, Any]) -> Question | Reply:
        asked = {name: _ASK[name] for name in ("Limit", "SmsSdkAppId")}
        if fault := self._shape_fault(given, asked, tuple(asked)):
            return self.refuse(fault)
        if not 1 <= given["Limit"] <= _MAX_REPORTS:
            return self.refuse("InvalidParameterValue.LimitVerifyFail")
        return Question("GET", partial(self._given_out, given["Limit"]))

    def _shape_fault(
        self, given: Mapping[str, Any], known: Mapping[str, type], needed: Sequence[str]
    ) -> str:
        if not set(given) <= set(known):
            return "UnknownParameter"
        if not set(needed) <= set(given):
            return "MissingParameter"
        if not all(type(value) is known[name] for name, value in given.items()):
            return "InvalidParameter"
        app_id = given["SmsSdkAppId"]
        return "" if app_id == self._app_id else "UnauthorizedOperation.SmsSdkAppIdVerifyFail"

    def _reported(self, number: str, begin: int, end: int, limit: int) -> Reply:
        reports = self._reports.get(number, [])
        found = [
            one
            for one in reports
            if begin <= one["UserReceiveTime"] <= end and self.world.listed(one["at_ms"])
        ]
        return _answer(PullSmsSendStatusSet=self._shown(found[:limit]))

    def _given_out(self, limit: int) -> Reply:
        taken = [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]
        return _answer(PullSmsSendStatusSet=self._shown(taken))

    def _shown(self, reports: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Returns the reports as sent: without the context unless it was switched on."""
        hidden = {} if self.world.lists.contexts else {"SessionContext": ""}
        return [{n: v for n, v in one.items() if n != "at_ms"} | hidden for one in reports]


def _numbers_fault(given: Mapping[str, Any]) -> str:
    numbers = given["PhoneNumberSet"]
    if not numbers:
        return "MissingParameter.EmptyPhoneNumberSet"
    if len(numbers) > _MAX_NUMBERS:
        return "LimitExceeded.PhoneNumberCountLimit"
    if not all(isinstance(one, str) and is_number(one) for one in numbers):
        return "InvalidParameterValue.IncorrectPhoneNumber"
    if len({one.startswith("+86") for one in numbers}) > 1:
        return "UnsupportedOperation.ContainDomesticAndInternationalPhoneNumber"
    return ""


def _home(given: Mapping[str, Any]) -> bool:
    return str(given["PhoneNumberSet"][0]).startswith("+86")


def _status(send: ReceivedCall, verdict: Verdict) -> dict[str, Any]:
    good = not verdict.code
    return {
        "SerialNo": verdict.provider_id if good else "",
        "PhoneNumber": verdict.recipient.receiver,
        "Fee": 1 if good else 0,
        "SessionContext": send.id,
        "Code": verdict.code or "Ok",
        "Message": f"simulated: {verdict.code}" if verdict.code else "send success",
        "IsoCode": "CN" if verdict.recipient.receiver.startswith("+86") else "",
    }


def _answer(**content: Any) -> Reply:
    return json_reply({"Response": {**content, "RequestId": _REQUEST_ID}})


PROTOCOLS = (TencentSmsProtocol,)
