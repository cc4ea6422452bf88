"""Feishu's messages: literal requests out, literal answers in, then the simulator's own opinion."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Call, Failure, Phase, TokenRefused
from channels.http_client.transport import Transport
from channels.judging.error_table import MINUTE
from channels.providers.feishu.app import FeishuChannel, FeishuTokens
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, Peer, account_of, deliveries
from tests.harness.simulators import spawn

CHANNEL = FeishuChannel()
PERSON = "ou_84aad35d084aa403a838cf73ee18467"
TABLE = {"provider": "feishu", "app_id": "cli_1", "app_secret": "s3cret-text"}
POST = {"zh_cn": {"title": "a", "content": [[{"tag": "text", "text": "b"}]]}}


def call(
    receiver: str = PERSON,
    content: dict[str, Any] | None = None,
    template: Template | None = None,
    **account: Any,
) -> Call:
    said = None if template else content or {"text": "你好"}
    made = deliveries("feishu", [receiver], said, template)
    return Call(account_of(TABLE, **account), made, "t-1")


def answer(body: object, status: int = 200, **headers: str) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode(), headers=headers)


def outcome_of(given: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(), given)
    return outcome


def refusal(content: dict[str, Any], receiver: str = PERSON) -> str:
    (one,) = deliveries("feishu", [receiver], content)
    return CHANNEL.refusal(account_of(TABLE), one)


def test_the_content_is_json_in_json_and_the_uuid_is_the_calls_key() -> None:
    request = CHANNEL.request(call())
    assert request.method == "POST"
    assert str(request.url) == (
        "https://provider.example/open-apis/im/v1/messages?receive_id_type=open_id"
    )
    assert request.headers["authorization"] == "Bearer t-1"
    assert request.headers["content-type"] == "application/json"
    assert request.read().decode() == (
        '{"receive_id":"ou_84aad35d084aa403a838cf73ee18467","msg_type":"text","content":"{\\"text\\":\\"你好\\"}",'
        f'"uuid":"{KEY}"}}'
    )


@pytest.mark.parametrize(
    ("receiver", "kind"),
    [
        (PERSON, "open_id"),
        ("ou_7d8a6e6df7621556ce0d21922b676706ccs", "open_id"),
        ("ou_lee", "user_id"),
        ("on_call", "user_id"),
        ("ou_Marketing_2026_Anna.Schmidt", "user_id"),
        ("on_8ed6aa67826108097d9ee143816345", "union_id"),
        ("oc_5ad11d72b830411d72b836c20", "chat_id"),
        ("wang@example.com", "email"),
        ("3e3cf96b", "user_id"),
    ],
)
def test_a_receivers_form_tells_its_type(receiver: str, kind: str) -> None:
    url = CHANNEL.request(call(receiver, endpoint="https://open.larksuite.com/x/?via=proxy")).url
    assert url.raw_path == (
        f"/x/open-apis/im/v1/messages?via=proxy&receive_id_type={kind}".encode()
    )


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        ({"post": POST}, "post", POST),
        ({"card": {"elements": []}}, "interactive", {"elements": []}),
        ({"image": {"image_key": "img_1"}}, "image", {"image_key": "img_1"}),
        ({"file": {"file_key": "f"}}, "file", {"file_key": "f"}),
        ({"audio": {"file_key": "f"}}, "audio", {"file_key": "f"}),
        ({"sticker": {"file_key": "f"}}, "sticker", {"file_key": "f"}),
        ({"media": {"file_key": "f"}}, "media", {"file_key": "f"}),
        (
            {"media": {"file_key": "f", "image_key": "i"}},
            "media",
            {"file_key": "f", "image_key": "i"},
        ),
        ({"share_chat": {"chat_id": "oc_1"}}, "share_chat", {"chat_id": "oc_1"}),
        ({"share_user": {"user_id": "ou_1"}}, "share_user", {"user_id": "ou_1"}),
    ],
)
def test_each_kind_of_content_is_worded_as_documented(
    content: dict[str, Any], kind: str, body: dict[str, Any]
) -> None:
    assert refusal(content) == ""
    sent = json.loads(CHANNEL.request(call(content=content)).read())
    assert (sent["msg_type"], json.loads(sent["content"])) == (kind, body)


def test_a_template_of_the_providers_is_a_card() -> None:
    sent = json.loads(CHANNEL.request(call(template=Template("AAq1", {"name": "x"}))).read())
    assert sent["msg_type"] == "interactive"
    assert json.loads(sent["content"]) == {
        "type": "template",
        "data": {"template_id": "AAq1", "template_variable": {"name": "x"}},
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "bad_content: give exactly one of text, post, card"),
        ({"text": "a", "card": {"a": 1}}, "bad_content: give exactly one of"),
        ({"image": {}}, "bad_content: Object missing required field `image_key`"),
        ({"markdown": "a"}, "bad_content: Object contains unknown field `markdown`"),
        ({"text": "a" * 153_600}, "too_long: "),
        ({"card": {"a": "a" * 30_720}}, "too_long: "),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any], said: str
) -> None:
    assert refusal(content).startswith(said)


def test_an_address_that_cannot_exist_is_refused() -> None:
    assert refusal({"text": "a"}, "nobody@") != ""
    assert refusal({"text": "a"}, "wang@example.com") == ""


def test_their_words_are_kept() -> None:
    assert outcome_of(answer({"code": 230101, "msg": "why"})) == Rejected("230101", "why")


@pytest.mark.parametrize("status", [400, 429])
def test_the_rate_limit_says_how_long_under_either_status(status: int) -> None:
    said = {"code": 99991400, "msg": "request trigger frequency limit"}
    outcome = outcome_of(answer(said, status, **{"x-ogw-ratelimit-reset": "52"}))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_ms == 52_000
    outcome = outcome_of(answer(said, status, **{"x-ogw-ratelimit-reset": "soon"}))
    assert isinstance(outcome, NotSent)
    assert outcome.retry_after_ms == MINUTE


def test_a_429_without_a_body_keeps_to_the_field_too() -> None:
    outcome = outcome_of(httpx.Response(429, headers={"x-ogw-ratelimit-reset": "3"}))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.retry_after_ms) == ("http_429", 3_000)


def test_success_is_named_by_the_message() -> None:
    said = {"code": 0, "msg": "success", "data": {"message_id": "om_1", "chat_id": "oc_1"}}
    assert outcome_of(answer(said)) == Accepted("om_1")


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"[]", b"{}", b'{"code":"0"}', b'{"code":0,"data":[]}', b"\xff", b"[" * 100_000],
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert isinstance(outcome_of(httpx.Response(200, content=body)), Unknown)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (httpx.Response(502, content=b"<html>"), Unknown),
        (answer({"code": 0, "data": {"message_id": "om_1"}}, 500), Unknown),
        (answer({"code": 987654, "msg": "new"}, 400), Unknown),
        *((answer({"code": 987654, "msg": "new"}, status), NotSent) for status in (401, 403)),
        (answer({"code": 987654, "msg": "new"}, 404), Rejected),
        (answer({"code": 987654, "msg": "new"}, 429), NotSent),
        (answer({"code": 987654, "msg": "new"}, 500), Unknown),
        (answer({"code": 987654, "msg": "new"}), Unknown),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
    ],
)
def test_answers_that_the_documents_do_not_know_are_judged_by_status_and_phase(
    given: httpx.Response | Failure, kind: type[AnyOutcome]
) -> None:
    assert type(outcome_of(given)) is kind


@pytest.mark.parametrize("code", [1500, 2200, 5000, 10101, 18121, 55001, 90235, 230049])
def test_an_internal_error_under_400_leaves_the_call_in_doubt(code: int) -> None:
    """Feishu answers 400 for nearly every code: it says nothing of what was done."""
    assert outcome_of(answer({"code": code, "msg": "m"}, 400)) == Unknown(str(code), "m")


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        (230020, Limit.RECEIVER),
        (11233, Limit.RECEIVER),
        *((code, Limit.ACCOUNT) for code in (11232, 11247, 90217, 190005, 1000004, 1000005)),
    ],
)
def test_a_limit_holds_back_whom_it_is_about(code: int, limit: Limit) -> None:
    outcome = outcome_of(answer({"code": code, "msg": "m"}, 400))
    assert isinstance(outcome, NotSent)
    assert (outcome.limit, outcome.account) == (limit, False)


def test_a_token_is_asked_for_with_id_and_secret_in_the_body() -> None:
    request = FeishuTokens().request(account_of(TABLE, ca_file="/ca.pem"), "")
    assert str(request.url) == (
        "https://provider.example/open-apis/auth/v3/tenant_access_token/internal"
    )
    assert request.read() == b'{"app_id":"cli_1","app_secret":"s3cret-text"}'
    assert request.extensions["ca_file"] == "/ca.pem"
    token = FeishuTokens().read(
        answer({"code": 0, "msg": "ok", "tenant_access_token": "t-2", "expire": 7200})
    )
    assert (token.text, token.expires_in_s) == ("t-2", 7200.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer({"code": 10014, "msg": "app secret invalid"}), "10014: app secret invalid"),
        (answer({"code": 0}), "http_200: an answer without a token"),
        (httpx.Response(503), "http_503: an answer without a token"),
    ],
)
def test_a_refused_token_says_the_providers_code(given: httpx.Response, said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        FeishuTokens().read(given)


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        (99991661, True),
        (99991663, True),
        (99991668, True),
        (99991671, True),
        (99991677, True),
        (99991672, False),
        (0, False),
    ],
)
def test_the_tokens_own_errors_are_told_from_others(code: int, refused: bool) -> None:
    assert CHANNEL.token_refused(answer({"code": code}, 401)) is refused


def test_the_secret_is_never_shown() -> None:
    assert "s3cret-text" not in repr(account_of(TABLE)) + repr(call())


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("feishu"), fsync=False) as started:
        yield started


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport()
    yield transport
    transport.close()


@pytest.fixture
def peer(simulator: Simulator, transport: Transport) -> Peer:
    return Peer("feishu", simulator, transport)


def test_a_message_whose_answer_was_lost_is_repeated_under_its_uuid(peer: Peer) -> None:
    (lost,) = peer.send(peer.call(1), Faults(reset=1.0))
    assert isinstance(lost, Unknown)
    (repeated,) = peer.send(peer.call(1, attempt=2))
    (record,) = [one for one in peer.simulator.records() if one.accepted]
    assert repeated == Accepted(record.provider_id)


def test_a_code_of_no_table_under_400_is_settled_by_the_uuid(peer: Peer) -> None:
    (doubt,) = peer.send(peer.call(5), Faults(codes={"987654": 1.0}))
    assert doubt == Unknown("987654", "error 987654")
    assert isinstance(peer.send(peer.call(5, attempt=2))[0], Accepted)
    assert peer.accepted().count(peer.call(5).deliveries[0].receiver) == 1


def test_the_uuids_hour_outlives_a_restart_of_the_simulator(
    tmp_path: Path, transport: Transport
) -> None:
    with spawn(tmp_path) as first:
        peer = Peer("feishu", first, transport)
        (sent,) = peer.send(peer.call(1))
    with spawn(tmp_path) as second:
        peer = Peer("feishu", second, transport)
        assert peer.send(peer.call(1, attempt=2)) == [sent]
        assert len(peer.accepted()) == 1


def test_an_expired_token_is_renewed_once_and_the_message_sent_once(peer: Peer) -> None:
    assert isinstance(peer.send(peer.call(2))[0], Accepted)
    peer.simulator.control(expire_tokens=True)
    peer.recorder.exchanges.clear()
    assert isinstance(peer.send(peer.call(3))[0], Accepted)
    assert [one.purpose for one in peer.recorder.exchanges] == ["send", "token", "send"]


def test_a_wrong_secret_sends_nothing(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(4, app_secret="wrong"))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.detail) == ("login_refused", "10014: app secret invalid")


def test_the_simulator_refuses_what_the_provider_would(peer: Peer) -> None:
    token = peer.tokens.get(peer.account, FeishuTokens())
    (one,) = deliveries("feishu", ["ou_1"], {"text": "a" * 160_000})
    reply = peer.recorder.send(CHANNEL.request(Call(peer.account, [one], token)))
    (outcome,) = CHANNEL.outcomes(call(), reply)
    assert isinstance(outcome, Rejected)
    assert outcome.code == "230025"


def test_nothing_is_doubled_or_lost_while_one_in_five_calls_fails(
    tmp_path: Path, transport: Transport
) -> None:
    many = range(10_000, 10_500)
    faults = Faults(reset=0.1, close=0.05, drop=0.05, codes={"230020": 0.1})
    with spawn(tmp_path, fsync=False, behaviours={"feishu": {"limits": "off"}}) as simulator:
        peer = Peer("feishu", simulator, transport)
        simulator.control(rules=[faults])
        assert all(isinstance(peer.deliver(number), Accepted) for number in many)
        accepted = peer.accepted()
        receivers = [peer.call(number).deliveries[0].receiver for number in many]
        assert [accepted.count(receiver) for receiver in receivers] == [1] * len(many)


def test_a_burst_is_refused_for_pace_by_the_application_and_by_the_receiver(tmp_path: Path) -> None:
    """What the provider does by itself is what the simulator does without being told."""
    transport = Transport()
    with spawn(tmp_path, fsync=False) as simulator:
        burst = Peer("feishu", simulator, transport)
        one = [burst.send(burst.call(1, attempt=n))[0] for n in range(1, 9)]
        each = [burst.send(burst.call(number))[0] for number in range(2, 1_100)]
    transport.close()
    assert {o.code for o in one if isinstance(o, NotSent)} <= {"230020"}
    refused = [outcome for outcome in each if isinstance(outcome, NotSent)]
    assert refused
    assert {(o.code, o.limit, o.retry_after_ms) for o in refused} == {
        ("99991400", Limit.ACCOUNT, 60_000)
    }
    assert all(isinstance(outcome, Accepted | NotSent) for outcome in each)
    assert sum(isinstance(outcome, Accepted) for outcome in each) <= 1_000
