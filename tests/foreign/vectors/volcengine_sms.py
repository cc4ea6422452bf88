"""Writes signatures and a request as Volcengine's own SDK makes them, for test_volcengine_sms.py.

The SDK is not installed with the others: it wants pycryptodome below 4, and brings a web scraper along.
From the repository's root:

    uv run --isolated --no-project --with volcengine==1.0.229 python tests/foreign/vectors/volcengine_sms.py

The bodies are those of our adapter, letter by letter. The request is the SDK's own: its client makes it,
with a clock that stands still, and it is kept in place of being sent.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest.mock import patch

import requests
from requests.adapters import HTTPAdapter
from volcengine.auth.SignerV4 import SignerV4
from volcengine.auth.SignParam import SignParam
from volcengine.Credentials import Credentials
from volcengine.sms.SmsService import SmsService

AT = datetime(2026, 9, 21, 14, 13, 20, tzinfo=timezone.utc)  # noqa: UP017 (any Python's)
QUERY = {"Action": "SendSms", "Version": "2020-01-01"}
CONTENT_TYPE = "application/json;charset=utf-8"
KEY_ID, SECRET = "AKLTexample", "TmpBeE16ZzRPV0V4TXpVNA=="
BODY = (
    '{"SmsAccount":"77da1acf","Sign":"鸿雁","TemplateID":"ST_6f8c",'
    '"PhoneNumbers":"+8615123456789,+8615234567890","Tag":"0123456789abcdef0123456789abcdef"%s}'
)
CASES = {
    "one parameter": ("sms.volcengineapi.com", "/", ',"TemplateParam":"{\\"code\\":\\"4711\\"}"'),
    "no parameter": ("sms.volcengineapi.com", "/", ""),
    "signs and letters": (
        "sms.volcengineapi.com",
        "/",
        ',"TemplateParam":"{\\"code\\":\\"3 & 4 +\\",\\"place\\":\\"人民公园\\"}"',
    ),
    "a proxy with a path": (
        "proxy.example:8443",
        "/volc/",
        ',"TemplateParam":"{\\"code\\":\\"4711\\"}"',
    ),
}


def signed(host: str, path: str, body: str) -> dict[str, str]:
    """Returns what the SDK makes of a request with these parts."""
    param = SignParam()
    param.set_method("POST")
    param.set_host(host)
    param.set_path(path)
    param.set_query(dict(QUERY))
    param.set_header_list({"Host": host, "Content-Type": CONTENT_TYPE})
    param.set_body(body)
    param.set_date(AT)
    made = SignerV4.sign_only(param, Credentials(KEY_ID, SECRET, "volcSMS", "cn-north-1"))
    return {
        "host": host,
        "path": path,
        "body": body,
        "x_date": made.xdate,
        "x_content_sha256": made.xContextSha256,
        "authorization": made.authorization,
    }


def client_request() -> dict[str, Any]:
    """Returns the request that the SDK's client makes for the simulator's account."""
    kept: list[requests.PreparedRequest] = []

    def keep(self: HTTPAdapter, request: requests.PreparedRequest, **more: Any) -> Any:
        kept.append(request)
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"{}"
        return answer

    service = SmsService()
    service.set_ak("simulator-id")
    service.set_sk("simulator-secret")
    content = {
        "SmsAccount": "simulator-id",
        "Sign": "鸿雁",
        "TemplateID": "ST_6f8c",
        "TemplateParam": '{"code":"4711"}',
        "PhoneNumbers": "+8615123456789,15234567890",
        "Tag": "0123456789abcdef0123456789abcdef",
    }
    now = AT.strftime("%Y%m%dT%H%M%SZ")
    with (
        patch.object(HTTPAdapter, "send", keep),
        patch.object(SignerV4, "get_current_format_date", staticmethod(lambda: now)),
    ):
        service.send_sms(json.dumps(content))
    (request,) = kept
    body = request.body.decode() if isinstance(request.body, bytes) else request.body
    fields = {"Host": "sms.volcengineapi.com", **request.headers}
    return {"method": request.method, "url": request.url, "fields": fields, "body": body}


def main() -> None:
    """Write them beside this file."""
    signatures = {
        name: signed(host, path, BODY % more) for name, (host, path, more) in CASES.items()
    }
    made = {"signatures": signatures, "client": client_request()}
    text = json.dumps(made, ensure_ascii=False, indent=1, sort_keys=True)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
