"""Volcengine SMS as it is documented: SendSms 2020-01-01; HMAC-SHA256 over query, fields and body.

Checked: the gateway's part (method, X-Date within 15 minutes, Credential, every field that SignedHeaders
names, the body's X-Content-Sha256), then the service's (the JSON members, the message group, 200 numbers, a
TemplateParam that is an object of texts). Content-Type, Host, X-Content-Sha256 and X-Date must be signed.

The gateway's errors have their documented status. No page gives the service's one: they come with 200, and
with a MessageID of no message, as public clients report. A malformed number refuses its call with one id
for all (SendAim's page). There is no query: the provider's proves nothing of a call.

Credentials: `access_key_id`, `access_key_secret`, `sms_account`. Sources: see
channels/providers/volcengine_sms/.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from simulator.protocols._json import json_reply, parsed
from simulator.protocols._sms import is_number
from simulator.servers.http_request import Request
from simulator.wire import ID, ReceivedCall, Recipient, Reply, Verdict, WireProtocol

_AUTHORIZATION: Final = re.compile(
    r"HMAC-SHA256 Credential=(?P<id>[^/]+)/(?P<scope>[^,]+), "
    r"SignedHeaders=(?P<names>[a-z0-9;-]+), Signature=(?P<made>[0-9a-f]{64})"
)
_SCOPE: Final = re.compile(r"(?P<date>[0-9]{8})/cn-north-1/(?P<service>[^/]+)/request")
_SERVICE: Final = "volcSMS"
_SIGNED: Final = frozenset({"content-type", "host", "x-content-sha256", "x-date"})
_OPERATION: Final = ("SendSms", "2020-01-01")
_WINDOW_S: Final = 900
_MAX_NUMBERS: Final = 200
_NEEDED: Final = frozenset({"SmsAccount", "Sign", "TemplateID", "PhoneNumbers"})
_FIELDS: Final = _NEEDED | {"TemplateParam", "Tag", "UserExtCode"}
_MAINLAND: Final = re.compile(r"1[3-9][0-9]{9}", re.ASCII)
_STATUSES: Final = {
    "InvalidAccessKey": 401,
    "InvalidClientTokenId": 401,
    "InvalidSecretToken": 401,
    "MissingAuthenticationToken": 401,
    "MissingSignature": 401,
    "SignatureDoesNotMatch": 401,
    "LackProjectPolicy": 401,
    "AccessDenied": 403,
    "LackPolicy": 403,
    "ServiceNotFound": 404,
    "InvalidActionOrVersion": 404,
    "MethodNotAllowed": 405,
    "FlowLimitExceeded": 429,
    "InternalError": 500,
    "UndefinedError": 500,
    "FailToConnect": 502,
    "InternalServiceError": 502,
    "ServiceUnavailableTemp": 503,
    "InternalServiceTimeout": 504,
}
"""Of the gateway; any other of its codes has 400."""
_NO_MESSAGE: Final = "00000000-0000-0000-0000-000000000000"


class VolcengineSmsProtocol(WireProtocol):
    """Keeps nothing: there is no dedup and no query."""

    name = "volcengine_sms"

    def read(self, request: Request, path: str) -> ReceivedCall | Reply:
        """The gateway first, then the service."""
        if request.method != "POST":
            return self.refuse("MethodNotAllowed")
        if fault := self._gateway_fault(request):
            self.world.count(f"{self.name}.signatures_refused")
            return self.refuse(fault)
        if fault := _operation_fault(request.query):
            return self.refuse(fault)
        given = parsed(request.body)
        if fault := self._shape_fault(given, request.field("content-type")):
            return self.refuse(fault)
        numbers = [_e164(one) for one in given["PhoneNumbers"].split(",")]
        if len(numbers) > _MAX_NUMBERS:
            return self.refuse("RE:0009")
        if not all(is_number(one) for one in numbers):
            return self.refuse("RE:0006")
        return ReceivedCall([Recipient(one) for one in numbers], given.get("Tag", ""))

    def provider_id(self, seq: int) -> str:
        """One for each number, as theirs look."""
        return f"bde1b10d-19cf-460f-abcd-{seq:012x}"

    def reply(self, send: ReceivedCall, verdicts: Sequence[Verdict]) -> Reply:
        """Ids in the order of the numbers. The answer has no place for what is wrong with one of them."""
        if code := next((one.code for one in verdicts if one.code), ""):
            return self.refuse(code)
        return _answer({}, [one.provider_id for one in verdicts])

    def refuse(self, code: str) -> Reply:
        """The service's errors are answers like any other; the gateway's have a status and no result."""
        error = {"CodeN": 100_000, "Code": code, "Message": f"simulated: {code}"}
        if ":" in code:
            return _answer({"Error": error}, [_NO_MESSAGE])
        return _answer({"Error": error}, None, _STATUSES.get(code, 400))

    def _gateway_fault(self, request: Request) -> str:
        if not request.field("authorization"):
            return "MissingAuthenticationToken"
        found = _AUTHORIZATION.fullmatch(request.field("authorization"))
        if found is None:
            return "InvalidAuthorization"
        scope = _SCOPE.fullmatch(found["scope"])
        if scope is None:
            return "InvalidCredential"
        if scope["service"] != _SERVICE:
            return "ServiceNotFound"
        if found["id"] != self.world.credential(self.name, "access_key_id", ID):
            return "InvalidAccessKey"
        if fault := self._date_fault(request.field("x-date"), scope["date"]):
            return fault
        names = found["names"].split(";")
        whole = set(names) >= _SIGNED and names == sorted(names)
        digest = hashlib.sha256(request.body).hexdigest()
        if not whole or request.field("x-content-sha256") != digest:
            return "SignatureDoesNotMatch"
        right = self._signature(request, names, found["scope"], digest)
        return "" if hmac.compare_digest(right, found["made"]) else "SignatureDoesNotMatch"

    def _date_fault(self, text: str, day: str) -> str:
        if not text:
            return "MissingRequestInfo"
        try:
            made = datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return "InvalidTimestamp"
        age_s = self.world.now_ms() / 1_000 - made.timestamp()
        return "InvalidTimestamp" if abs(age_s) > _WINDOW_S or text[:8] != day else ""

    def _signature(self, request: Request, names: list[str], scope: str, digest: str) -> str:
        """Over the target as it came, which begins with the protocol's name."""
        pairs = sorted(parse_qsl(request.query, keep_blank_values=True))
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        lines = "".join(f"{name}:{request.field(name).strip()}\n" for name in names)
        canonical = (
            f"{request.method}\n{request.path}\n{query}\n{lines}\n{';'.join(names)}\n{digest}"
        )
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        to_sign = f"HMAC-SHA256\n{request.field('x-date')}\n{scope}\n{hashed}"
        key = self.world.credential(self.name, "access_key_secret").encode()
        for part in (*scope.split("/"), to_sign):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key.hex()

    def _shape_fault(self, given: Any, content_type: str) -> str:
        if not content_type.lower().startswith("application/json") or not isinstance(given, dict):
            return "RE:0009"
        if not set(given) >= _NEEDED or not set(given) <= _FIELDS:
            return "RE:0009"
        if not all(isinstance(value, str) for value in given.values()):
            return "RE:0009"
        if given["SmsAccount"] != self.world.credential(self.name, "sms_account", ID):
            return "RE:0003"
        if not given["Sign"]:
            return "RE:0004"
        if not given["TemplateID"]:
            return "RE:0005"
        params = parsed(given.get("TemplateParam", "{}"))
        texts = isinstance(params, dict) and all(isinstance(one, str) for one in params.values())
        return "" if texts else "RE:0009"


def _operation_fault(query: str) -> str:
    asked: Mapping[str, str] = dict(parse_qsl(query))
    if not asked.get("Action") or not asked.get("Version"):
        return "MissingParameter"
    return "" if (asked["Action"], asked["Version"]) == _OPERATION else "InvalidActionOrVersion"


def _e164(number: str) -> str:
    """The number with its country, which one of mainland China may do without."""
    return f"+86{number}" if _MAINLAND.fullmatch(number) else number


def _answer(error: Mapping[str, Any], ids: list[str] | None, status: int = 200) -> Reply:
    metadata = {
        "RequestId": "20221122104904010131057106C80B0000",
        "Action": "SendSms",
        "Version": "2020-01-01",
        "Service": _SERVICE,
        "Region": "cn-north-1",
        **error,
    }
    result = {"Result": {"MessageID": ids}} if ids is not None else {}
    return json_reply({"ResponseMetadata": metadata, **result}, status)


PROTOCOLS = (VolcengineSmsProtocol,)
