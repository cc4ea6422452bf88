"""DingTalk's group robot: the sign as the provider's documents compute it, and what comes back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest

from channels.channel import Call, Failure, Phase
from channels.http_client.transport import Transport
from channels.judging.error_table import MINUTE
from channels.providers.dingtalk.robot import DingTalkRobotChannel
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from simulator.protocols._windows import KeyedWindows
from simulator.wire import ProtocolContext
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.conformance.samples import UNLIMITED
from tests.harness.simulators import spawn

NOW = 1_690_000_000.123
CHANNEL = DingTalkRobotChannel(lambda: NOW)
TABLE = {
    "provider": "dingtalk_robot",
    "access_token": "to/ken",
    "secret": "this is secret",
    "group": "ops",
}
SIGN = "fE%2BJL38Pwm1qUzz5EMk8AmqG3Qz%2FycNxPTT4U%2Bga2JM%3D"
"""Of 1690000000123 and `this is secret`, computed with OpenSSL:
printf '1690000000123\\nthis is secret' | openssl dgst -sha256 -hmac 'this is secret' -binary | base64"""


def call(content: dict[str, Any] | None = None, **account: Any) -> Call:
    made = deliveries("dingtalk", ["group:ops"], content or {"text": "你好"})
    return Call(account_of(TABLE, **account), made)


def answer(body: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


def outcome_of(given: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(), given)
    return outcome


def refusal(content: dict[str, Any] | None, **account: Any) -> str:
    template = None if content is not None else Template("T1", {})
    (one,) = deliveries("dingtalk", ["group:ops"], content, template)
    return CHANNEL.refusal(account_of(TABLE, **account), one)


def test_the_robot_is_called_with_its_token_the_time_and_a_sign() -> None:
    request = CHANNEL.request(call())
    assert request.method == "POST"
    assert str(request.url) == (
        f"https://provider.example/robot/send?access_token=to%2Fken&timestamp=1690000000123&sign={SIGN}"
    )
    assert request.read().decode() == '{"msgtype":"text","text":{"content":"你好"}}'


def test_a_robot_without_a_secret_signs_nothing() -> None:
    table = {key: value for key, value in TABLE.items() if key != "secret"}
    (one,) = deliveries("dingtalk", ["group:ops"], {"text": "a"})
    request = CHANNEL.request(Call(account_of(table), [one]))
    assert request.url.query == b"access_token=to%2Fken"


@pytest.mark.parametrize(
    ("content", "body"),
    [
        (
            {
                "markdown": {"title": "a", "text": "b @13800000001"},
                "at": {"mobiles": ["13800000001"]},
            },
            {
                "msgtype": "markdown",
                "markdown": {"title": "a", "text": "b @13800000001"},
                "at": {"atMobiles": ["13800000001"], "atUserIds": [], "isAtAll": False},
            },
        ),
        (
            {
                "text": "a",
                "at": {
                    "mobiles": ["+86 138 0000 0001", "+85251234567"],
                    "users": ["u"],
                    "all": True,
                },
            },
            {
                "msgtype": "text",
                "text": {"content": "a"},
                "at": {
                    "atMobiles": ["13800000001", "+852-51234567"],
                    "atUserIds": ["u"],
                    "isAtAll": True,
                },
            },
        ),
        (
            {"link": {"title": "a", "text": "b", "url": "https://c"}},
            {
                "msgtype": "link",
                "link": {"title": "a", "text": "b", "messageUrl": "https://c", "picUrl": ""},
            },
        ),
        (
            {
                "action_card": {
                    "title": "a",
                    "text": "b",
                    "single": {"title": "c", "url": "https://d"},
                }
            },
            {
                "msgtype": "actionCard",
                "actionCard": {
                    "title": "a",
                    "text": "b",
                    "singleTitle": "c",
                    "singleURL": "https://d",
                },
            },
        ),
        (
            {
                "action_card": {
                    "title": "a",
                    "text": "b",
                    "buttons": [{"title": "c", "url": "https://d"}],
                }
            },
            {
                "msgtype": "actionCard",
                "actionCard": {
                    "title": "a",
                    "text": "b",
                    "btnOrientation": "0",
                    "btns": [{"title": "c", "actionURL": "https://d"}],
                },
            },
        ),
        (
            {"feed_card": [{"title": "a", "url": "https://b", "image": "https://c"}]},
            {
                "msgtype": "feedCard",
                "feedCard": {
                    "links": [{"title": "a", "messageURL": "https://b", "picURL": "https://c"}]
                },
            },
        ),
    ],
)
def test_each_kind_of_content_is_worded_as_documented(
    content: dict[str, Any], body: dict[str, Any], peer: Peer
) -> None:
    assert refusal(content) == ""
    assert json.loads(CHANNEL.request(call(content)).read()) == body
    (one,) = deliveries("dingtalk", ["group:ops"], content)
    (outcome,) = peer.send(Call(peer.account, [one]))
    assert outcome == Accepted(KEY)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no_provider_template: "),
        ({"oa": {"body": {}}}, "bad_content: this provider cannot send oa"),
        (
            {"at": {"all": True}},
            "bad_content: give exactly one of text, markdown, link, action_card",
        ),
        ({"text": "a", "at": {"mobiles": ["call me"]}}, "bad_mobile: "),
        ({"text": "a", "at": {"mobiles": ["123"]}}, "bad_mobile: "),
        ({"feed_card": []}, "bad_content: "),
        ({"text": "a" * 20_000}, "too_long: "),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any] | None, said: str
) -> None:
    assert refusal(content).startswith(said)


def test_a_robot_of_another_group_is_refused_where_the_account_names_its_own() -> None:
    assert refusal({"text": "a"}) == ""
    assert refusal({"text": "a"}, group="ops") == ""
    assert refusal({"text": "a"}, group="sales").startswith("wrong_group: ")


@pytest.mark.parametrize(
    "text",
    [
        "keywords not in content, more: [https://ding-doc.dingtalk.com/doc#/serverapi2/qf2nxq]",
        "错误描述:关键词不匹配;解决方案:请联系群管理员查看此机器人的关键词，并在发送的信息中包含此关键词;",
        "description:关键词不匹配;solution:请联系群管理员查看此机器人的关键词，并在发送的信息中包含此关键词;",
    ],
)
def test_a_missing_keyword_is_the_messages_fault_in_either_language(text: str) -> None:
    """As seen in the wild, 2020 to 2023."""
    outcome = outcome_of(answer({"errcode": 310000, "errmsg": text}))
    assert isinstance(outcome, Rejected)
    assert not outcome.account


@pytest.mark.parametrize(
    "text",
    [
        "sign not match, more: [https://ding-doc.dingtalk.com/doc#/serverapi2/qf2nxq]",
        "description:机器人发送签名不匹配;solution:请确认签名和生成签名的时间戳必须都放在调用的网址中;",
        "description:ip不在白名单中;",
    ],
)
def test_any_other_310000_is_about_the_robot(text: str) -> None:
    outcome = outcome_of(answer({"errcode": 310000, "errmsg": text}))
    assert isinstance(outcome, NotSent)
    assert outcome.account


def test_too_many_a_minute_leaves_the_robot_alone_for_ten() -> None:
    said = {"errcode": 130101, "errmsg": "send too fast, exceed 20 times per minute"}
    outcome = outcome_of(answer(said))
    assert isinstance(outcome, NotSent)
    assert (outcome.retry_after_ms, outcome.limit) == (10 * MINUTE, Limit.ACCOUNT)


def test_the_gateways_throttle_is_read_with_its_wait() -> None:
    said = {"status": 1111, "wait": 9, "source": "x5", "punish": "deny", "uuid": "u"}
    outcome = outcome_of(answer(said))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_ms == 9_000
    outcome = outcome_of(answer({**said, "errcode": 130101, "errmsg": "send too fast"}))
    assert isinstance(outcome, NotSent)
    assert outcome.code == "130101"


@pytest.mark.parametrize(
    "text", ["sign not match", "invalid timestamp", "ip 1.2.3.4 not in whitelist"]
)
def test_only_a_missing_keyword_is_the_messages_own_fault(text: str) -> None:
    outcome = outcome_of(answer({"errcode": 310000, "errmsg": text}))
    assert isinstance(outcome, NotSent)
    assert outcome.account
    outcome = outcome_of(answer({"errcode": 310000, "errmsg": "keywords not in content"}))
    assert isinstance(outcome, Rejected)
    assert not outcome.account


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[]", b"{}", b'{"status":1}', b"\xff", b"[" * 100_000]
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert isinstance(outcome_of(httpx.Response(200, content=body)), Unknown)


def test_success_has_no_name_but_the_calls_key() -> None:
    assert outcome_of(answer({"errcode": 0, "errmsg": "ok"})) == Accepted(KEY)
    assert isinstance(outcome_of(Failure(Phase.NOT_WRITTEN, "connect")), NotSent)
    assert isinstance(outcome_of(Failure(Phase.WRITTEN, "reset")), Unknown)


def test_neither_token_nor_secret_is_shown() -> None:
    shown = repr(account_of(TABLE)) + repr(call())
    assert "to/ken" not in shown
    assert "this is secret" not in shown


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(
        tmp_path_factory.mktemp("dingtalk_robot"), fsync=False, behaviours=UNLIMITED
    ) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("dingtalk_robot", simulator, transport)
    transport.close()


def test_the_simulator_takes_the_sign_and_refuses_any_other(peer: Peer) -> None:
    assert peer.send(peer.call(1)) == [Accepted(peer.call(1).key)]
    (outcome,) = peer.send(peer.call(2, secret="other"))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.detail) == ("310000", "sign not match")


def test_a_sign_of_two_hours_ago_is_refused(peer: Peer) -> None:
    late = DingTalkRobotChannel(lambda: NOW)
    reply = peer.recorder.send(late.request(peer.call(3)))
    (outcome,) = late.outcomes(peer.call(3), reply)
    assert isinstance(outcome, NotSent)
    assert outcome.detail == "invalid timestamp"


def test_the_21st_message_of_a_minute_is_refused_and_silences_the_robot(tmp_path: Path) -> None:
    transport = Transport()
    with spawn(tmp_path, fsync=False) as simulator:
        peer = Peer("dingtalk_robot", simulator, transport)
        outcomes = [peer.send(peer.call(number))[0] for number in range(22)]
    transport.close()
    assert all(isinstance(outcome, Accepted) for outcome in outcomes[:20])
    assert [getattr(outcome, "code", "") for outcome in outcomes[20:]] == ["130101"] * 2


def test_a_robot_that_was_silenced_stays_so_for_ten_minutes_and_no_other_is() -> None:
    now_ms = 0
    world = ProtocolContext(now_ms=lambda: now_ms)
    limits = KeyedWindows(world, "dingtalk_robot", (20, 60), silence_s=600)
    assert [limits.over("a") for _ in range(21)] == [False] * 20 + [True]
    assert not limits.over("b")
    now_ms = 599_000
    assert limits.over("a")
    now_ms += 599_999
    assert limits.over("a")  # who asks meanwhile begins the silence anew
    now_ms += 600_000
    assert not limits.over("a")


def test_a_message_whose_answer_was_lost_is_in_doubt_and_was_sent(peer: Peer) -> None:
    before = len(peer.accepted())
    (outcome,) = peer.send(peer.call(4), Faults(reset=1.0))
    assert isinstance(outcome, Unknown)
    assert len(peer.accepted()) == before + 1
    assert parse_qs(CHANNEL.request(call()).url.query.decode())["timestamp"] == ["1690000000123"]
