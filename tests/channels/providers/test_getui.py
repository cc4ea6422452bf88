"""GeTui: one device a call, a request id for each attempt, and what comes back."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from channels.channel import Call, Failure, LoginRefused, Phase, TokenRefused
from channels.http_client.transport import Transport
from channels.providers.getui.adapter import GetuiChannel, GetuiTokens
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import EXPIRES_AT, KEY, Peer, account_of, deliveries
from tests.harness.simulators import spawn

NOW = 1_589_774_613.426
CHANNEL = GetuiChannel(lambda: NOW)
TABLE = {"provider": "getui", "app_id": "appid", "app_key": "appkey", "master_secret": "a-secret"}
CID = "0123456789abcdef0123456789abcdef"
NOTICE = {"title": "a title", "text": "a text"}


def call(
    content: dict[str, Any] | None = None,
    receiver: str = CID,
    *,
    attempt: int = 1,
    expires_at: int = EXPIRES_AT,
) -> Call:
    made = deliveries("push", [receiver], content or NOTICE, attempt=attempt, expires_at=expires_at)
    return Call(account_of(TABLE), made, "a-token")


def body(made: Call) -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(CHANNEL.request(made).read())
    return sent


def outcome_of(said: Any, status: int = 200) -> AnyOutcome:
    answer = httpx.Response(status, content=json.dumps(said).encode())
    (outcome,) = CHANNEL.outcomes(call(), answer)
    return outcome


def refusal(content: dict[str, Any], receiver: str = CID) -> str:
    (one,) = deliveries("push", [receiver], content)
    return CHANNEL.refusal(account_of(TABLE), one)


def test_a_push_names_the_device_its_end_and_the_phone_makers_channels() -> None:
    made = call(expires_at=int(NOW * 1_000) + 60_500)
    request = CHANNEL.request(made)
    assert str(request.url) == "https://provider.example/appid/push/single/cid"
    assert request.headers["token"] == "a-token"
    shown = {"title": "a title", "body": "a text", "click_type": "startapp"}
    assert json.loads(request.read()) == {
        "request_id": f"{KEY[:28]}0001",
        "audience": {"cid": [CID]},
        "settings": {"ttl": 60_000},
        "push_message": {"notification": shown},
        "push_channel": {
            "android": {"ups": {"notification": shown}},
            "ios": {
                "type": "notify",
                "aps": {"alert": {"title": "a title", "body": "a text"}},
            },
        },
    }


def test_an_alias_has_an_address_of_its_own() -> None:
    made = call(receiver="alias:ann")
    assert str(CHANNEL.request(made).url).endswith("/appid/push/single/alias")
    assert body(made)["audience"] == {"alias": ["ann"]}


def test_each_attempt_has_a_request_id_of_its_own_and_the_same_call_has_one() -> None:
    ids = [body(call(attempt=attempt))["request_id"] for attempt in (1, 2, 9_999)]
    assert len(set(ids)) == 3
    assert {len(name) for name in ids} == {32}
    assert body(call(attempt=2))["request_id"] == ids[1]


@pytest.mark.parametrize(
    ("left_ms", "ttl"), [(500, -1), (-1, -1), (1_999, 1_000), (10 * 86_400_000, 3 * 86_400_000)]
)
def test_nothing_is_kept_past_its_end(left_ms: int, ttl: int) -> None:
    made = call(expires_at=int(NOW * 1_000) + left_ms)
    assert body(made)["settings"] == {"ttl": ttl}


def test_a_content_in_getuis_own_fields_goes_as_it_is() -> None:
    said = {"title": "t", "body": "b", "click_type": "url", "url": "https://example.com"}
    channel = {"ios": {"type": "notify", "aps": {"alert": {"title": "t"}}}}
    sent = body(call({"notification": said, "push_channel": channel}))
    assert sent["push_message"] == {"notification": said}
    assert sent["push_channel"] == channel
    sent = body(call({"transmission": '{"order": 1}'}))
    assert sent["push_message"] == {"transmission": '{"order": 1}'}
    assert "push_channel" not in sent


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"text": "a"}, "bad_content: give title and text, both"),
        ({"title": "a"}, "bad_content: give title and text, both"),
        ({**NOTICE, "transmission": "x"}, "bad_content: give title and text, notification, or"),
        ({"push_channel": {"ios": {}}}, "bad_content: give title and text, notification, or"),
        ({"title": "a" * 51, "text": "a"}, "bad_content: "),
        ({"title": "a", "text": "a" * 257}, "bad_content: "),
        ({"transmission": "a" * 3_073}, "too_long: "),
        ({"transmission": "\ud800"}, "bad_content: cannot be written as JSON"),
        ({"title": "a", "text": "b", "sound": "x"}, "bad_content: "),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused(content: dict[str, Any], said: str) -> None:
    assert refusal(content).startswith(said)


@pytest.mark.parametrize("receiver", ["short", "alias:", "with blank" * 3, "/topics/news"])
def test_what_is_neither_cid_nor_alias_is_refused(receiver: str) -> None:
    assert refusal(NOTICE, receiver).partition(":")[0] in ("bad_receiver", "wrong_group")
    assert refusal(NOTICE, "alias:ann") == refusal(NOTICE) == ""


@pytest.mark.parametrize("status", ["successed_online", "successed_offline"])
def test_what_is_taken_on_has_the_tasks_id(status: str) -> None:
    said = {"code": 0, "msg": "", "data": {"RASS_1": {CID: status}}}
    assert outcome_of(said) == Accepted("RASS_1")


def test_a_device_that_is_not_active_gets_nothing_and_an_alias_needs_one_device() -> None:
    ignored = outcome_of({"code": 0, "data": {"RASS_1": {CID: "successed_ignore"}}})
    assert isinstance(ignored, Rejected)
    assert ignored.code == "successed_ignore"
    both = {"RASS_1": {"a": "successed_ignore", "b": "successed_offline"}}
    assert outcome_of({"code": 0, "data": both}) == Accepted("RASS_1")


@pytest.mark.parametrize(
    "data", [None, {}, [], {"RASS_1": {}}, {"RASS_1": "x"}, {"RASS_1": {CID: "new_status"}}]
)
def test_a_success_that_does_not_speak_of_the_device_is_in_doubt(data: Any) -> None:
    assert isinstance(outcome_of({"code": 0, "data": data}), Unknown)
    assert isinstance(
        outcome_of({"code": 0, "data": {"R": {CID: "successed_online"}}}, 400), Unknown
    )


def test_limits_pace_and_a_block_list_is_the_accounts() -> None:
    for code in (10003, 10005):
        outcome = outcome_of({"code": code, "msg": "too often"}, 401)
        assert isinstance(outcome, NotSent)
        assert outcome.limit is Limit.ACCOUNT
    blocked = outcome_of({"code": 10002, "msg": "black"}, 401)
    assert isinstance(blocked, NotSent)
    assert (blocked.account, blocked.limit) == (True, Limit.LOGIN)
    invalid = outcome_of({"code": 20001, "msg": "target user is invalid"}, 400)
    assert isinstance(invalid, Rejected)
    assert not invalid.account


def test_only_10001_is_a_refused_token() -> None:
    refused = httpx.Response(401, content=b'{"code": 10001, "msg": "token is invalid"}')
    assert CHANNEL.token_refused(refused)
    for content in (b'{"code": 10002}', b"", b"[]", b'{"msg": "10001"}'):
        assert not CHANNEL.token_refused(httpx.Response(401, content=content))


def test_failures_are_judged_by_what_was_written() -> None:
    for phase, kind in ((Phase.NOT_WRITTEN, NotSent), (Phase.WRITTEN, Unknown)):
        (outcome,) = CHANNEL.outcomes(call(), Failure(phase, "x"))
        assert isinstance(outcome, kind)


def test_a_token_is_asked_for_with_key_time_and_secret() -> None:
    request = GetuiTokens(lambda: NOW).request(account_of(TABLE), "")
    assert str(request.url) == "https://provider.example/appid/auth"
    sign = hashlib.sha256(b"appkey1589774613426a-secret").hexdigest()
    assert json.loads(request.read()) == {
        "sign": sign,
        "timestamp": "1589774613426",
        "appkey": "appkey",
    }


def read(said: Any, status: int = 200) -> Any:
    answer = httpx.Response(status, content=json.dumps(said).encode())
    return GetuiTokens(lambda: NOW).read(answer)


def test_a_token_lives_until_it_says() -> None:
    data = {"expire_time": "1589861013426", "token": "t-1"}
    token = read({"code": 0, "msg": "success", "data": data})
    assert (token.text, round(token.expires_in_s)) == ("t-1", 86_400)


def test_a_wrong_login_is_told_from_one_that_passes() -> None:
    with pytest.raises(LoginRefused):
        read({"code": 20001, "msg": "sign is invalid"}, 400)
    for said, status in (
        ({"code": 10003, "msg": "too often"}, 401),
        ({"code": 2, "msg": "starting"}, 200),
        ({"code": 0, "data": {"token": "t"}}, 200),
        ({"code": 0, "data": {"token": "t", "expire_time": "1589861013426"}}, 500),
        ([], 200),
    ):
        with pytest.raises(TokenRefused) as refused:
            read(said, status)
        assert not isinstance(refused.value, LoginRefused)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("getui"), fsync=False) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("getui", simulator, transport)
    transport.close()


def test_a_token_that_has_expired_is_fetched_anew(peer: Peer) -> None:
    (first,) = peer.send(peer.call(1))
    peer.simulator.control(expire_tokens=True)
    (second,) = peer.send(peer.call(2))
    assert isinstance(first, Accepted)
    assert isinstance(second, Accepted)


def test_a_second_attempt_is_sent_although_the_provider_remembers_the_first(peer: Peer) -> None:
    """The simulator swallows a repeated request id and answers it as a success."""
    before = len(peer.accepted())
    (lost,) = peer.send(peer.call(3), Faults(reset=1.0))
    assert isinstance(lost, Unknown)
    (again,) = peer.send(peer.call(3, attempt=2))
    assert isinstance(again, Accepted)
    assert len(peer.accepted()) == before + 2


def test_a_wrong_secret_is_a_refused_login(peer: Peer) -> None:
    wrong: dict[str, Any] = {"master_secret": "other"}
    (outcome,) = peer.send(peer.call(4, **wrong))
    assert isinstance(outcome, NotSent)
