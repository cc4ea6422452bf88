"""Tencent Cloud's own SDK (package `tencentcloud-sdk-python-sms`, 3.1) judges our signed calls.

It signs the request that our adapter made, and reads body and answer with its own models. Its client sends,
asks for reports and is refused at our simulator, and its requests are those of our adapter.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tencentcloud.common.abstract_client import AbstractClient
from tencentcloud.common.credential import Credential
from tencentcloud.common.exception.tencent_cloud_sdk_exception import TencentCloudSDKException
from tencentcloud.common.http.request import RequestInternal
from tencentcloud.sms.v20210111 import errorcodes, models, sms_client

from channels.channel import Account, Attempt, Call, Resolution
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.tencent_sms.adapter import TencentSms
from channels.registry import load_accounts
from message.envelope import Template
from message.outcomes import Accepted
from simulator import Faults, Lists, Simulator
from tests.channels.providers.sms_calls import KEY, delivery
from tests.conformance.samples.tencent_sms import ACCOUNT, PER_RECEIVER, notification
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

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
        recorder = ExchangeRecorder(transport)
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


# ---- the SDK's client at our simulator --------------------------------------------------------------

PROVIDER = TencentSms.endpoint
NUMBERS = ("+8613800000001", "+8613800000002")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("tencent"), fsync=False) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the SDK's requests."""
    simulator.control(rules=[], lists=Lists(contexts=True, lag_ms=0))
    with led({f"{PROVIDER}/": f"{simulator.url}/tencent_sms"}) as kept:
        yield kept


def client(secret: str = ACCOUNT["secret_key"]) -> Any:
    """The SDK's, as its users make it. It signs the path that the request has at our simulator."""
    found = sms_client.SmsClient(Credential(ACCOUNT["secret_id"], secret), "ap-guangzhou")
    found._requestPath = "/tencent_sms"
    return found


def asked(kind: str, **members: Any) -> Any:
    """The SDK's answer to one operation."""
    request = getattr(models, f"{kind}Request")()
    request._deserialize(members)
    return getattr(client(), kind)(request)


def compared(mine: httpx.Request, its: Made) -> None:
    """Asserts that both are the same, but for time and signature."""
    ours = of_httpx(mine)
    assert ours.named == its.named
    assert ours.json == its.json
    for name in ("Host", "X-TC-Action", "X-TC-Version", "X-TC-Region"):
        assert ours.fields[name] == its.fields[name]
    scopes = [one.fields["Authorization"].partition("Signature=")[0] for one in (ours, its)]
    assert scopes[0] == scopes[1]


def test_what_the_sdk_sends_the_simulator_takes_and_our_adapter_sends_the_same(
    theirs: list[Made],
) -> None:
    response = asked(
        "SendSms",
        PhoneNumberSet=list(NUMBERS),
        SmsSdkAppId=ACCOUNT["sdk_app_id"],
        TemplateId="1110",
        TemplateParamSet=["4711", "鸿雁 & 5"],
        SignName=ACCOUNT["sign_name"],
        SessionContext=KEY,
    )
    (its,) = theirs
    template = Template("1110", {"1": "4711", "2": "鸿雁 & 5"})
    each = [delivery(one, template=template) for one in NUMBERS]
    now_s = int(its.fields["X-TC-Timestamp"])
    compared(TencentSms(lambda: now_s).request(Call(account(PROVIDER), each)), its)
    assert [(one.Code, one.PhoneNumber) for one in response.SendStatusSet] == [
        ("Ok", number) for number in NUMBERS
    ]


def test_the_sdk_reads_the_reports_that_prove_a_send_to_our_adapter(theirs: list[Made]) -> None:
    sent = asked(
        "SendSms",
        PhoneNumberSet=["+8613800000009"],
        SmsSdkAppId=ACCOUNT["sdk_app_id"],
        TemplateId="1110",
        TemplateParamSet=["1"],
        SignName=ACCOUNT["sign_name"],
        SessionContext=KEY,
    )
    (status,) = sent.SendStatusSet
    now_ms = int(theirs[-1].fields["X-TC-Timestamp"]) * 1_000
    one = delivery("+8613800000009", template=notification(1).template)
    attempt = Attempt(one, called_at=now_ms, now=now_ms + 5_000)
    dialogue = TencentSms(lambda: now_ms / 1_000).resolve(account(PROVIDER), attempt)
    question = next(dialogue)
    reports = asked("PullSmsSendStatusByPhoneNumber", **json.loads(question.read()))
    compared(question, theirs[-1])
    (report,) = reports.PullSmsSendStatusSet
    assert (report.SerialNo, report.SessionContext) == (status.SerialNo, KEY)
    with pytest.raises(StopIteration) as ended:
        dialogue.send(theirs[-1].answer)
    assert ended.value.value.resolution is Resolution.SENT
    assert ended.value.value.provider_id == status.SerialNo


def test_the_sdk_pulls_the_queue_of_reports_as_our_adapter_does(theirs: list[Made]) -> None:
    asked("PullSmsSendStatus", Limit=100, SmsSdkAppId=ACCOUNT["sdk_app_id"])
    (its,) = theirs
    compared(TencentSms().pull(account(PROVIDER)), its)


def test_the_sdk_raises_the_code_that_our_adapter_reads(
    theirs: list[Made], simulator: Simulator
) -> None:
    one = delivery("+8613800000001", template=notification(1).template)
    call = Call(account(PROVIDER), [one])
    for code in [row.code for row in TencentSms.errors if row.code not in PER_RECEIVER]:
        exact = code.removesuffix("*")
        simulator.control(rules=[Faults(codes={exact: 1.0})])
        with pytest.raises(TencentCloudSDKException) as raised:
            asked("SendSms", **json.loads(TencentSms().request(call).read()))
        assert raised.value.code == exact
        (outcome,) = TencentSms().outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert (outcome.code, outcome.detail) == (exact, raised.value.message)


def test_the_simulator_refuses_the_sdk_with_a_wrong_key(theirs: list[Made]) -> None:
    request = models.PullSmsSendStatusRequest()
    request._deserialize({"Limit": 1, "SmsSdkAppId": ACCOUNT["sdk_app_id"]})
    with pytest.raises(TencentCloudSDKException) as raised:
        client("wrong").PullSmsSendStatus(request)
    assert raised.value.code == "AuthFailure.SignatureFailure"


def test_each_code_of_the_service_is_spelt_as_the_sdk_spells_it() -> None:
    known = {value for name, value in vars(errorcodes).items() if name.isupper()}
    of_the_gateway = ("AuthFailure.", "RequestLimitExceeded.")
    misspelt = {  # as older documents have them
        "UnauthorizedOperation.SerivceSuspendDueToArrears",
        "UnsupportedOperation.UnsuportedRegion",
        "UnsupportedOperation.",
    }
    ours = {row.code for row in TencentSms.errors if "." in row.code} - misspelt
    assert {code for code in ours if not code.startswith(of_the_gateway)} <= known
