"""Alibaba Cloud's own SDK (`alibabacloud-dysmsapi20170525` 4.6, with `alibabacloud-tea-openapi`) judges our
SMS calls.

Its signer signs the requests that our adapter made. Its client sends, asks after a message and is refused
at our simulator, and its requests are those of our adapter: address, query, form and operation.

The SDK takes a second to import, so a fixture of this module does it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Resolution
from channels.providers.aliyun_sms.adapter import AliyunSms
from channels.registry import load_accounts
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted
from simulator import Faults, Lists, Simulator
from tests.channels.providers.sms_calls import KEY, delivery
from tests.conformance.samples.aliyun_sms import ACCOUNT
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

NOW_S = 1_790_000_000.0
SECRET = "a secret"
ALGORITHM = "ACS3-HMAC-SHA256"
SERVICE = "https://dysmsapi.aliyuncs.com"
PROVIDER = f"{SERVICE}/aliyun_sms/"
"""The address with our simulator's path: the signature covers the path."""
NUMBERS = ("13800000001", "13800000002")
SIGNS = "A&B =+%~*'()!/ 杭州\u3000é"


class Sdk(NamedTuple):
    """The SDK's modules, and how a client of it is made."""

    models: Any
    client: Callable[..., Any]
    signer: Any
    refused: type[Exception]


@pytest.fixture(scope="module")
def sdk() -> Sdk:
    openapi = import_module("alibabacloud_tea_openapi")
    service = import_module("alibabacloud_dysmsapi20170525.client").Client

    class AtOurPath(service):  # type: ignore[misc, valid-type]  # imported late
        """Its requests have, and it signs, the path of our simulator."""

        def call_api(self, params: Any, *rest: Any) -> Any:
            params.pathname = "/aliyun_sms/"
            return super().call_api(params, *rest)

    def client(secret: str = ACCOUNT["access_key_secret"]) -> Any:
        key_id = ACCOUNT["access_key_id"]
        config = openapi.utils_models.Config(access_key_id=key_id, access_key_secret=secret)
        config.region_id = "cn-hangzhou"
        return AtOurPath(config)

    return Sdk(
        models=import_module("alibabacloud_dysmsapi20170525.models"),
        client=client,
        signer=import_module("alibabacloud_tea_openapi.utils").Utils,
        refused=import_module("darabonba.exceptions").DaraException,
    )


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("aliyun"), fsync=False) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the SDK's requests."""
    simulator.control(rules=[], lists=Lists(lag_ms=0))
    with led({PROVIDER: f"{simulator.url}/aliyun_sms/"}) as kept:
        yield kept


def account(**changes: Any) -> Account:
    table = {**ACCOUNT, "provider": "aliyun_sms", "endpoint": PROVIDER, **changes}
    return load_accounts({"main": table})["main"]


def deliveries(*params: Mapping[str, str]) -> list[Delivery]:
    return [
        delivery(f"+86{number}", template=Template("SMS_1", dict(one)))
        for number, one in zip(NUMBERS, params, strict=False)
    ]


def ours(*params: Mapping[str, str]) -> httpx.Request:
    """Returns our adapter's request of a call."""
    adapter = AliyunSms(clock=lambda: NOW_S, nonce=lambda: "0123abcd")
    return adapter.request(Call(account(access_key_secret=SECRET), deliveries(*params)))


def compared(mine: httpx.Request, its: Made) -> None:
    """Asserts that both are the same, but for time, nonce and signature."""
    made = of_httpx(mine)
    assert made.named == its.named
    assert form(made) == form(its)
    for name in ("Host", "x-acs-action", "x-acs-version"):
        assert made.fields[name] == its.fields[name]
    assert made.fields.get("content-type") == its.fields.get("content-type")
    for one in (made, its):
        assert one.fields["x-acs-content-sha256"] == sha256(one.body).hexdigest()


def form(made: Made) -> dict[str, Any]:
    """The form's fields, which hold JSON."""
    return {name: json.loads(text) for name, text in parse_qsl(made.body.decode())}


def written(value: Any) -> str:
    """JSON without blanks."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def judged(sdk: Sdk, request: httpx.Request, secret: str = SECRET) -> str:
    """The Authorization that the SDK's signer makes of this request."""
    told = import_module("darabonba.request").DaraRequest()
    told.method, told.pathname = request.method, request.url.path
    told.query = dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
    told.headers = {
        name: value
        for name, value in request.headers.items()
        if name in ("host", "content-type") or name.startswith("x-acs-")
    }
    digest = sha256(request.read()).hexdigest()
    key_id = ACCOUNT["access_key_id"]
    return str(sdk.signer.get_authorization(told, ALGORITHM, digest, key_id, secret))


def test_our_default_endpoint_is_the_sdks(sdk: Sdk) -> None:
    assert f"https://{sdk.client()._endpoint}" == AliyunSms.endpoint == SERVICE


@pytest.mark.parametrize(
    "params",
    [
        [{"code": "4711"}],
        [{"name": SIGNS}],
        [{"code": "1"}, {"code": SIGNS}],
    ],
    ids=["one text", "signs", "a batch with a body"],
)
def test_the_signer_signs_our_requests_as_we_do(sdk: Sdk, params: list[dict[str, str]]) -> None:
    request = ours(*params)
    assert request.headers["authorization"] == judged(sdk, request)
    assert request.headers["authorization"] != judged(sdk, request, "another secret")


@pytest.mark.parametrize("params", [{"code": "4711"}, {"name": SIGNS}, {}])
def test_what_the_sdk_sends_the_simulator_takes_and_our_adapter_sends_the_same(
    sdk: Sdk, theirs: list[Made], params: dict[str, str]
) -> None:
    request = sdk.models.SendSmsRequest(
        phone_numbers=",".join(NUMBERS),
        sign_name=ACCOUNT["sign_name"],
        template_code="SMS_1",
        template_param=written(params) if params else None,
        out_id=KEY,
    )
    answer = sdk.client().send_sms(request).body
    assert (answer.code, answer.biz_id.endswith("^0")) == ("OK", True)
    (its,) = theirs
    compared(ours(params, params), its)
    call = Call(account(), deliveries(params, params))
    assert AliyunSms().outcomes(call, its.answer) == [Accepted(answer.biz_id)] * 2


def test_what_the_sdk_sends_in_a_batch_the_simulator_takes_and_our_adapter_sends_the_same(
    sdk: Sdk, theirs: list[Made]
) -> None:
    params = [{"code": "1"}, {"code": SIGNS}]
    request = sdk.models.SendBatchSmsRequest(
        phone_number_json=written(NUMBERS),
        sign_name_json=written([ACCOUNT["sign_name"]] * 2),
        template_code="SMS_1",
        template_param_json=written(params),
        out_id=KEY,
    )
    answer = sdk.client().send_batch_sms(request).body
    assert answer.code == "OK"
    (its,) = theirs
    compared(ours(*params), its)


def test_the_sdk_reads_the_row_that_proves_a_send_to_our_adapter(
    sdk: Sdk, theirs: list[Made]
) -> None:
    number = "13800000009"
    sent = sdk.models.SendSmsRequest(
        phone_numbers=number, sign_name="鸿雁", template_code="SMS_1", out_id=KEY
    )
    assert sdk.client().send_sms(sent).body.code == "OK"
    # At noon of the provider's day, UTC+8: next to midnight the first question is about the day before.
    noon = datetime.now(timezone(timedelta(hours=8))).replace(hour=12, minute=0)
    now_ms = int(noon.timestamp() * 1_000)
    one = delivery(f"+86{number}", template=Template("SMS_1", {}))
    attempt = Attempt(one, called_at=now_ms, now=now_ms + 5_000)
    dialogue = AliyunSms(clock=lambda: now_ms / 1_000).resolve(account(), attempt)
    question = next(dialogue)
    fields = of_httpx(question).query
    asked = sdk.models.QuerySendDetailsRequest(
        phone_number=fields["PhoneNumber"],
        send_date=fields["SendDate"],
        page_size=int(fields["PageSize"]),
        current_page=int(fields["CurrentPage"]),
    )
    details = sdk.client().query_send_details(asked).body
    compared(question, theirs[-1])
    (row,) = details.sms_send_detail_dtos.sms_send_detail_dto
    assert (row.out_id, row.phone_num, row.send_status) == (KEY, number, 3)
    with pytest.raises(StopIteration) as ended:
        dialogue.send(theirs[-1].answer)
    assert ended.value.value.resolution is Resolution.SENT


def test_every_code_of_ours_is_read_by_the_sdk_as_by_us(
    sdk: Sdk, theirs: list[Made], simulator: Simulator
) -> None:
    call = Call(account(), deliveries({"code": "1"}))
    request = sdk.models.SendSmsRequest(
        phone_numbers=NUMBERS[0], sign_name="鸿雁", template_code="SMS_1", out_id=KEY
    )
    for row in AliyunSms.errors:
        code = row.code.removesuffix("*")
        simulator.control(rules=[Faults(codes={code: 1.0})])
        try:
            found = sdk.client().send_sms(request).body.code
        except sdk.refused as exc:
            found = str(vars(exc)["code"])
        assert found == code
        (outcome,) = AliyunSms().outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert outcome.code == code


def test_the_simulator_refuses_the_sdk_with_a_wrong_key(sdk: Sdk, theirs: list[Made]) -> None:
    request = sdk.models.SendSmsRequest(
        phone_numbers=NUMBERS[0], sign_name="鸿雁", template_code="SMS_1"
    )
    with pytest.raises(sdk.refused) as refused:
        sdk.client("wrong").send_sms(request)
    assert vars(refused.value)["code"] == "SignatureDoesNotMatch"
