"""Huawei Cloud SMS: one form for many numbers, each with a status of its own.

The signature's judge is Huawei's own SDK: tests/foreign/test_huawei_sms.py.
"""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from channels.channel import Call, Failure, Phase
from channels.http_client.transport import Transport
from channels.providers.huawei_sms.adapter import HuaweiSms
from channels.registry import AccountError
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.harness.simulators import spawn

NOW = 1_714_000_000.0
CHANNEL = HuaweiSms(lambda: NOW)
TABLE = {
    "provider": "huawei_sms",
    "app_key": "a-key",
    "app_secret": "a-secret",
    "sender": "8823040504797",
}
CALLBACK = "https://notify.example.com/receipts/huawei?secret=s3cret"
NUMBERS = ["+8615123456789", "+8615234567890"]


def call(params: dict[str, Any] | None = None, **options: Any) -> Call:
    template = Template("8ff55eac", {"1": "4711"} if params is None else params)
    return Call(account_of(TABLE, **options), deliveries("sms", NUMBERS, template=template))


def form_of(made: Call) -> dict[str, str]:
    found = parse_qs(CHANNEL.request(made).read().decode(), keep_blank_values=True)
    return {name: values[0] for name, values in found.items()}


def answered(
    code: str, *statuses: tuple[str, str], http: int = 200, name: str = "m_1"
) -> list[AnyOutcome]:
    body: dict[str, Any] = {"code": code, "description": "why"}
    if statuses:
        body["result"] = [
            {"originTo": to, "smsMsgId": name if status == "000000" else "", "status": status}
            for to, status in statuses
        ]
    return CHANNEL.outcomes(call(), httpx.Response(http, content=json.dumps(body).encode()))


def test_all_numbers_share_a_form_with_the_calls_key_in_it() -> None:
    assert form_of(call()) == {
        "from": "8823040504797",
        "to": ",".join(NUMBERS),
        "templateId": "8ff55eac",
        "extend": KEY,
        "templateParas": '["4711"]',
    }
    request = CHANNEL.request(call())
    assert str(request.url) == "https://provider.example/sms/batchSendSms/v1"
    assert request.headers["X-Sdk-Date"] == "20240424T230640Z"


def test_signature_and_callback_are_the_accounts_and_an_empty_template_has_no_parameters() -> None:
    form = form_of(call({}, sign_name="鸿雁", status_callback=CALLBACK))
    assert (form["signature"], form["statusCallback"]) == ("鸿雁", CALLBACK)
    assert "templateParas" not in form


def test_parameters_go_by_their_places() -> None:
    params = {str(place): f"v{place}" for place in range(11, 0, -1)}
    sent = json.loads(form_of(call(params))["templateParas"])
    assert sent == [f"v{place}" for place in range(1, 12)]


def test_a_callback_that_is_no_address_is_refused_without_showing_it() -> None:
    with pytest.raises(AccountError, match="status_callback: must be a full") as refused:
        account_of({**TABLE, "status_callback": "notify.example.com/s3cret"})
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(account_of({**TABLE, "status_callback": CALLBACK}))


@pytest.mark.parametrize(
    ("receiver", "template", "said"),
    [
        ("+8615123456789", None, "no_template: "),
        ("15123456789", Template("t", {}), "bad_number: "),
        ("+8615123456789", Template("t", {"name": "x"}), "bad_params: "),
        ("+8615123456789", Template("t", {"1": True}), "bad_params: "),
    ],
)
def test_what_can_never_be_sent_is_refused(
    receiver: str, template: Template | None, said: str
) -> None:
    content = None if template else {"text": "a"}
    (one,) = deliveries("sms", [receiver], content, template)
    assert CHANNEL.refusal(account_of(TABLE), one).startswith(said)


def test_deliveries_of_one_text_join_and_a_retry_goes_alone() -> None:
    first, second = call().deliveries
    assert CHANNEL.batch_key(first) == CHANNEL.batch_key(second)
    (other,) = deliveries("sms", NUMBERS[:1], template=Template("8ff55eac", {"1": "4712"}))
    assert CHANNEL.batch_key(other) != CHANNEL.batch_key(first)
    (again,) = deliveries(
        "sms", NUMBERS[:1], template=Template("8ff55eac", {"1": "4711"}), attempt=2
    )
    assert CHANNEL.batch_key(again) != CHANNEL.batch_key(first)


def test_each_number_has_an_outcome_of_its_own_in_any_order() -> None:
    first, second = answered("E000510", (NUMBERS[1], "E200028"), (NUMBERS[0], "000000"))
    assert first == Accepted("m_1")
    assert isinstance(second, Rejected)
    assert second.code == "E200028"


def test_a_number_that_the_answer_leaves_out_is_in_doubt() -> None:
    first, second = answered("000000", (NUMBERS[0], "000000"))
    assert first == Accepted("m_1")
    assert isinstance(second, Unknown)
    assert all(isinstance(one, Unknown) for one in answered("000000"))
    assert all(isinstance(one, Unknown) for one in answered("E000510"))
    assert isinstance(answered("000000", (NUMBERS[0], "000000"), name="")[0], Unknown)


def test_a_success_under_a_status_that_refuses_is_in_doubt() -> None:
    outcomes = answered("000000", (NUMBERS[0], "000000"), http=400)
    assert all(isinstance(one, Unknown) for one in outcomes)


@pytest.mark.parametrize("code", ["E000101", "E000105", "E000111", "E000620", "E000022"])
def test_a_refused_login_is_the_accounts(code: str) -> None:
    for one in answered(code, http=400):
        assert isinstance(one, NotSent)
        assert (one.account, one.limit) == (True, Limit.LOGIN)


def test_too_much_at_the_provider_only_paces() -> None:
    (one, _) = answered("E000510", (NUMBERS[0], "E200015"), (NUMBERS[1], "000000"))
    assert isinstance(one, NotSent)
    assert (one.limit, one.retry_after_ms) == (Limit.ACCOUNT, 600_000)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"\xff", b"<html>", b"[" * 100_000])
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    outcomes = CHANNEL.outcomes(call(), httpx.Response(200, content=body))
    assert [type(one) for one in outcomes] == [Unknown, Unknown]


def test_failures_are_judged_by_what_was_written() -> None:
    for phase, kind in ((Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)):
        assert all(isinstance(one, kind) for one in CHANNEL.outcomes(call(), Failure(phase, "x")))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("huawei"), fsync=False) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("huawei_sms", simulator, transport)
    transport.close()


def test_the_simulator_takes_the_signature_and_refuses_any_other(peer: Peer) -> None:
    assert all(isinstance(one, Accepted) for one in peer.send(peer.call(1, 2)))
    for name, code in (("app_secret", "APIGW.0301"), ("app_key", "E000102")):
        wrong: dict[str, Any] = {name: "other"}
        (outcome,) = peer.send(peer.call(3, **wrong))
        assert isinstance(outcome, NotSent)
        assert (outcome.code, outcome.limit) == (code, Limit.LOGIN)


def test_a_wrong_endpoint_halts_the_account_and_rejects_no_message(peer: Peer) -> None:
    asked = peer.call(6)
    wrong = account_of(dict(peer.sample.account_table), asked.account.endpoint + "/v9")
    (outcome,) = peer.send(Call(wrong, asked.deliveries))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.account, outcome.limit) == ("APIGW.0101", True, None)


def test_a_signature_of_another_hour_is_refused(peer: Peer) -> None:
    answer = peer.recorder.send(CHANNEL.request(peer.call(4)))
    (outcome,) = CHANNEL.outcomes(peer.call(4), answer)
    assert isinstance(outcome, NotSent)
    assert outcome.code == "E000110"


def test_a_message_whose_answer_was_lost_is_in_doubt_and_was_sent(peer: Peer) -> None:
    before = len(peer.accepted())
    (outcome,) = peer.send(peer.call(5), Faults(reset=1.0))
    assert isinstance(outcome, Unknown)
    assert len(peer.accepted()) == before + 1
