"""Tencent Cloud's own SDK (package `tencentcloud-sdk-python-sms`, 3.1) judges our signed calls.

It signs the request that our adapter made, and reads body and answer with its own models.
"""

from __future__ import annotations

import json
import re
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tencentcloud.common.abstract_client import AbstractClient
from tencentcloud.common.http.request import RequestInternal
from tencentcloud.sms.v20210111 import models

from channels.channel import Account, Call
from channels.engine import Engine
from channels.providers.tencent_sms import TencentSms
from channels.registry import load_accounts
from channels.simulator import spawn
from channels.transport import Transport
from channels.trial import OwnTokens, Recorder
from message.outcomes import Accepted
from tests.channels.providers.sms_calls import delivery
from tests.conformance.samples.tencent_sms import ACCOUNT, notification

NOW_S = 1_790_000_000.0
SECRET = "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE"


def account(endpoint: str, **changes: Any) -> Account:
    return load_accounts({"main": {**ACCOUNT, **changes, "endpoint": endpoint}})["main"]


def made(endpoint: str, **attributes: Any) -> httpx.Request:
    template = notification(1).template
    one = delivery("+8613800000001", template=template, **attributes)
    call = Call(account(endpoint, secret_key=SECRET), [one])
    return TencentSms(clock=lambda: NOW_S).request(call)


def judged(request: httpx.Request, *, body: bytes | None = None) -> str:
    """The signature that the SDK makes of this request."""
    headers = {name.title(): value for name, value in request.headers.items()}
    told = RequestInternal(
        headers["Host"],
        request.method,
        request.url.raw_path.decode(),
        {
            "Content-Type": headers["Content-Type"],
            "Host": headers["Host"],
            "X-TC-Timestamp": request.headers["X-TC-Timestamp"],
        },
        request.read() if body is None else body,
    )
    date = datetime.fromtimestamp(NOW_S, UTC).strftime("%Y-%m-%d")
    signed = AbstractClient._get_tc3_signature(None, None, told, date, "sms", SECRET)
    return str(signed)


@pytest.mark.parametrize(
    "endpoint", ["https://sms.tencentcloudapi.com", "https://proxy.example:8443/tencent"]
)
def test_the_sdk_signs_our_requests_as_we_do(endpoint: str) -> None:
    request = made(endpoint, sign_name="鸿雁")
    found = re.search("Signature=([0-9a-f]{64})$", request.headers["Authorization"])
    assert found is not None
    assert judged(request) == found[1]
    assert judged(request, body=request.read() + b" ") != found[1]


def test_the_sdks_model_knows_every_member_that_we_send() -> None:
    body = json.loads(made("https://sms.tencentcloudapi.com").read())
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns of members that it does not know
        model = models.SendSmsRequest()
        model._deserialize(body)
    assert model.PhoneNumberSet == ["+8613800000001"]
    assert model.SmsSdkAppId == body["SmsSdkAppId"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            models.SendSmsRequest()._deserialize({**body, "Invented": 1})


def test_the_sdk_reads_the_simulators_answer_as_our_adapter_does(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        recorder = Recorder(transport)
        engine = Engine(recorder, OwnTokens(recorder, 5.0))
        one = delivery("+8613800000001", template=notification(1).template)
        call = Call(account(f"{simulator.url}/tencent_sms"), [one])
        (outcome,) = engine.send(TencentSms(), call, 5.0)
        answer = recorder.exchanges[-1].answer
        assert isinstance(answer, httpx.Response)
        response = models.SendSmsResponse()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            response._deserialize(json.loads(answer.content)["Response"])
        (status,) = response.SendStatusSet
        assert outcome == Accepted(status.SerialNo)
        assert status.Code == "Ok"
        transport.close()
