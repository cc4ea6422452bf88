"""WeChat Official Account: literal bytes in, outcomes out; then the same through a simulator process."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase, TokenRefused
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers._common.wechat import StableToken
from channels.providers.wechat.official import WechatOfficialChannel
from channels.registry import PROVIDERS
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from simulator import Faults
from tests.channels.providers.wechat_calls import (
    account,
    answer,
    body_of,
    call,
    deliveries,
    kinds,
)
from tests.harness.simulators import spawn

CHANNEL = WechatOfficialChannel()
OPENID = "oABCD-1234567890_abcdefghijk"
TEMPLATE = Template(
    "T-1", {"first": "您好", "amount": 39.5, "date": {"value": 5, "color": "#173177"}}
)


def mine(endpoint: str = "https://proxy.example/tencent", **more: Any) -> Account:
    return account("wechat_official", endpoint, appid="wx123", secret="s3cret", **more)


def one(**fields: Any) -> Delivery:
    fields.setdefault("template", None if "content" in fields else TEMPLATE)
    (delivery,) = deliveries("wechat_official", fields.pop("receiver", OPENID), **fields)
    return delivery


def simple(**fields: Any) -> Call:
    return call(mine(), [one(**fields)])


def outcome_of(got: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(simple(), got)
    return outcome


def test_the_request_byte_by_byte() -> None:
    request = CHANNEL.request(simple())
    assert request.method == "POST"
    assert request.url.raw_path == (
        b"/tencent/cgi-bin/message/template/send?access_token=A-token_with%2Fodd%2Bsigns%3D"
    )
    assert request.headers["host"] == "proxy.example"
    key = one().key
    assert request.read().decode() == (
        f'{{"touser":"{OPENID}","template_id":"T-1",'
        '"data":{"amount":{"value":"39.5"},"date":{"value":"5","color":"#173177"},'
        '"first":{"value":"您好"}},'
        f'"client_msg_id":"{key}"}}'
    )
    assert int(request.headers["content-length"]) == len(request.read())


def test_links_come_from_attributes_or_from_the_content() -> None:
    leads = {"url": "https://a.example/", "miniprogram": {"appid": "wx9", "pagepath": "p?a=1"}}
    by_template = simple(attributes={"wechat": leads, "other": 1})
    by_content = simple(content={"template_id": "T-1", "data": {"first": "x"}, **leads})
    for made in (by_template, by_content):
        assert CHANNEL.refusal(made.account, made.deliveries[0]) == ""
        body = body_of(CHANNEL.request(made))
        assert {name: body[name] for name in leads} == leads


def test_a_repeat_in_doubt_is_known_by_its_first_calls_key() -> None:
    again = one(attempt=2)
    again.call_key = "0" * 32
    assert body_of(CHANNEL.request(call(mine(), [again])))["client_msg_id"] == "0" * 32


def test_an_endpoints_own_query_and_ca_file_are_kept() -> None:
    made = Call(mine("https://p.example/x/?via=1", ca_file="/etc/ca.pem"), [one()], "t")
    request = CHANNEL.request(made)
    assert request.url.raw_path == (b"/x/cgi-bin/message/template/send?via=1&access_token=t")
    assert request.extensions["ca_file"] == "/etc/ca.pem"


def test_another_token_makes_another_url() -> None:
    urls = {str(CHANNEL.request(Call(mine(), [one()], token)).url) for token in ("a", "b", "a")}
    assert len(urls) == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"receiver": "no openid"}, "bad_openid"),
        ({"receiver": "x"}, "bad_openid"),
        ({"content": {"text": "hello"}}, "bad_content"),
        ({"content": {"template_id": "", "data": {}}}, "no_template"),
        ({"content": {"template_id": "T", "data": {"a b": "x"}}}, "bad_content"),
        ({"content": {"template_id": "T", "data": {"a": None}}}, "bad_content"),
        ({"content": {"template_id": "T", "data": {"a": {"text": "x"}}}}, "bad_content"),
        ({"content": {"template_id": "T", "data": {}, "url": "h" * 1_025}}, "url_too_long"),
        ({"template": Template("T", {"a": ["x"]})}, "bad_content"),
        ({"template": Template("T", {"a": "bell \x07"})}, "bad_character"),
        ({"template": Template("T", {"a": {"value": "x", "color": "\x1b"}})}, "bad_character"),
        ({"attributes": {"wechat": {"miniprogram": {"appid": "\0"}}}}, "bad_character"),
        ({"attributes": {"wechat": "x"}}, "bad_content"),
        ({"attributes": {"wechat": {"link": "x"}}}, "bad_content"),
    ],
)
def test_what_can_never_be_sent_is_refused_with_its_reason(
    fields: dict[str, Any], code: str
) -> None:
    refused = CHANNEL.refusal(mine(), one(**fields))
    assert refused.startswith(f"{code}: ")
    assert len(refused) > len(code) + 10


def test_lines_and_tabs_may_be_in_a_value_for_no_body_writes_them_as_numbers() -> None:
    lines = one(template=Template("T", {"a": "one\ttwo\r\nthree \x7f 早"}))
    assert CHANNEL.refusal(mine(), lines) == ""
    assert rb"\u" not in CHANNEL.request(call(mine(), [lines])).read()


@pytest.mark.parametrize("provider", ["wechat_official", "wechat_mini"])
def test_a_body_with_a_character_as_its_number_is_refused(tmp_path: Path, provider: str) -> None:
    channel = PROVIDERS[provider]
    refused = channel.outcomes(simple(), answer(errcode=40033, errmsg="invalid charset"))
    assert refused == [Rejected("40033", "invalid charset")]
    with spawn(tmp_path, fsync=False) as simulator:
        there = account(provider, f"{simulator.url}/{provider}", appid="wx123", secret="s3cret")
        request = channel.request(Call(there, deliveries(provider, OPENID, template=TEMPLATE), "t"))
        body = request.read().replace("您".encode(), rb"\u60a8")
        assert body != request.read()
        told = httpx.post(request.url, content=body, trust_env=False).json()
        assert told["errcode"] == 40033


def test_what_is_accepted_is_named_by_their_number() -> None:
    assert outcome_of(answer(errcode=0, errmsg="ok", msgid=200228332)) == Accepted("200228332")
    assert outcome_of(answer(errcode=0, errmsg="ok")) == Accepted(one().key)
    assert outcome_of(answer(errcode=0, msgid={})) == Accepted(one().key)


def test_a_client_id_that_they_know_is_the_first_one_arrived() -> None:
    assert outcome_of(answer(errcode=45065, errmsg="clientmsgid exist")) == Accepted(one().key)


def test_their_words_are_kept_on_one_line() -> None:
    refused = answer(errcode=43004, errmsg="said  so\nrid: 1")
    assert outcome_of(refused) == Rejected("43004", "said so rid: 1")


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
        (httpx.Response(503, headers={"Retry-After": "3"}), Unknown),
        (httpx.Response(503), Unknown),
        (httpx.Response(500), Unknown),
        (httpx.Response(429), NotSent),
        (httpx.Response(404), NotSent),
        (httpx.Response(200, content=b""), Unknown),
        (httpx.Response(200, content=b"<html>"), Unknown),
        (httpx.Response(200, content=b"[]"), Unknown),
        (httpx.Response(200, content=b"{}"), Unknown),
        (httpx.Response(200, content=b'{"errcode":"0"}'), Unknown),
        (httpx.Response(200, content=b"\xff"), Unknown),
        (httpx.Response(200, content=b"[" * 100_000), Unknown),
        (answer(errcode=123456), Unknown),
    ],
)
def test_an_answer_that_is_not_theirs_is_never_a_success(
    got: httpx.Response | Failure, kind: type[object]
) -> None:
    assert isinstance(outcome_of(got), kind)


@pytest.mark.parametrize(
    ("code", "refused"), [(40001, True), (40014, True), (42001, True), (40003, False)]
)
def test_a_refused_token_is_told_from_a_refused_message(code: int, refused: bool) -> None:
    assert CHANNEL.token_refused(answer(errcode=code)) is refused
    assert CHANNEL.token_refused(answer(status=500, errcode=code)) is False


def test_the_token_request_byte_by_byte() -> None:
    request = StableToken().request(mine(), "stale")
    assert (request.method, request.url.raw_path) == ("POST", b"/tencent/cgi-bin/stable_token")
    assert request.read() == (
        b'{"grant_type":"client_credential","appid":"wx123","secret":"s3cret","force_refresh":false}'
    )
    assert "s3cret" not in repr(request) + repr(mine())


def test_a_token_is_read_with_its_life() -> None:
    token = StableToken().read(answer(access_token="t", expires_in=7200))
    assert (token.text, token.expires_in_s) == ("t", 7200.0)


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (answer(errcode=40125, errmsg="invalid appsecret"), "40125 invalid appsecret"),
        (answer(access_token="", expires_in=7200), "no token"),
        (answer(access_token="t", expires_in=0), "no token"),
        (httpx.Response(200, content=b"<html>"), "an answer that is not theirs"),
        (httpx.Response(502), "http_502"),
    ],
)
def test_no_token_says_why(got: httpx.Response, said: str) -> None:
    with pytest.raises(TokenRefused, match=f"^{said}$"):
        StableToken().read(got)


def test_there_is_no_query_but_a_window() -> None:
    assert CHANNEL.resolve(mine(), Attempt(one(), called_at=1, now=2)) is None
    assert 0 < CHANNEL.dedup_window_ms < 600_000


def test_busy_leaves_the_call_in_doubt_and_a_repeat_in_the_window_settles_it(
    tmp_path: Path,
) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        there = account(
            "wechat_official",
            f"{simulator.url}/wechat_official",
            appid="simulator-id",
            secret="simulator-secret",
        )
        made = Call(there, [one()])
        simulator.control(rules=[Faults(codes={"-1": 1.0})])
        assert engine.send(CHANNEL, made, 5.0) == [Unknown("-1", "system error")]
        simulator.control(rules=[])
        assert kinds([*engine.send(CHANNEL, made, 5.0), *engine.send(CHANNEL, made, 5.0)]) == [
            "Accepted",
            "Accepted",
        ]
        assert sum(record.accepted for record in simulator.records()) == 1
        transport.close()


def test_through_a_simulator_a_repeat_within_ten_minutes_doubles_nothing(tmp_path: Path) -> None:
    with spawn(
        tmp_path,
        fsync=False,
        credentials={"wechat_official": {"appid": "wx123", "secret": "s3cret"}},
    ) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        made = Call(mine(f"{simulator.url}/wechat_official"), [one()])
        simulator.control(rules=[Faults(path="/wechat_official/cgi-bin/message", reset=1.0)])
        assert kinds(engine.send(CHANNEL, made, 5.0)) == ["Unknown"]
        simulator.control(rules=[], expire_tokens=True)
        (first,) = engine.send(CHANNEL, made, 5.0)
        (second,) = engine.send(CHANNEL, made, 5.0)
        assert isinstance(first, Accepted)
        assert first == second
        assert [record.accepted for record in simulator.records()] == [True, False, False]
        assert simulator.report(summary_only=True).summary.counts["new_tokens.wechat_official"] == 2
        wrong = Call(mine(f"{simulator.url}/wechat_official/"), [one(receiver="oWRONG")])
        simulator.control(rules=[Faults(receiver="oWRONG", codes={"43004": 1.0})])
        assert engine.send(CHANNEL, wrong, 5.0) == [Rejected("43004", "require subscribe")]
        transport.close()
