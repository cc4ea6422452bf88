"""Feishu's custom robot: the sign the other way round from DingTalk's, and what comes back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Call, Failure, Phase
from channels.http_client.transport import Transport
from channels.providers.feishu.robot import FeishuRobotChannel
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, NotSent, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.conformance.samples import UNLIMITED
from tests.harness.simulators import spawn

NOW = 1_599_360_473.9
CHANNEL = FeishuRobotChannel(lambda: NOW)
TABLE = {"provider": "feishu_robot", "hook": "a-hook", "secret": "this is secret", "group": "ops"}
SIGN = "/eYKrXQBzTjUZJ3s6NX16VxGbTwmK7AEs8/FnvC1CSw="
"""Of 1599360473 (the document's own example of a time) and `this is secret`, computed with OpenSSL:
printf '' | openssl dgst -sha256 -hmac "$(printf '1599360473\\nthis is secret')" -binary | base64"""


def call(
    content: dict[str, Any] | None = None, template: Template | None = None, **account: Any
) -> Call:
    said = None if template else content or {"text": "你好"}
    return Call(account_of(TABLE, **account), deliveries("feishu", ["group:ops"], said, template))


def answer(body: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


def outcome_of(given: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(), given)
    return outcome


def refusal(content: dict[str, Any], **account: Any) -> str:
    (one,) = deliveries("feishu", ["group:ops"], content)
    return CHANNEL.refusal(account_of(TABLE, **account), one)


def test_time_and_sign_stand_in_the_body_and_the_hook_in_the_path() -> None:
    request = CHANNEL.request(call())
    assert request.method == "POST"
    assert str(request.url) == "https://provider.example/open-apis/bot/v2/hook/a-hook"
    assert request.read().decode() == (
        f'{{"timestamp":"1599360473","sign":"{SIGN}",'
        '"msg_type":"text","content":{"text":"你好"}}'
    )


def test_a_robot_without_a_secret_signs_nothing() -> None:
    (one,) = deliveries("feishu", ["group:ops"], {"text": "a"})
    account = account_of({"provider": "feishu_robot", "hook": "a-hook", "group": "ops"})
    body = CHANNEL.request(Call(account, [one])).read()
    assert body == b'{"msg_type":"text","content":{"text":"a"}}'


POST = {"zh_cn": {"title": "a", "content": [[{"tag": "text", "text": "b"}]]}}


@pytest.mark.parametrize(
    ("content", "body"),
    [
        ({"post": POST}, {"msg_type": "post", "content": {"post": POST}}),
        (
            {"image": {"image_key": "img_1"}},
            {"msg_type": "image", "content": {"image_key": "img_1"}},
        ),
        (
            {"share_chat": {"chat_id": "oc_1"}},
            {"msg_type": "share_chat", "content": {"share_chat_id": "oc_1"}},
        ),
        ({"card": {"elements": []}}, {"msg_type": "interactive", "card": {"elements": []}}),
    ],
)
def test_each_kind_of_content_is_worded_as_documented(
    content: dict[str, Any], body: dict[str, Any], peer: Peer
) -> None:
    assert refusal(content) == ""
    sent = json.loads(CHANNEL.request(call(content)).read())
    assert (sent.pop("timestamp"), sent.pop("sign")) == ("1599360473", SIGN)
    assert sent == body
    (one,) = deliveries("feishu", ["group:ops"], content)
    assert peer.send(Call(peer.account, [one])) == [Accepted(KEY)]


def test_a_template_of_the_providers_is_a_card() -> None:
    sent = json.loads(CHANNEL.request(call(template=Template("AAq1", {"name": "x"}))).read())
    assert sent["card"] == {
        "type": "template",
        "data": {"template_id": "AAq1", "template_variable": {"name": "x"}},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "bad_content: give exactly one of text, post, card, image, share_chat"),
        ({"file": {"file_key": "f"}}, "bad_content: give exactly one of"),
        ({"post": {}}, "bad_content: "),
        ({"text": "a" * 20_480}, "too_long: "),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any], said: str
) -> None:
    assert refusal(content).startswith(said)


def test_a_robot_of_another_group_is_refused_where_the_account_names_its_own() -> None:
    assert refusal({"text": "a"}, group="ops") == ""
    assert refusal({"text": "a"}, group="sales").startswith("wrong_group: ")


@pytest.mark.parametrize(
    "body",
    [
        {"code": 0, "msg": "success", "data": {}, "StatusCode": 0, "StatusMessage": "success"},
        {"code": 0, "msg": "success", "data": {}},
        {"StatusCode": 0, "StatusMessage": "success"},
    ],
)
def test_both_forms_of_success_are_read_and_the_calls_key_is_the_name(body: object) -> None:
    assert outcome_of(answer(body)) == Accepted(KEY)


def test_too_many_requests_are_read_in_the_older_form_too() -> None:
    outcome = outcome_of(answer({"StatusCode": 9499, "StatusMessage": "too many request"}))
    assert isinstance(outcome, NotSent)
    assert outcome.code == "9499.too_many"


def test_a_code_of_no_table_under_400_leaves_the_call_in_doubt() -> None:
    given = httpx.Response(400, json={"code": 987654, "msg": "new"})
    assert outcome_of(given) == Unknown("987654", "new")
    assert isinstance(outcome_of(httpx.Response(400, json={"code": 11233})), NotSent)


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[]", b"{}", b'{"code":"0"}', b"\xff", b"[" * 100_000]
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert isinstance(outcome_of(httpx.Response(200, content=body)), Unknown)


def test_failures_are_judged_by_what_was_written() -> None:
    assert isinstance(outcome_of(Failure(Phase.NOT_WRITTEN, "connect")), NotSent)
    assert isinstance(outcome_of(Failure(Phase.WRITTEN, "reset")), Unknown)


def test_neither_hook_nor_secret_is_shown() -> None:
    shown = repr(account_of(TABLE)) + repr(call())
    assert "a-hook" not in shown
    assert "this is secret" not in shown


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(
        tmp_path_factory.mktemp("feishu_robot"), fsync=False, behaviours=UNLIMITED
    ) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("feishu_robot", simulator, transport)
    transport.close()


def test_the_simulator_takes_the_sign_and_refuses_any_other(peer: Peer) -> None:
    assert peer.send(peer.call(1)) == [Accepted(peer.call(1).key)]
    (outcome,) = peer.send(peer.call(2, secret="other"))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.account) == ("19021", True)


def test_an_old_sign_and_an_unknown_hook_are_refused(peer: Peer) -> None:
    reply = peer.recorder.send(CHANNEL.request(peer.call(3)))
    (outcome,) = CHANNEL.outcomes(peer.call(3), reply)
    assert isinstance(outcome, NotSent)
    assert outcome.code == "19021"
    (outcome,) = peer.send(peer.call(4, hook="other"))
    assert isinstance(outcome, NotSent)
    assert outcome.code == "19001"


def test_more_than_five_a_second_are_refused(tmp_path: Path) -> None:
    transport = Transport()
    with spawn(tmp_path, fsync=False) as simulator:
        peer = Peer("feishu_robot", simulator, transport)
        outcomes = [peer.send(peer.call(number))[0] for number in range(60)]
    transport.close()
    assert all(isinstance(outcome, Accepted) for outcome in outcomes[:5])
    assert "11232" in [getattr(outcome, "code", "") for outcome in outcomes]


def test_a_message_whose_answer_was_lost_is_in_doubt_and_was_sent(peer: Peer) -> None:
    before = len(peer.accepted())
    (outcome,) = peer.send(peer.call(5), Faults(reset=1.0))
    assert isinstance(outcome, Unknown)
    assert len(peer.accepted()) == before + 1
