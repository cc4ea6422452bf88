"""Aliyun SMS: literal requests out, literal answers in; then over sockets against the simulator."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import parse_qs, parse_qsl

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Resolution
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.judging.error_table import HOUR, MINUTE
from channels.providers.aliyun_sms.adapter import AliyunSms
from channels.providers.aliyun_sms.errors import ABOUT_ALL, ABOUT_ONE, TABLE
from channels.providers.aliyun_sms.signature import signature
from channels.providers.aliyun_sms.wire import AliyunPrepared
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
from tests.conformance.samples.aliyun_sms import ACCOUNT, PATH
from tests.harness.simulators import spawn

CHANNEL = AliyunSms(clock=lambda: AT_MS / 1_000, nonce=lambda: "nonce-1")
MAIN = account_of(ACCOUNT)
SLOW = account_of(ACCOUNT, query_lag_s=120)
CODE = Template("SMS_154950909", {"code": "4711"})
EMPTY_DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def one(receiver: str = "+8613800000001", **fields: object) -> Delivery:
    return delivery(receiver, **{"template": CODE, **fields})  # type: ignore[arg-type]


def several(*deliveries: Delivery) -> Call:
    return Call(MAIN, deliveries)


def ok(**content: object) -> httpx.Response:
    return httpx.Response(200, json={"Code": "OK", "Message": "OK", **content})


def refusing(code: str, message: str = "", status: int = 200) -> httpx.Response:
    return httpx.Response(status, json={"Code": code, "Message": message, "RequestId": "r"})


def listed(*rows: dict[str, str], of: int | None = None) -> httpx.Response:
    """A page of a list that counts so many rows in all."""
    total = len(rows) if of is None else of
    return ok(TotalCount=str(total), SmsSendDetailDTOs={"SmsSendDetailDTO": list(rows)})


class Replies:
    """A transport that gets one answer to everything."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer

    def send(self, _: httpx.Request) -> httpx.Response:
        return self.answer


OURS = {"PhoneNum": "13800000001", "OutId": KEY, "SendStatus": "3"}
OTHERS = {"PhoneNum": "13800000001", "OutId": "another", "SendStatus": "3"}


def test_the_signature_is_the_published_one() -> None:
    """The example of https://help.aliyun.com/zh/sdk/product-overview/v3-request-structure-and-signature
    (fixed parameters; RunInstances)."""
    names, made = signature(
        "YourAccessKeySecret",
        "POST",
        "/",
        "ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai",
        [
            ("host", "ecs.cn-shanghai.aliyuncs.com"),
            ("x-acs-action", "RunInstances"),
            ("x-acs-content-sha256", EMPTY_DIGEST),
            ("x-acs-date", "2023-10-26T10:22:32Z"),
            ("x-acs-signature-nonce", "3156853299f313e23d1673dc12e1703d"),
            ("x-acs-version", "2014-05-26"),
        ],
        EMPTY_DIGEST,
    )
    assert names == (
        "host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version"
    )
    assert made == "06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0"


def test_one_text_goes_in_the_query_under_the_calls_key() -> None:
    request = CHANNEL.request(several(one(), one("+8613900000002")))
    assert request.method == "POST"
    assert request.url.host == "dysmsapi.aliyuncs.com"
    assert request.url.raw_path == (
        b"/?OutId=0123456789abcdef0123456789abcdef&PhoneNumbers=13800000001%2C13900000002"
        b"&SignName=%E9%B8%BF%E9%9B%81&TemplateCode=SMS_154950909"
        b"&TemplateParam=%7B%22code%22%3A%224711%22%7D"
    )
    assert request.read() == b""
    assert request.headers["host"] == "dysmsapi.aliyuncs.com"
    assert request.headers["x-acs-action"] == "SendSms"
    assert request.headers["x-acs-version"] == "2017-05-25"
    assert request.headers["x-acs-date"] == "2026-09-21T14:13:20Z"
    assert request.headers["x-acs-content-sha256"] == EMPTY_DIGEST


def test_verification_codes_are_never_joined() -> None:
    codes = [altered(one(f"+861380000000{n}"), kind="verification") for n in range(3)]
    assert len({CHANNEL.batch_key(code) for code in codes}) == 3
    assert {CHANNEL.batch_limit(code) for code in codes} == {1}


def test_texts_of_their_own_go_as_a_batch() -> None:
    other = one("+8613900000002", template=Template(CODE.id, {"code": 815}), sign_name="别的")
    request = CHANNEL.request(several(one(), other))
    assert request.headers["x-acs-action"] == "SendBatchSms"
    assert parse_qs(request.url.query.decode()) == {"OutId": [KEY], "TemplateCode": [CODE.id]}
    assert dict(parse_qsl(request.read().decode())) == {
        "PhoneNumberJson": '["13800000001","13900000002"]',
        "SignNameJson": '["鸿雁","别的"]',
        "TemplateParamJson": '[{"code":"4711"},{"code":"815"}]',
    }
    assert "content-type;host;" in request.headers["authorization"]


def test_numbers_abroad_go_without_their_plus() -> None:
    request = CHANNEL.request(several(one("+85251234567")))
    assert b"PhoneNumbers=85251234567&" in request.url.raw_path


def test_a_template_without_parameters_sends_none() -> None:
    request = CHANNEL.request(several(one(template=Template("SMS_1", {}))))
    assert b"TemplateParam" not in request.url.raw_path


def test_a_path_of_the_endpoint_stays_in_front_and_is_signed() -> None:
    for endpoint in ("https://proxy.example/sms", "https://proxy.example/sms/"):
        account = account_of(ACCOUNT, endpoint, ca_file="/etc/ca.pem")
        request = CHANNEL.request(Call(account, (one(),)))
        assert request.url.raw_path.startswith(b"/sms/?OutId=")
        assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_no_secret_is_shown() -> None:
    request = CHANNEL.request(several(one()))
    shown = f"{MAIN!r} {request.url} {request.headers.raw!r}"
    assert "simulator-secret" not in shown


def test_what_may_share_a_call() -> None:
    def key(given: Delivery) -> object:
        return CHANNEL.batch_key(given)

    single, other = one(), one("+8613900000002", template=Template(CODE.id, {"code": "1"}))
    assert key(single) == key(other)
    assert CHANNEL.batch_limit(single) == CHANNEL.max_batch == 100
    assert key(single) != key(one("+85251234567"))
    assert key(single) != key(one(template=Template("SMS_2", {"code": "4711"})))
    to_many = one(others=["+8613900000002"])
    assert CHANNEL.batch_limit(to_many) == 1_000
    assert key(to_many) == key(one("+8613900000009", others=["+8613900000003"]))
    assert key(to_many) != key(altered(to_many, template=Template(CODE.id, {"code": "1"})))
    assert key(to_many) != key(altered(to_many, attributes={"sign_name": "别的"}))


def test_a_delivery_that_comes_back_goes_alone() -> None:
    again = [one(attempt=2), one("+8613900000002", attempt=2)]
    assert len({CHANNEL.batch_key(given) for given in again}) == 2


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (one(), ""),
        (one("+85251234567"), ""),
        (one("+8612345"), "bad_number"),
        (one("+861080000000"), "bad_number"),
        (one("13800000001"), "bad_number"),
        (one("+999123"), "bad_number"),
        (one("+12025550123"), ""),
        (one("+13125550123"), "ambiguous_number"),
        (one("+19175550123"), "ambiguous_number"),
        (delivery(content={"text": "你好"}), "no_template"),
        (one(template=Template("SMS_1", {"code": ["a"]})), "bad_params"),
        (one(template=Template("SMS_1", {"code": True})), "bad_params"),
        (one(sign_name=7), "no_sign_name"),
    ],
)
def test_what_can_never_be_sent_is_said_before(given: Delivery, code: str) -> None:
    assert CHANNEL.refusal(MAIN, given).partition(":")[0] == code


def test_an_account_without_a_signature_needs_one_from_the_notification() -> None:
    bare = account_of({**ACCOUNT, "sign_name": ""})
    assert CHANNEL.refusal(bare, one()).startswith("no_sign_name: ")
    assert CHANNEL.refusal(bare, one(sign_name="鸿雁")) == ""


def test_ok_is_accepted_for_every_number_under_the_calls_biz_id() -> None:
    answer = ok(BizId="9006197469364984^0")
    assert (
        CHANNEL.outcomes(several(one(), one("+8613900000002")), answer)
        == [Accepted("9006197469364984^0")] * 2
    )


@pytest.mark.parametrize(
    ("message", "delay_ms"),
    [
        ("触发分钟级流控Permits:1", MINUTE),
        ("触发小时级流控Permits:5", HOUR),
        ("触发天级流控Permits:10", 24 * HOUR),
    ],
)
def test_a_number_that_had_too_many_waits_as_long_as_the_message_says(
    message: str, delay_ms: int
) -> None:
    found = outcome(CHANNEL, MAIN, one(), refusing("isv.BUSINESS_LIMIT_CONTROL", message))
    limit = Limit.RECEIVER
    assert found == NotSent("isv.BUSINESS_LIMIT_CONTROL", message, delay_ms, limit=limit)


@pytest.mark.parametrize("code", sorted(ABOUT_ONE))
def test_one_bad_number_does_not_condemn_the_others(code: str) -> None:
    call = several(one(), one("+8613900000002"))
    for found in CHANNEL.outcomes(call, refusing(code)):
        assert isinstance(found, NotSent)
        assert (found.code, found.retry_after_ms, found.account) == (code, 0, False)
        assert found.joint, "it parks none of them"
    (own,) = CHANNEL.outcomes(several(one()), refusing(code))
    assert not (isinstance(own, NotSent) and own.joint)


OF_ONE_ELEMENT = {
    *("isv.SMS_CONTENT_MISMATCH_TEMPLATE_TYPE", "isv.INVALID_JSON_PARAM"),
    *("isv.INVALID_PARAMETERS", "isv.SMS_TEST_TEMPLATE_PARAMS_ILLEGAL"),
    *("isv.SIGN_NAME_ILLEGAL", "isv.SIGN_STATE_ILLEGAL", "isv.SIGNATURE_BLACKLIST"),
    *("isv.SMS_SIGN_ILLEGAL", "isv.SIGN_SOURCE_ILLEGAL", "isv.SMS_SIGNATURE_SCENE_ILLEGAL"),
}
"""SendBatchSms takes parameters and a signature for each number."""


@pytest.mark.parametrize("code", sorted(OF_ONE_ELEMENT))
def test_one_deliverys_parameters_or_signature_reject_no_other(code: str) -> None:
    other = one("+8613900000002", template=Template(CODE.id, {"code": "1"}), sign_name="坏签名")
    for found in CHANNEL.outcomes(several(one(), other), refusing(code)):
        assert isinstance(found, NotSent)
        assert (found.joint, found.retry_after_ms) == (True, 0)
    assert isinstance(outcome(CHANNEL, MAIN, other, refusing(code)), Rejected)


@pytest.mark.parametrize("code", sorted(ABOUT_ALL))
def test_a_fault_of_the_template_or_the_call_rejects_all_at_once(code: str) -> None:
    row = TABLE.row(code)
    assert row is not None
    assert (row.code, row.kind) == (code, "rejected")
    call = several(one(), one("+8613900000002"))
    assert all(isinstance(found, Rejected) for found in CHANNEL.outcomes(call, refusing(code)))


def test_a_code_without_a_row_rejects_a_delivery_only_when_it_goes_alone() -> None:
    refused = refusing("InvalidExtraParam", status=400)
    for found in CHANNEL.outcomes(several(one(), one("+8613900000002")), refused):
        assert isinstance(found, NotSent)
        assert found.joint
    assert isinstance(outcome(CHANNEL, MAIN, one(), refused), Rejected)


def test_numbers_in_a_message_are_not_kept() -> None:
    found = outcome(
        CHANNEL, MAIN, one(), refusing("isv.MOBILE_NUMBER_ILLEGAL", "13800000001 is bad")
    )
    assert found == Rejected("isv.MOBILE_NUMBER_ILLEGAL", "*** is bad")


def test_no_text_of_another_delivery_of_the_call_is_kept() -> None:
    names = ("Alice Anderson", "Boris Borodin")
    answer = refusing("isv.SMS_TEMPLATE_ILLEGAL", f"too long: {names[1]}, {names[0]}")
    call = several(
        *(one(f"+861380000000{n}", template=Template(CODE.id, {"name": names[n]})) for n in (0, 1))
    )
    for found in Engine(Replies(answer), keep_answers=True).send(CHANNEL, call, 1.0):
        assert isinstance(found, Rejected)
        assert found.detail == "too long: ***, ***"
        assert '"Message":"too long: ***, ***"' in found.answer


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (LOST, Unknown),
        (REFUSED, NotSent),
        (refusing("isv.NEVER_HEARD_OF"), Unknown),
        (refusing("OK", status=500), Unknown),
        (httpx.Response(200, content=b"<html>"), Unknown),
        (httpx.Response(200, content=b'{"Code":7}'), Unknown),
        (httpx.Response(200, content=b"\xff"), Unknown),
        (httpx.Response(200, content=b"[" * 100_000), Unknown),
        (httpx.Response(502, content=b"bad gateway"), Unknown),
        (httpx.Response(429, content=b""), NotSent),
        (httpx.Response(503, headers={"Retry-After": "7"}), Unknown),
    ],
)
def test_other_answers_are_judged_by_what_is_known(
    answer: httpx.Response, kind: type[AnyOutcome]
) -> None:
    assert type(outcome(CHANNEL, MAIN, one(), answer)) is kind


def test_an_attempt_in_doubt_is_asked_for_by_number_and_day() -> None:
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), listed(OTHERS, OURS))
    assert found.resolution is Resolution.SENT
    (request,) = asked
    assert request.headers["x-acs-action"] == "QuerySendDetails"
    assert parse_qs(request.url.query.decode()) == {
        "CurrentPage": ["1"],
        "PageSize": ["50"],
        "PhoneNumber": ["13800000001"],
        "SendDate": ["20260921"],
    }


@pytest.mark.parametrize(
    ("called_at", "days"),
    [
        (1_790_006_400_000 - 1, ["20260921", "20260922"]),  # 23:59:59.999 in China
        (1_790_006_400_000, ["20260921", "20260922"]),  # midnight
        (1_790_006_400_000 + 3_600_000, ["20260922"]),
    ],
)
def test_near_midnight_in_china_both_days_are_asked_for(called_at: int, days: list[str]) -> None:
    dialogue = CHANNEL.resolve(MAIN, attempt_of(one(), called_at=called_at))
    asked, found = held(dialogue, *[listed() for _ in days])
    assert [parse_qs(request.url.query.decode())["SendDate"] for request in asked] == [
        [day] for day in days
    ]
    assert found.resolution is Resolution.NOT_SENT


def test_further_pages_are_turned() -> None:
    others = [{**OTHERS, "OutId": f"another-{number}"} for number in range(100)]
    answers = [listed(*others[:50], of=101), listed(*others[50:], of=101), listed(OURS, of=101)]
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), *answers)
    assert [parse_qs(request.url.query.decode())["CurrentPage"] for request in asked] == [
        ["1"],
        ["2"],
        ["3"],
    ]
    assert found.resolution is Resolution.SENT


def test_an_empty_list_is_believed_after_the_lag_only() -> None:
    for age_s, expected in ((119, Resolution.ASK_LATER), (120, Resolution.NOT_SENT)):
        _, found = held(CHANNEL.resolve(SLOW, attempt_of(one(), age_s)), listed(OTHERS))
        assert found.resolution is expected


AT = "2026-09-21 22:13:20"


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([listed(of=2)], id="counts two rows and lists none"),
        pytest.param([listed(OTHERS, of=2), listed(of=2)], id="lists fewer than it counts"),
        pytest.param([listed({**OTHERS, "OutId": "", "SendDate": AT})], id="no OutId"),
        pytest.param([listed({**OTHERS, "OutId": "", "SendDate": "soon"})], id="no time either"),
        pytest.param([listed({**OURS, "PhoneNum": "13900000002"})], id="another number"),
        pytest.param([ok(SmsSendDetailDTOs={"SmsSendDetailDTO": []})], id="no count"),
        pytest.param([ok(TotalCount="many", SmsSendDetailDTOs=None)], id="no number"),
        pytest.param([listed(OTHERS, of=2), listed(OTHERS, of=2)], id="moved while it was read"),
        pytest.param([listed(OTHERS, of=2), listed(OURS | {"OutId": "x"}, of=3)], id="grew"),
    ],
)
def test_a_list_that_is_not_whole_or_may_hold_ours_is_asked_again(
    answers: list[httpx.Response],
) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), *answers)
    assert found.resolution is Resolution.ASK_LATER


def test_a_row_without_an_out_id_from_before_the_call_hides_nothing() -> None:
    row = {**OTHERS, "OutId": "", "SendDate": "2026-09-21 22:00:00"}
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), listed(row))
    assert found.resolution is Resolution.NOT_SENT


@pytest.mark.parametrize("shown", ["13800000001", "138****0001", "8613800000001"])
def test_a_number_may_be_listed_masked(shown: str) -> None:
    _, found = held(CHANNEL.resolve(MAIN, attempt_of(one())), listed({**OURS, "PhoneNum": shown}))
    assert found.resolution is Resolution.SENT


def test_every_day_between_the_first_call_and_the_last_is_asked_for() -> None:
    two_days = 2 * 86_400_000
    attempt = Attempt(one(), AT_MS, AT_MS + two_days + 3_600_000, last_called_at=AT_MS + two_days)
    asked, found = held(CHANNEL.resolve(MAIN, attempt), listed(), listed(), listed())
    assert [parse_qs(request.url.query.decode())["SendDate"] for request in asked] == [
        ["20260921"],
        ["20260922"],
        ["20260923"],
    ]
    assert found.resolution is Resolution.NOT_SENT


def test_the_lag_counts_from_the_last_call() -> None:
    for age_s, expected in ((119, Resolution.ASK_LATER), (120, Resolution.NOT_SENT)):
        last = AT_MS + 600_000
        attempt = Attempt(one(), AT_MS, last + age_s * 1_000, last_called_at=last)
        _, found = held(CHANNEL.resolve(SLOW, attempt), listed())
        assert found.resolution is expected


def test_nothing_is_asked_past_the_querys_reach() -> None:
    asked, found = held(CHANNEL.resolve(MAIN, attempt_of(one(), 30 * 86_400)))
    assert (asked, found.resolution) == ([], Resolution.ASK_LATER)


@pytest.mark.parametrize(
    "answer", [LOST, REFUSED, refusing("isp.SYSTEM_ERROR"), httpx.Response(200, content=b"?")]
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


LIVE = AliyunSms()


def send(engine: Engine, account: Account, *deliveries: Delivery) -> list[AnyOutcome]:
    return engine.send(LIVE, Call(account, deliveries), 5.0)


def found_out(engine: Engine, account: Account, given: Delivery, provider: Simulator) -> Resolution:
    at = next(record.at_ms for record in provider.records())
    now = attempt_of(given, age_s=0, called_at=at)  # no later: the provider knows no tomorrow
    found = engine.resolve(LIVE, account, now, 5.0)
    assert found is not None
    return found.resolution


def test_over_sockets_calls_of_both_kinds_are_accepted(provider: Simulator, engine: Engine) -> None:
    account = account_of(ACCOUNT, provider.url + PATH + "/tenant")
    same = [one(f"+86138{number:08d}") for number in range(1_000)]
    outcomes = send(engine, account, *same)
    assert len(set(outcomes)) == 1
    assert isinstance(outcomes[0], Accepted)
    assert outcomes[0].provider_id
    own = [
        one(f"+86139{number:08d}", template=Template(CODE.id, {"code": str(number)}))
        for number in range(100)
    ]
    assert all(isinstance(found, Accepted) for found in send(engine, account, *own))
    accepted = [record for record in provider.records() if record.accepted]
    assert [record.receiver for record in accepted] == [given.receiver for given in same + own]
    assert {record.id for record in accepted} == {KEY}


def test_over_sockets_more_than_the_provider_takes_is_refused(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    many = [one(f"+86138{number:08d}") for number in range(1_001)]
    own = [
        one(f"+86139{number:08d}", template=Template(CODE.id, {"code": str(number)}))
        for number in range(101)
    ]
    for deliveries in (many, own):
        assert {found.code for found in send(engine, account, *deliveries)} == {  # type: ignore[union-attr]
            "isv.MOBILE_COUNT_OVER_LIMIT"
        }
    assert list(provider.records()) == []


@pytest.mark.parametrize(
    ("receiver", "read_as"),
    [
        ("+8613800000001", "+8613800000001"),
        ("+12025550123", "+12025550123"),
        ("+85251234567", "+85251234567"),
        ("+13125550123", "+8613125550123"),  # why the adapter refuses it
    ],
)
def test_over_sockets_the_provider_reads_a_mobile_number_without_its_country_as_a_mainland_one(
    provider: Simulator, engine: Engine, receiver: str, read_as: str
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    send(engine, account, one(receiver))
    assert [record.receiver for record in provider.records()] == [read_as]
    refused = bool(LIVE.refusal(account, one(receiver)))
    assert refused == (read_as != receiver)


@pytest.mark.parametrize("written", ["13125550123", "+13125550123", "0013125550123"])
def test_over_sockets_no_spelling_reaches_a_number_that_reads_as_a_mainland_one(
    provider: Simulator, transport: Transport, written: str
) -> None:
    class Spelt(AliyunSms):
        def _signed(
            self,
            prepared: AliyunPrepared,
            action: str,
            query: Mapping[str, str],
            form: Mapping[str, str] = MappingProxyType({}),
        ) -> httpx.Request:
            return super()._signed(prepared, action, {**query, "PhoneNumbers": written}, form)

    account = account_of(ACCOUNT, provider.url + PATH)
    transport.send(Spelt().request(Call(account, (one(),))))
    assert "+13125550123" not in [record.receiver for record in provider.records()]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"access_key_secret": "wrong"}, "SignatureDoesNotMatch"),
        ({"access_key_id": "wrong"}, "InvalidAccessKeyId.NotFound"),
    ],
)
def test_over_sockets_a_wrong_key_halts_the_account(
    provider: Simulator, engine: Engine, changes: dict[str, str], code: str
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH, **changes)
    (found,) = send(engine, account, one())
    assert isinstance(found, NotSent)
    assert (found.code, found.account) == (code, True)
    assert list(provider.records()) == []


def changed(request: httpx.Request, part: str) -> httpx.Request:
    """The request after someone on the way had a hand in it."""
    url, fields, body = request.url, request.headers, request.read()
    if part == "query":
        url = url.copy_with(raw_path=url.raw_path.replace(b"OutId=0", b"OutId=1"))
    elif part == "path":
        url = url.copy_with(raw_path=url.raw_path.replace(PATH.encode(), PATH.encode() + b"/x"))
    elif part == "body":
        body = body.replace(b"4711", b"4712")
    elif part == "unsigned":
        fields["x-acs-extra"] = "1"
    else:
        fields[part] = {"x-acs-date": "2099-01-01T00:00:00Z"}.get(part, "other")
    return httpx.Request(request.method, url, headers=fields, content=body)


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ("query", "SignatureDoesNotMatch"),
        ("path", "SignatureDoesNotMatch"),
        ("body", "SignatureDoesNotMatch"),
        ("unsigned", "SignatureDoesNotMatch"),
        ("x-acs-action", "SignatureDoesNotMatch"),
        ("x-acs-signature-nonce", "SignatureDoesNotMatch"),
        ("x-acs-content-sha256", "SignatureDoesNotMatch"),
        ("host", "SignatureDoesNotMatch"),
        ("x-acs-date", "InvalidTimeStamp.Expired"),
        ("authorization", "IncompleteSignature"),
    ],
)
def test_over_sockets_no_byte_of_a_signed_call_may_change(
    provider: Simulator, transport: Transport, part: str, code: str
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    own = one("+8613900000002", template=Template(CODE.id, {"code": "1"}))
    request = LIVE.request(Call(account, (one(), own)))
    answer = transport.send(changed(request, part))
    assert isinstance(answer, httpx.Response)
    assert answer.json()["Code"] == code
    assert answer.status_code == 400
    assert list(provider.records()) == []


def test_over_sockets_a_clock_that_is_off_is_told(provider: Simulator, engine: Engine) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    (found,) = engine.send(CHANNEL, Call(account, (one(),)), 5.0)
    assert isinstance(found, NotSent)
    assert found.code == "InvalidTimeStamp.Expired"


def test_over_sockets_a_request_that_comes_twice_is_told(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    repeating = AliyunSms(nonce=lambda: "again")
    call = Call(account, (one(),))
    assert isinstance(engine.send(repeating, call, 5.0)[0], Accepted)
    assert engine.send(repeating, call, 5.0) == [
        Unknown("SignatureNonceUsed", "simulated: SignatureNonceUsed")
    ]


def test_over_sockets_what_was_accepted_then_reset_is_found(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(reset=1)])
    pair = (one(), one("+8613900000002"))
    assert all(isinstance(found, Unknown) for found in send(engine, account, *pair))
    for given in pair:
        assert found_out(engine, account, given, provider) is Resolution.SENT


def test_over_sockets_what_was_dropped_is_found_missing(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    provider.control(rules=[Faults(drop=1)])
    assert isinstance(send(engine, account, one())[0], Unknown)
    assert found_out(engine, account, one(), provider) is Resolution.NOT_SENT
    provider.control(rules=[Faults(method="GET", codes={"isp.SYSTEM_ERROR": 1})])
    assert found_out(engine, account, one(), provider) is Resolution.ASK_LATER


def test_over_sockets_one_bad_number_of_a_call_hides_no_other(
    provider: Simulator, engine: Engine
) -> None:
    account = account_of(ACCOUNT, provider.url + PATH)
    rule = Faults(receiver="+86139", receiver_codes={"isv.BLACK_KEY_CONTROL_LIMIT": 1})
    provider.control(rules=[rule])
    pair = (one(), one("+8613900000002"))
    assert all(isinstance(found, Accepted) for found in send(engine, account, *pair))
    accepted = [record.receiver for record in provider.records() if record.accepted]
    assert accepted == ["+8613800000001"]
    assert send(engine, account, pair[1]) == [
        Rejected("isv.BLACK_KEY_CONTROL_LIMIT", "simulated: isv.BLACK_KEY_CONTROL_LIMIT")
    ]


def test_over_sockets_what_is_counted_and_not_yet_listed_is_not_called_missing(
    tmp_path: Path, engine: Engine
) -> None:
    """The simulator by default lists late, and counts at once."""
    with spawn(tmp_path, lists=Lists(lag_ms=60_000)) as provider:
        account = account_of(ACCOUNT, provider.url + PATH)
        provider.control(rules=[Faults(reset=1)])
        assert isinstance(send(engine, account, one())[0], Unknown)
        assert found_out(engine, account, one(), provider) is Resolution.ASK_LATER
        provider.control(rules=[], lists=ECHOING)
        assert found_out(engine, account, one(), provider) is Resolution.SENT
