"""Alibaba Cloud's own signer (package `alibabacloud-openapi-util`, 0.2) judges our ACS3 signatures."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from alibabacloud_openapi_util.client import Client
from Tea.request import TeaRequest

from channels.channel import Call
from channels.providers.aliyun_sms import AliyunSms
from channels.registry import load_accounts
from message.envelope import Template
from tests.channels.providers.sms_calls import delivery
from tests.conformance.samples.aliyun_sms import ACCOUNT

NOW_S = 1_790_000_000.0
SECRET = "a secret"
ALGORITHM = "ACS3-HMAC-SHA256"


def made(*params: dict[str, Any]) -> httpx.Request:
    account = load_accounts(
        {"main": {**ACCOUNT, "provider": "aliyun_sms", "access_key_secret": SECRET}}
    )["main"]
    each = [
        delivery(f"+861380000000{n}", template=Template("SMS_1", one))
        for n, one in enumerate(params)
    ]
    return AliyunSms(clock=lambda: NOW_S, nonce=lambda: "0123abcd").request(Call(account, each))


def judged(request: httpx.Request, secret: str = SECRET) -> str:
    """The Authorization that the signer makes of this request."""
    told = TeaRequest()
    told.method, told.pathname = request.method, request.url.path
    told.query = dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
    told.headers = {
        name: value
        for name, value in request.headers.items()
        if name in ("host", "content-type") or name.startswith("x-acs-")
    }
    digest = sha256(request.read()).hexdigest()
    assert request.headers["x-acs-content-sha256"] == digest
    key_id = ACCOUNT["access_key_id"]
    return str(Client.get_authorization(told, ALGORITHM, digest, key_id, secret))


@pytest.mark.parametrize(
    "params",
    [
        [{"code": "4711"}],
        [{"name": "A&B =+%~*'()!/", "city": "杭州 西湖"}],
        [{"code": "1"}, {"code": "2"}, {"code": "é\u3000~"}],
    ],
    ids=["one text", "signs", "a batch with a body"],
)
def test_the_signer_signs_our_requests_as_we_do(params: list[dict[str, Any]]) -> None:
    request = made(*params)
    assert request.headers["authorization"] == judged(request)
    assert request.headers["authorization"] != judged(request, "another secret")
