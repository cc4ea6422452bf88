"""Volcengine SMS: one JSON body for many numbers, an id for each, an error for all of them.

The signature's judge is Volcengine's own SDK: tests/foreign/test_volcengine_sms.py.
"""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from channels.channel import Call, Failure, Phase
from channels.http_client.transport import Transport
from channels.providers.volcengine_sms.adapter import VolcengineSms
from channels.registry import AccountError
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.harness.simulators import spawn

NOW = 1_714_000_000.0
CHANNEL = VolcengineSms(lambda: NOW)
TABLE = {
    "provider": "volcengine_sms",
    "access_key_id": "AKLTexample",
    "access_key_secret": "a-secret",
    "sms_account": "77da1acf",
    "sign_name": "鸿雁",
}
NUMBERS = ["+8615123456789", "+8615234567890"]
TEMPLATE = Template("ST_6f8c", {"code": "4711"})


def call(template: Template = TEMPLATE, receivers: list[str] = NUMBERS, **options: Any) -> Call:
    return Call(account_of(TABLE, **options), deliveries("sms", receivers, template=template))


def body_of(made: Call) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(CHANNEL.request(made).read())
    return content


def answered(body: object, http: int = 200, made: Call | None = None) -> list[AnyOutcome]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CHANNEL.outcomes(made or call(), httpx.Response(http, content=content))


def refused(code: str, http: int = 200, made: Call | None = None, **more: Any) -> list[AnyOutcome]:
    error = {"CodeN": 1, "Code": code, "Message": "why"}
    return answered({"ResponseMetadata": {"RequestId": "r", "Error": error}, **more}, http, made)


def ids(*given: object) -> dict[str, Any]:
    return {"ResponseMetadata": {"RequestId": "r"}, "Result": {"MessageID": list(given)}}


def test_all_numbers_share_a_body_with_the_calls_key_in_it() -> None:
    assert body_of(call()) == {
        "SmsAccount": "77da1acf",
        "Sign": "鸿雁",
        "TemplateID": "ST_6f8c",
        "PhoneNumbers": ",".join(NUMBERS),
        "Tag": KEY,
        "TemplateParam": '{"code":"4711"}',
    }
    request = CHANNEL.request(call())
    assert str(request.url) == "https://provider.example/?Action=SendSms&Version=2020-01-01"
    assert request.headers["X-Date"] == "20240424T230640Z"


def test_parameters_are_texts_and_a_template_without_any_has_none() -> None:
    sent = body_of(call(Template("ST_1", {"minutes": 5})))["TemplateParam"]
    assert json.loads(sent) == {"minutes": "5"}
    assert "TemplateParam" not in body_of(call(Template("ST_1", {})))


def test_a_secret_is_in_no_repr_and_an_id_that_cannot_be_is_refused() -> None:
    assert "a-secret" not in repr(account_of(TABLE))
    with pytest.raises(AccountError, match="access_key_id"):
        account_of({**TABLE, "access_key_id": "an id"})


@pytest.mark.parametrize(
    ("receiver", "template", "options", "said"),
    [
        (NUMBERS[0], None, {}, "no_template: "),
        ("15123456789", TEMPLATE, {}, "bad_number: "),
        (NUMBERS[0], Template("ST_1", {"a": True}), {}, "bad_params: "),
        (NUMBERS[0], TEMPLATE, {"sign_name": ""}, "no_sign_name: "),
    ],
)
def test_what_can_never_be_sent_is_refused(
    receiver: str, template: Template | None, options: dict[str, Any], said: str
) -> None:
    content = None if template else {"text": "a"}
    (one,) = deliveries("sms", [receiver], content, template)
    assert CHANNEL.refusal(account_of(TABLE, **options), one).startswith(said)


def test_deliveries_of_one_text_join_on_one_side_of_the_border_and_a_retry_goes_alone() -> None:
    first, second = call().deliveries
    assert CHANNEL.batch_key(first) == CHANNEL.batch_key(second)
    (other,) = deliveries("sms", NUMBERS[:1], template=Template("ST_6f8c", {"code": "4712"}))
    (abroad,) = deliveries("sms", ["+85291234567"], template=TEMPLATE)
    (again,) = deliveries("sms", NUMBERS[:1], template=TEMPLATE, attempt=2)
    for unlike in (other, abroad, again):
        assert CHANNEL.batch_key(unlike) != CHANNEL.batch_key(first)


def test_each_number_has_the_id_at_its_place() -> None:
    assert answered(ids("m-1", "m-2")) == [Accepted("m-1"), Accepted("m-2")]


@pytest.mark.parametrize(
    "given", [["m-1"], [], ["m-1", "m-2", "m-3"], ["m-1", ""], ["m-1", None], ["m-1", 2]]
)
def test_an_answer_without_an_id_for_each_number_leaves_all_in_doubt(given: list[object]) -> None:
    for one in answered(ids(*given)):
        assert isinstance(one, Unknown)
        assert one.code == "no_status"


def test_an_error_decides_whatever_status_and_ids_stand_beside_it() -> None:
    for one in refused("RE:0004", Result={"MessageID": ["m-1", "m-2"]}):
        assert isinstance(one, Rejected)
        assert (one.code, one.detail) == ("RE:0004", "why")
    results: list[object] = [None, "", [], {"MessageID": "m-1"}]
    for result in results:
        assert all(isinstance(one, Rejected) for one in refused("RE:0005", Result=result))


def test_ids_under_a_status_that_refuses_are_in_doubt() -> None:
    assert all(isinstance(one, Unknown) for one in answered(ids("m-1", "m-2"), http=400))


@pytest.mark.parametrize(
    ("code", "http"),
    [
        ("RE:0000", 200),
        ("RE:0003", 200),
        ("RE:0007", 200),
        ("SignatureDoesNotMatch", 401),
        ("InvalidAccessKey", 401),
        ("AccessDenied", 403),
    ],
)
def test_a_refused_login_is_the_accounts(code: str, http: int) -> None:
    for one in refused(code, http):
        assert isinstance(one, NotSent)
        assert (one.account, one.limit) == (True, Limit.LOGIN)


@pytest.mark.parametrize("code", ["RE:0001", "RE:0002", "RE:0010"])
def test_an_account_that_is_off_or_in_arrears_is_left_alone(code: str) -> None:
    for one in refused(code):
        assert isinstance(one, NotSent)
        assert (one.account, one.limit) == (True, None)


def test_too_much_only_paces() -> None:
    (one, _) = refused("FlowLimitExceeded", 429)
    assert isinstance(one, NotSent)
    assert (one.limit, one.retry_after_ms, one.account) == (Limit.ACCOUNT, 1_000, False)
    (one, _) = refused("RE:0013")
    assert isinstance(one, NotSent)
    assert (one.limit, one.retry_after_ms, one.account) == (Limit.ACCOUNT, 3_600_000, True)


@pytest.mark.parametrize("code", ["RE:0006", "RE:0011"])
def test_one_bad_number_among_many_sends_each_alone(code: str) -> None:
    for one in refused(code):
        assert isinstance(one, NotSent)
        assert not one.account
    alone = call(receivers=NUMBERS[:1])
    assert [type(one) for one in refused(code, made=alone)] == [Rejected]


@pytest.mark.parametrize(
    ("code", "http"),
    [
        ("RE:0500", 200),
        ("RE:0999", 200),
        ("InternalServiceTimeout", 504),
        ("ServiceUnavailableTemp", 503),
        ("FailToConnect", 502),
    ],
)
def test_what_may_have_gone_on_is_in_doubt(code: str, http: int) -> None:
    assert all(isinstance(one, Unknown) for one in refused(code, http))


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"\xff", b"<html>", b"[" * 100_000),
        b'{"ResponseMetadata":{}}',
        b'{"ResponseMetadata":{"Error":{}}}',
        b'{"ResponseMetadata":{"Error":{"Code":""}},"Result":{"MessageID":["a","b"]}}',
        b'{"ResponseMetadata":{},"Result":null}',
    ],
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert [type(one) for one in answered(body)] == [Unknown, Unknown]


def test_failures_are_judged_by_what_was_written() -> None:
    for phase, kind in ((Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)):
        assert all(isinstance(one, kind) for one in CHANNEL.outcomes(call(), Failure(phase, "x")))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("volcengine"), fsync=False) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("volcengine_sms", simulator, transport)
    transport.close()


def test_the_simulator_takes_the_signature_and_refuses_any_other(peer: Peer) -> None:
    outcomes = peer.send(peer.call(1, 2))
    assert all(isinstance(one, Accepted) for one in outcomes)
    assert len({one.provider_id for one in outcomes if isinstance(one, Accepted)}) == 2
    for name, code in (
        ("access_key_secret", "SignatureDoesNotMatch"),
        ("access_key_id", "InvalidAccessKey"),
        ("sms_account", "RE:0003"),
    ):
        wrong: dict[str, Any] = {name: "other"}
        (outcome,) = peer.send(peer.call(3, **wrong))
        assert isinstance(outcome, NotSent)
        assert (outcome.code, outcome.limit) == (code, Limit.LOGIN)


def test_a_signature_of_another_hour_is_refused(peer: Peer) -> None:
    answer = peer.recorder.send(CHANNEL.request(peer.call(4)))
    (outcome,) = CHANNEL.outcomes(peer.call(4), answer)
    assert isinstance(outcome, NotSent)
    assert outcome.code == "InvalidTimestamp"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"content": b"{}"}, "SignatureDoesNotMatch"),
        ({"query": b"Action=SendSms&Version=2021-01-01"}, "SignatureDoesNotMatch"),
        ({"fields": {"content-type": "application/json"}}, "SignatureDoesNotMatch"),
        ({"fields": {"x-content-sha256": "0" * 64}}, "SignatureDoesNotMatch"),
        ({"fields": {"authorization": ""}}, "MissingAuthenticationToken"),
        ({"fields": {"authorization": "HMAC-SHA256 nonsense"}}, "InvalidAuthorization"),
    ],
)
def test_what_is_changed_on_the_way_is_refused(
    peer: Peer, change: dict[str, Any], code: str
) -> None:
    made = peer.channel.request(peer.call(5))
    content = change.get("content", made.read())
    url = str(made.url).partition("?")[0]
    query = change.get("query", made.url.query).decode()
    fields = {**made.headers, "content-length": str(len(content)), **change.get("fields", {})}
    with httpx.Client(trust_env=False) as client:
        answer = client.post(f"{url}?{query}", content=content, headers=fields)
    (outcome,) = peer.channel.outcomes(peer.call(5), answer)
    assert isinstance(outcome, NotSent)
    assert outcome.code == code


def test_a_message_whose_answer_was_lost_is_in_doubt_and_was_sent(peer: Peer) -> None:
    before = len(peer.accepted())
    (outcome,) = peer.send(peer.call(6), Faults(reset=1.0))
    assert isinstance(outcome, Unknown)
    assert len(peer.accepted()) == before + 1
