"""Huawei Cloud SMS as it is documented: batchSendSms; SDK-HMAC-SHA256 over the fields and the body.

Checked: the key, the signature over every field that it names (Content-Type, Host and X-Sdk-Date must be
among them), 15 minutes, the form's fields, 500 numbers of 21 characters, parameters that are a JSON list.
`extend` comes back in status reports alone, and those come only where a call named its `statusCallback`.

Credentials: `app_key`, `app_secret`, `sender` (8823040504797). Sources: see
channels/providers/huawei_sms/adapter.py.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl

from simulator.ledger import LedgerRecord
from simulator.protocols._json import json_reply, parsed
from simulator.protocols._sms import is_number
from simulator.servers.http_request import Request
from simulator.wire import (
    ID,
    ProtocolContext,
    ReceivedCall,
    Recipient,
    Reply,
    Verdict,
    WireProtocol,
)

_AUTHORIZATION: Final = re.compile(
    r"SDK-HMAC-SHA256 Access=(?P<id>[^,]+), SignedHeaders=(?P<names>[a-z0-9;-]+), "
    r"Signature=(?P<made>[0-9a-f]{64})"
)
_SIGNED: Final = frozenset({"content-type", "host", "x-sdk-date"})
_FORM: Final = "application/x-www-form-urlencoded"
_WINDOW_S: Final = 15 * 60
_MAX_NUMBERS, _MAX_NUMBER = 500, 21
_MAX_EXTEND: Final = 128
_FIELDS: Final = frozenset(
    {"from", "to", "templateId", "templateParas", "statusCallback", "extend", "signature"}
)
_SENDER: Final = "8823040504797"
_GATEWAY: Final = "APIGW."
_NO_API: Final = "APIGW.0101"
_STATUSES: Final = {_NO_API: 404, "APIGW.0308": 429}
"""HTTP statuses of the gateway's codes that do not answer 401."""


class HuaweiSmsProtocol(WireProtocol):
    """Keeps the callback of the call that is being read."""

    name = "huawei_sms"

    def __init__(self, world: ProtocolContext) -> None:
        super().__init__(world)
        self._callback = ""

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """Checks the signature, then the form."""
        if path != "/sms/batchSendSms/v1" or request.method != "POST":
            return self.refuse(_NO_API)
        if not request.field("authorization"):
            return self.refuse("E000001")
        if fault := self._fault(request):
            self.world.count(f"{self.name}.signatures_refused")
            return self.refuse(fault)
        if not request.field("content-type").startswith(_FORM):
            return self.refuse("E000040")
        pairs = parse_qsl(request.body.decode("latin-1"), keep_blank_values=True)
        form = dict(pairs)
        if fault := self._shape_fault(form, len(pairs)):
            return self.refuse(fault)
        numbers = form["to"].split(",")
        self._callback = form.get("statusCallback", "")
        twice = {number for number in numbers if numbers.count(number) > 1}
        recipients = [Recipient(number) for number in numbers]
        return ReceivedCall(recipients, form.get("extend", ""), echo=twice)

    def provider_id(self, seq: int) -> str:
        """Returns an id in the provider's form."""
        return f"2ea20735-f856-4376-afbf-570bd70a46ee_{11_840_000 + seq}"

    def accepted(self, record: LedgerRecord) -> None:
        """Keeps the callback for the message's reports."""
        if self._callback:
            self.world.callbacks[record.provider_id] = self._callback

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Returns each number's own status; the call's code says whether all of them went well."""
        codes = ["E200041" if v.recipient.receiver in send.echo else v.code for v in verdicts]
        result = [
            {
                "originTo": verdict.recipient.receiver,
                "createTime": "2018-05-25T16:34:34Z",
                "from": self.world.credential(self.name, "sender", _SENDER),
                "smsMsgId": "" if code else verdict.provider_id,
                "status": code or "000000",
                "countryId": "CN",
                "total": 1,
            }
            for verdict, code in zip(verdicts, codes, strict=True)
        ]
        code = "E000510" if any(codes) else "000000"
        words = "The SMS fails to be sent." if any(codes) else "Success"
        return json_reply({"code": code, "description": words, "result": result})

    def refuse(self, code: str) -> Reply:
        """Returns an error; the gateway's own have another form."""
        if code.startswith(_GATEWAY):
            error = {"error_code": code, "error_msg": f"simulated: {code}", "request_id": "sim"}
            return json_reply(error, _STATUSES.get(code, 401))
        return json_reply({"code": code, "description": f"simulated: {code}"}, 400)

    def _fault(self, request: Request) -> str:
        found = _AUTHORIZATION.fullmatch(request.field("authorization"))
        if found is None:
            return "APIGW.0301"
        if found["id"] != self.world.credential(self.name, "app_key", ID):
            return "E000102"
        names = found["names"].split(";")
        right = self._signature(request, names)
        if not set(names) >= _SIGNED or not hmac.compare_digest(right, found["made"]):
            return "APIGW.0301"
        try:
            date = request.field("x-sdk-date")
            made = datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return "APIGW.0301"
        age_s = self.world.now_ms() / 1_000 - made.timestamp()
        return "E000110" if abs(age_s) > _WINDOW_S else ""

    def _signature(self, request: Request, names: list[str]) -> str:
        """Signs the target as it came, which begins with the protocol's name."""
        lines = "".join(f"{name}:{request.field(name).strip()}\n" for name in names)
        path = request.path.rstrip("/") + "/"
        digest = hashlib.sha256(request.body).hexdigest()
        canonical = f"POST\n{path}\n{request.query}\n{lines}\n{';'.join(names)}\n{digest}"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"SDK-HMAC-SHA256\n{request.field('x-sdk-date')}\n{hashed}"
        secret = self.world.credential(self.name, "app_secret").encode()
        return hmac.new(secret, to_sign.encode(), hashlib.sha256).hexdigest()

    def _shape_fault(self, form: Mapping[str, str], count: int) -> str:
        if not {"from", "to", "templateId"} <= set(form) <= _FIELDS or count != len(form):
            return "E000503"
        if form["from"] != self.world.credential(self.name, "sender", _SENDER):
            return "E000503"
        numbers = form["to"].split(",")
        if len(numbers) > _MAX_NUMBERS or any(len(one) > _MAX_NUMBER for one in numbers):
            return "E000503"
        if not all(map(is_number, numbers)) or len(form.get("extend", "")) > _MAX_EXTEND:
            return "E000503"
        places = parsed(form.get("templateParas", "[]"))
        readable = isinstance(places, list) and all(isinstance(one, str) and one for one in places)
        return "" if readable else "E000000"


PROTOCOLS = (HuaweiSmsProtocol,)
