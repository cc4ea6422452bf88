"""Tencent Cloud SMS: literal requests out, literal answers in; then over sockets against the simulator."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Call, Resolution
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.judging.error_table import MINUTE
from channels.providers.tencent_sms.adapter import TencentSms
from channels.providers.tencent_sms.signature import authorization
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import ECHOING, Faults, Lists, Simulator
from tests.channels.providers.sms_calls import (
    AT_MS,
    KEY,
    LOST,
    REFUSED,
    account_of,
    altered,
    attempt_of,
    delivery,
    held,
    outcome,
)
from tests.conformance.samples.tencent_sms import ACCOUNT, PATH
from tests.harness.simulators import spawn

CHANNEL = TencentSms(clock=lambda: AT_MS / 1_000)
MAIN = account_of(ACCOUNT)
CODE = Template("1110", {"2": 5, "1": "4711"})


def one(receiver: str = "+8613800000001", **fields: object) -> Delivery:
    return delivery(receiver, **{"template": CODE, **fields})  # type: ignore[arg-type]


def answered(**content: object) -> httpx.Response:
    return httpx.Response(200, json={"Response": {**content, "RequestId": "r"}})


def refusing(code: str, message: str = "") -> httpx.Response:
    return answered(Error={"Code": code, "Message": message})


def status(number: str, code: str = "Ok", serial: str = "") -> dict[str, Any]:
    return {"PhoneNumber": number, "Code": code, "Message": "said", "SerialNo": serial, "Fee": 1}


def statuses(*given: dict[str, Any]) -> httpx.Response:
    return answered(SendStatusSet=list(given))


def reports(*given: dict[str, Any]) -> httpx.Response:
    return answered(PullSmsSendStatusSet=list(given))


OURS = {"PhoneNumber": "+8613800000001", "SessionContext": KEY, "SerialNo": "5000:1"}
OTHERS = {"PhoneNumber": "+8613800000001", "SessionContext": "another", "SerialNo": "5000:2"}
OF_ANOTHER_NUMBER = {**OURS, "PhoneNumber": "+8613900000002"}


def test_the_signature_is_the_published_one() -> None:
    """The example of https://cloud.tencent.com/document/product/213/30654 (DescribeInstances), in
    English https://www.tencentcloud.com/document/api/215/38340."""
    body = (
        rb'{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}'
    )
    assert authorization(
        secret_id="AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE",
        secret="Gu5t9xGARNpq86cd98joQYCN3EXAMPLE",
        service="cvm",
        host="cvm.tencentcloudapi.com",
        path="/",
        body=body,
        now_s=1_551_113_065,
    ) == (
        "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE/2019-02-25/cvm/tc3_request, "
        "SignedHeaders=content-type;host, "
        "Signature=72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"
    )


def test_the_request_carries_numbers_places_and_the_calls_key() -> None:
    request = CHANNEL.request(Call(MAIN, (one(), one("+8613900000002"))))
    assert (request.method, str(request.url)) == ("POST", "https://sms.tencentcloudapi.com/")
    assert request.read().decode() == (
        '{"PhoneNumberSet":["+8613800000001","+8613900000002"],"SmsSdkAppId":"1400006666",'
        '"TemplateId":"1110","TemplateParamSet":["4711","5"],'
        f'"SessionContext":"{KEY}","SignName":"鸿雁"}}'
    )
    assert {name: request.headers[name] for name in request.headers if name.startswith("x-tc")} == {
        "x-tc-action": "SendSms",
        "x-tc-version": "2021-01-11",
        "x-tc-region": "ap-guangzhou",
        "x-tc-timestamp": "1790000000",
    }
    assert request.headers["content-type"] == "application/json; charset=utf-8"
    assert request.headers["authorization"].startswith(
        "TC3-HMAC-SHA256 Credential=simulator-id/2026-09-21/sms/tc3_request, "
    )


def test_ten_places_stand_in_their_order() -> None:
    params = {str(place): f"p{place}" for place in range(10, 0, -1)}
    given = one(template=Template("1", params))
    assert CHANNEL.refusal(MAIN, given) == ""
    body = json.loads(CHANNEL.request(Call(MAIN, (given,))).read())
    assert body["TemplateParamSet"] == [f"p{place}" for place in range(1, 11)]


def test_the_accounts_mainland_signature_is_not_sent_abroad() -> None:
    account = account_of({**ACCOUNT, "sign_name": "鸿雁"})

    def sent(receiver: str, **attributes: str) -> dict[str, object]:
        made = one(receiver, **attributes)
        body: dict[str, object] = json.loads(CHANNEL.request(Call(account, (made,))).read())
        return body

    assert sent("+8613800000001")["SignName"] == "鸿雁"
    assert "SignName" not in sent("+85251234567")
    assert sent("+85251234567", sign_name="Goose")["SignName"] == "Goose"


def test_abroad_a_sender_may_stand_in_the_signatures_place() -> None:
    account = account_of({**ACCOUNT, "sign_name": ""}, sender_id="GOOSE")
    abroad = json.loads(CHANNEL.request(Call(account, (one("+85251234567"),))).read())
    assert (abroad["SenderId"], "SignName" in abroad) == ("GOOSE", False)
    home = json.loads(CHANNEL.request(Call(account, (one(sign_name="别的"),))).read())
    assert (home["SignName"], "SenderId" in home) == ("别的", False)


def test_a_path_of_the_endpoint_stays_in_front() -> None:
    account = account_of(ACCOUNT, "https://proxy.example/sms", ca_file="/etc/ca.pem")
    request = CHANNEL.request(Call(account, (one(),)))
    assert request.url.raw_path == b"/sms/"
    assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_no_secret_is_shown() -> None:
    request = CHANNEL.request(Call(MAIN, (one(),)))
    shown = f"{MAIN!r} {request.url} {request.headers.raw!r} {request.read()!r}"
    assert "simulator-secret" not in shown


def test_what_may_share_a_call() -> None:
    def key(given: Delivery) -> object:
        return CHANNEL.batch_key(given)

    assert key(one()) == key(one("+8613900000002", message_id="m-2"))
    assert key(one()) != key(one("+85251234567"))
    assert key(one()) != key(one(template=Template("1110", {"1": "1", "2": 5})))
    assert key(one()) != key(altered(one(), attributes={"sign_name": "别的"}))
    assert key(one(attempt=2)) != key(one("+8613900000002", attempt=2))
    assert CHANNEL.batch_limit(one()) == 200


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (one(), ""),
        (one("+85251234567"), ""),
        (one("+8612345"), "bad_number"),
        (delivery(content={"text": "你好"}), "no_template"),
        (one(template=Template("1", {})), ""),
        (one(template=Template("1", {"code": "1"})), "bad_params"),
        (one(template=Template("1", {"2": "1"})), "bad_params"),
        (one(template=Template("1", {"1": None})), "bad_params"),
        (one(sign_name=""), "no_sign_name"),
        (one("+85251234567", sign_name=""), ""),
    ],
)
def test_what_can_never_be_sent_is_said_before(given: Delivery, code: str) -> None:
    assert CHANNEL.refusal(MAIN, given).partition(":")[0] == code


NUMBERS = ["+8613800000001", "+8613900000002", "+8613700000003", "+8613600000004"]
BATCH = Call(MAIN, [one(number) for number in NUMBERS])
MIXED = [
    status(NUMBERS[0], serial="5000:1"),
    status(NUMBERS[1], "LimitExceeded.PhoneNumberThirtySecondLimit"),
    status(NUMBERS[2], "FailedOperation.PhoneNumberInBlacklist"),
    status(NUMBERS[3], "InternalError.Timeout"),
]
EACH = [
    Accepted("5000:1"),
    NotSent(
        "LimitExceeded.PhoneNumberThirtySecondLimit", "said", MINUTE // 2, limit=Limit.RECEIVER
    ),
    Rejected("FailedOperation.PhoneNumberInBlacklist", "said"),
    Unknown("InternalError.Timeout", "said"),
]


def test_each_number_of_a_call_has_its_own_outcome() -> None:
    assert CHANNEL.outcomes(BATCH, statuses(*MIXED)) == EACH


def test_statuses_in_another_order_are_told_by_their_number() -> None:
    assert CHANNEL.outcomes(BATCH, statuses(*reversed(MIXED))) == EACH


def test_a_number_that_the_answer_leaves_out_is_in_doubt() -> None:
    found = CHANNEL.outcomes(BATCH, statuses(*MIXED[:3]))
    assert found[:3] == EACH[:3]
    assert isinstance(found[3], Unknown)


def test_one_number_twice_in_a_call_is_told_by_its_place() -> None:
    twice = Call(MAIN, (one(), one(message_id="m-2")))
    answer = statuses(status(NUMBERS[0], serial="5000:1"), status(NUMBERS[0], "FailedOperation"))
    assert CHANNEL.outcomes(twice, answer) == [
        Accepted("5000:1"),
        Unknown("FailedOperation", "said"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "InvalidParameterValue.IncorrectPhoneNumber",
        "FailedOperation.PhoneNumberParseFail",
        "UnsupportedOperation.UnsupportedRegion",
        "UnsupportedOperation.UnsuportedRegion",
        "LimitExceeded.AppCountryOrRegionInBlacklist",
    ],
)
def test_one_bad_number_does_not_condemn_the_others_if_ever_it_refuses_a_call(code: str) -> None:
    for found in CHANNEL.outcomes(BATCH, refusing(code)):
        assert isinstance(found, NotSent)
        assert found.joint
    assert isinstance(outcome(CHANNEL, MAIN, one(), refusing(code)), Rejected)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, Unknown),
        (REFUSED, NotSent),
        (refusing("FailedOperation.NeverHeardOf"), Unknown),
        (answered(), Unknown),
        (statuses(), Unknown),
        (httpx.Response(200, content=b"<html>"), Unknown),
        (httpx.Response(200, content=b'{"Response":[]}'), Unknown),
        (httpx.Response(200, content=b"\xff"), Unknown),
        (httpx.Response(500, content=statuses(status(NUMBERS[0])).content), Unknown),
        (httpx.Response(504, content=b""), Unknown),
        (httpx.Response(429, content=b""), NotSent),
    ],
)
def test_other_answers_are_judged_by_what_is_known(
    answer: httpx.Response, kind: type[AnyOutcome]
) -> None:
    assert type(outcome(CHANNEL, MAIN, one(), answer)) is kind


def test_an_attempt_in_doubt_is_asked_for_by_number_and_time() -> None:
    dialogue = CHANNEL.resolve(MAIN, attempt_of(one()))
    asked, found = held(dialogue, reports(OF_ANOTHER_NUMBER, OTHERS, OURS))
    assert (found.resolution, found.provider_id) == (Resolution.SENT, "5000:1")
    (request,) = asked
    assert request.headers["x-tc-action"] == "PullSmsSendStatusByPhoneNumber"
    assert json.loads(request.read()) == {
        "BeginTime": 1_789_999_400,
        "EndTime": 1_790_004_200,
        "Offset": 0,
        "Limit": 100,
        "PhoneNumber": "+8613800000001",
        "SmsSdkAppId": "1400006666",
    }


def test_without_a_report_nothing_is_believed_for_three_days() -> None:
    patient = account_of({name: ACCOUNT[name] for name in ACCOUNT if name != "query_lag_s"})
    for age_s, expected in (
        (72 * 3_600 - 1, Resolution.ASK_LATER),
        (72 * 3_600, Resolution.NOT_SENT),
    ):
        dialogue = CHANNEL.resolve(patient, attempt_of(one(), age_s))
        _, found = held(dialogue, reports(OTHERS))
        assert found.resolution is expected


@pytest.mark.parametrize(
    "row",
    [
        {**OURS, "SessionContext": ""},
        {**OURS, "SessionContext": None},
        {name: value for name, value in OURS.items() if name != "SessionContext"},
        OF_ANOTHER_NUMBER,
    ],
    ids=["empty", "null", "missing", "another number"],
)
def test_a_report_that_may_be_ours_is_neither_sent_nor_not_sent(row: dict[str, Any]) -> None:
    """By default Tencent returns no SessionContext."""
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), reports(OTHERS, row))
    assert found.resolution is Resolution.ASK_LATER


def test_a_full_answer_without_ours_proves_nothing() -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), reports(*[OTHERS] * 100))
    assert found.resolution is Resolution.ASK_LATER


def test_nothing_is_asked_past_the_querys_reach() -> None:
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one(), 7 * 86_400)))
    assert (asked, found.resolution) == ([], Resolution.ASK_LATER)


@pytest.mark.parametrize(
    "answer",
    [
        LOST,
        REFUSED,
        refusing("RequestLimitExceeded"),
        answered(),
        httpx.Response(200, content=b"?"),
    ],
)
def test_a_query_that_fails_says_nothing(answer: httpx.Response) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), answer)
    assert found.resolution is Resolution.ASK_LATER


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, lists=ECHOING) as simulator:
        yield simulator


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport()
    yield transport
    transport.close()


@pytest.fixture
def engine(transport: Transport) -> Engine:
    return Engine(transport)


LIVE = TencentSms()


def send(engine: Engine, account: Account, *deliveries: Delivery) -> list[AnyOutcome]:
    return engine.send(LIVE, Call(account, deliveries), 5.0)


def test_over_sockets_200_numbers_are_accepted_each_under_its_own_serial(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH + "/tenant")
    many = [one(f"+86138{number:08d}") for number in range(200)]
    found = send(engine, account, *many)
    accepted = [record for record in provider.records() if record.accepted]
    assert found == [Accepted(record.provider_id) for record in accepted]
    assert [record.receiver for record in accepted] == [given.receiver for given in many]
    assert len(set(found)) == 200


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([f"+86138{number:08d}" for number in range(201)], "LimitExceeded.PhoneNumberCountLimit"),
        (
            ["+8613800000001", "+85251234567"],
            "UnsupportedOperation.ContainDomesticAndInternationalPhoneNumber",
        ),
    ],
    ids=["too many", "mixed"],
)
def test_over_sockets_calls_that_may_not_be_are_refused(
    provider: Simulator, engine: Engine, numbers: list[str], code: str
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    found = set(send(engine, account, *map(one, numbers)))
    assert found == {Rejected(code, f"simulated: {code}")}
    assert list(provider.records()) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"secret_key": "wrong"}, "AuthFailure.SignatureFailure"),
        ({"secret_id": "wrong"}, "AuthFailure.SecretIdNotFound"),
        ({"sdk_app_id": "1"}, "UnauthorizedOperation.SmsSdkAppIdVerifyFail"),
    ],
)
def test_over_sockets_a_wrong_key_halts_the_account(
    provider: Simulator, engine: Engine, changes: dict[str, str], code: str
) -> None:
    account = account_of({**ACCOUNT, **changes}, provider.url + PATH)
    (found,) = send(engine, account, one())
    assert isinstance(found, NotSent)
    assert (found.code, found.account) == (code, True)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("", "", "AuthFailure.SignatureFailure"),
        ("host", "other", "AuthFailure.SignatureFailure"),
        ("content-type", "application/json", "AuthFailure.SignatureFailure"),
        ("x-tc-timestamp", "1", "AuthFailure.SignatureExpire"),
        ("x-tc-version", "2019-07-11", "NoSuchVersion"),
        ("x-tc-action", "SendMms", "InvalidAction"),
        ("x-tc-region", "", "MissingParameter"),
        ("authorization", "TC3", "AuthFailure.InvalidAuthorization"),
    ],
)
def test_over_sockets_no_byte_of_a_signed_call_may_change(
    provider: Simulator, transport: Transport, name: str, value: str, code: str
) -> None:
    request = LIVE.request(Call(account_of(ACCOUNT, provider.url + PATH), (one(),)))
    fields, body = request.headers, request.read()
    if name:
        fields[name] = value
    else:
        body = body.replace(b"4711", b"4712")
    answer = transport.send(httpx.Request("POST", request.url, headers=fields, content=body))
    assert isinstance(answer, httpx.Response)
    assert answer.json()["Response"]["Error"]["Code"] == code
    assert list(provider.records()) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"PhoneNumberSet": []}, "MissingParameter.EmptyPhoneNumberSet"),
        ({"PhoneNumberSet": ["13800000001"]}, "InvalidParameterValue.IncorrectPhoneNumber"),
        ({"TemplateId": "SMS_1"}, "FailedOperation.TemplateIncorrectOrUnapproved"),
        ({"SignName": ""}, "FailedOperation.SignatureIncorrectOrUnapproved"),
        ({"TemplateParamSet": [4711]}, "InvalidParameter"),
        ({"TemplateParamSet": {"1": "4711"}}, "InvalidParameter"),
        ({"SessionContext": "x" * 512}, "InvalidParameterValue"),
        ({"Surprise": "x"}, "UnknownParameter"),
    ],
)
def test_over_sockets_the_simulator_wants_what_the_provider_wants(
    provider: Simulator, transport: Transport, changes: dict[str, Any], code: str
) -> None:
    request = LIVE.request(Call(account_of(ACCOUNT, provider.url + PATH), (one(),)))
    body = json.dumps({**json.loads(request.read()), **changes}).encode()
    fields, now_s = request.headers, int(request.headers["x-tc-timestamp"])
    fields["authorization"] = authorization(
        secret_id="simulator-id",
        secret="simulator-secret",
        service="sms",
        host=fields["host"],
        path=f"{PATH}/",
        body=body,
        now_s=now_s,
    )
    answer = transport.send(httpx.Request("POST", request.url, headers=fields, content=body))
    assert isinstance(answer, httpx.Response)
    assert answer.json()["Response"]["Error"]["Code"] == code


def test_over_sockets_a_clock_that_is_off_is_told(provider: Simulator, engine: Engine) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    (found,) = engine.send(CHANNEL, Call(account, (one(),)), 5.0)
    assert isinstance(found, NotSent)
    assert found.code == "AuthFailure.SignatureExpire"


def test_over_sockets_one_bad_number_of_a_call_hides_no_other_and_is_not_resent_with_them(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    code = "FailedOperation.PhoneNumberInBlacklist"
    provider.control(rules=[Faults(receiver=NUMBERS[1], receiver_codes={code: 1})])
    found = send(engine, account, *map(one, NUMBERS))
    assert [type(given) for given in found] == [Accepted, Rejected, Accepted, Accepted]
    accepted = [record.receiver for record in provider.records() if record.accepted]
    assert accepted == [NUMBERS[0], *NUMBERS[2:]]


def test_over_sockets_what_was_accepted_then_reset_is_found_number_by_number(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(reset=1, receiver_codes={"InternalError.Timeout": 0})])
    assert all(isinstance(found, Unknown) for found in send(engine, account, *map(one, NUMBERS)))
    for record in list(provider.records()):
        attempt = attempt_of(one(record.receiver), called_at=record.at_ms)
        found = engine.resolve(LIVE, account, attempt, 5.0)
        assert found is not None
        assert (found.resolution, found.provider_id) == (Resolution.SENT, record.provider_id)


def test_over_sockets_a_context_that_was_not_switched_on_proves_nothing(
    provider: Simulator, engine: Engine
) -> None:
    """As it is by default: however old the call, a report of the number may be its own."""
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(reset=1)], lists=Lists(lag_ms=0))
    assert isinstance(send(engine, account, one())[0], Unknown)
    (record,) = provider.records()
    attempt = attempt_of(one(), age_s=4 * 86_400, called_at=record.at_ms)
    for lists, expected in ((Lists(lag_ms=0), Resolution.ASK_LATER), (ECHOING, Resolution.SENT)):
        provider.control(lists=lists)
        found = engine.resolve(LIVE, account, attempt, 5.0)
        assert found is not None
        assert found.resolution is expected


def test_over_sockets_what_was_dropped_is_found_missing(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(drop=1)])
    assert isinstance(send(engine, account, one())[0], Unknown)
    (record,) = provider.records()
    found = engine.resolve(LIVE, account, attempt_of(one(), called_at=record.at_ms), 5.0)
    assert found is not None
    assert found.resolution is Resolution.NOT_SENT


def test_over_sockets_the_queue_gives_each_report_out_once(
    provider: Simulator, engine: Engine, transport: Transport
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    send(engine, account, *map(one, NUMBERS))

    def pulled() -> list[str]:
        answer = transport.send(LIVE.pull(account, limit=3))
        assert isinstance(answer, httpx.Response)
        given = answer.json()["Response"]["PullSmsSendStatusSet"]
        assert {report["SessionContext"] for report in given} <= {KEY}
        return [report["PhoneNumber"] for report in given]

    assert [pulled(), pulled(), pulled()] == [NUMBERS[:3], NUMBERS[3:], []]
