"""DingTalk's work notices: literal requests out, literal answers in, then the simulator's own opinion."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from channels.channel import (
    Attempt,
    Call,
    Failure,
    Phase,
    Resolution,
    ResolveResult,
    SentCall,
    TokenRefused,
)
from channels.engine import Asked
from channels.http_client.transport import Transport
from channels.providers.dingtalk.app import DingTalkChannel
from channels.providers.dingtalk.app_account import DingTalkTokens
from channels.providers.dingtalk.errors import RECEIVER_CODES
from channels.registry import AccountError
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from simulator import Faults, Simulator
from tests.channels.providers.chats import Peer, account_of, deliveries
from tests.harness.simulators import spawn
from tests.harness.waiting import await_

CHANNEL = DingTalkChannel()
TABLE = {"provider": "dingtalk", "app_key": "ding1", "app_secret": "s3 cr&t", "agent_id": 7}
CHINA = timezone(timedelta(hours=8))
NOON = datetime(2026, 5, 1, 12, tzinfo=CHINA).timestamp()
NOON_MS = int(NOON * 1_000)


def call(
    *receivers: str, content: dict[str, Any] | None = None, attempt: int = 1, **account: Any
) -> Call:
    made = deliveries(
        "dingtalk", receivers or ("u1",), content or {"text": "你好"}, attempt=attempt
    )
    return Call(account_of(TABLE, **account), made, "t/oken")


def answer(body: object, status: int = 200) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(body).encode())


def outcome_of(answer: httpx.Response | Failure, attempt: int = 1) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(attempt=attempt), answer)
    return outcome


def refusal(content: dict[str, Any] | None, receiver: str = "u1") -> str:
    template = None if content is not None else Template("T1", {})
    (one,) = deliveries("dingtalk", [receiver], content, template)
    return CHANNEL.refusal(account_of(TABLE), one)


def test_one_call_names_all_members_and_says_it_once() -> None:
    request = CHANNEL.request(call("u1", "u2", "u3"))
    assert request.method == "POST"
    assert str(request.url) == (
        "https://provider.example/topapi/message/corpconversation/asyncsend_v2"
        "?access_token=t%2Foken"
    )
    assert request.headers["content-type"] == "application/json"
    assert request.read().decode() == (
        '{"agent_id":7,"userid_list":"u1,u2,u3","to_all_user":false,'
        '"msg":{"msgtype":"text","text":{"content":"你好"}}}'
    )


def test_what_the_endpoint_has_stays_in_front() -> None:
    request = CHANNEL.request(call(endpoint="http://127.0.0.1:1/ding/?via=proxy"))
    assert request.url.raw_path == (
        b"/ding/topapi/message/corpconversation/asyncsend_v2?via=proxy&access_token=t%2Foken"
    )


@pytest.mark.parametrize(
    ("content", "msg"),
    [
        (
            {"markdown": {"title": "a", "text": "# b"}},
            {"msgtype": "markdown", "markdown": {"title": "a", "text": "# b"}},
        ),
        (
            {"link": {"title": "a", "text": "b", "url": "https://c", "image": "@d"}},
            {
                "msgtype": "link",
                "link": {"messageUrl": "https://c", "picUrl": "@d", "title": "a", "text": "b"},
            },
        ),
        (
            {
                "action_card": {
                    "title": "a",
                    "text": "b",
                    "single": {"title": "open", "url": "https://c"},
                }
            },
            {
                "msgtype": "action_card",
                "action_card": {
                    "title": "a",
                    "markdown": "b",
                    "single_title": "open",
                    "single_url": "https://c",
                },
            },
        ),
        (
            {
                "action_card": {
                    "title": "a",
                    "text": "b",
                    "orientation": "horizontal",
                    "buttons": [{"title": "x", "url": "https://x"}],
                }
            },
            {
                "msgtype": "action_card",
                "action_card": {
                    "title": "a",
                    "markdown": "b",
                    "btn_orientation": "1",
                    "btn_json_list": [{"title": "x", "action_url": "https://x"}],
                },
            },
        ),
        (
            {"oa": {"head": {"bgcolor": "FFBBBBBB", "text": "a"}, "body": {"title": "b"}}},
            {
                "msgtype": "oa",
                "oa": {"head": {"bgcolor": "FFBBBBBB", "text": "a"}, "body": {"title": "b"}},
            },
        ),
        ({"image": {"media_id": "@i"}}, {"msgtype": "image", "image": {"media_id": "@i"}}),
        ({"file": {"media_id": "@f"}}, {"msgtype": "file", "file": {"media_id": "@f"}}),
    ],
)
def test_each_kind_of_content_is_worded_as_documented(
    content: dict[str, Any], msg: dict[str, Any]
) -> None:
    assert refusal(content) == ""
    assert json.loads(CHANNEL.request(call(content=content)).read())["msg"] == msg


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no_provider_template: "),
        ({}, "bad_content: give exactly one of text, markdown, link, action_card, oa, image, file"),
        ({"text": "a", "markdown": {"title": "a", "text": "b"}}, "bad_content: give exactly one"),
        ({"text": ""}, "bad_content: "),
        ({"text": 7}, "bad_content: Expected `str"),
        ({"txt": "a"}, "bad_content: Object contains unknown field `txt`"),
        ({"markdown": {"text": "b"}}, "bad_content: Object missing required field `title`"),
        ({"feed_card": [{"title": "a", "url": "b", "image": "c"}]}, "bad_content: this provider"),
        ({"text": "a", "at": {"all": True}}, "bad_content: this provider cannot send at"),
        ({"action_card": {"title": "a", "text": "b"}}, "bad_content: action_card: give exactly"),
        ({"text": "一" * 700}, "too_long: the message has 2,140 bytes; DingTalk takes 2,048"),
        ({"text": "\ud800"}, "bad_content: cannot be written as JSON"),
    ],
)
def test_a_content_that_cannot_be_sent_is_refused_in_one_sentence(
    content: dict[str, Any] | None, said: str
) -> None:
    assert refusal(content).startswith(said)


@pytest.mark.parametrize("receiver", ["a,b", "u" * 65])
def test_a_userid_that_cannot_be_one_is_refused(receiver: str) -> None:
    assert refusal({"text": "a"}, receiver).startswith("bad_receiver: ")


def test_deliveries_that_say_the_same_share_a_call() -> None:
    same, too = deliveries("dingtalk", ["u1", "u2"], {"text": "a"})
    (other,) = deliveries("dingtalk", ["u3"], {"text": "b"})
    assert CHANNEL.batch_key(same) == CHANNEL.batch_key(too)
    assert CHANNEL.batch_key(same) != CHANNEL.batch_key(other)


def test_the_digest_is_of_content_and_day_whoever_is_named() -> None:
    at_noon = DingTalkChannel(lambda: NOON)
    digest = at_noon.fingerprint(call("u1"))
    assert digest == DingTalkChannel(lambda: NOON + 3_600).fingerprint(call("u2", attempt=2))
    assert digest != at_noon.fingerprint(call(content={"text": "other"}))
    assert digest != DingTalkChannel(lambda: NOON + 13 * 3_600).fingerprint(call("u1"))


def test_no_repeat_is_relied_on_across_midnight_in_china() -> None:
    midnight = NOON + 12 * 3_600
    digests = [
        DingTalkChannel(lambda at=at: at).fingerprint(call())  # type: ignore[misc]
        for at in (midnight - 300, midnight - 60, midnight - 30, midnight + 1)
    ]
    assert len(set(digests)) == len(digests)


def test_the_task_is_the_providers_name_for_every_member() -> None:
    said = answer({"errcode": 0, "errmsg": "ok", "task_id": 256271667526, "request_id": "r"})
    assert CHANNEL.outcomes(call("u1", "u2"), said) == [Accepted("256271667526", queued=True)] * 2


def test_their_words_are_kept() -> None:
    assert outcome_of(answer({"errcode": 40, "errmsg": "why"})) == Rejected("40", "why")


def test_behind_the_gateways_88_the_sub_code_tells() -> None:
    said = {"errcode": 88, "sub_code": "60011", "sub_msg": "没有调用该接口的权限", "errmsg": "x"}
    outcome = outcome_of(answer(said))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.detail, outcome.account) == (
        "60011",
        "没有调用该接口的权限",
        True,
    )


def test_the_same_content_today_proves_an_earlier_attempt_and_refuses_a_first() -> None:
    said = answer({"errcode": 143106, "errmsg": "same content"})
    assert isinstance(outcome_of(said, attempt=1), Rejected)
    assert isinstance(outcome_of(said, attempt=2), Accepted)


@pytest.mark.parametrize(
    "body",
    [b"", b"ok", b"[]", b"{}", b'{"errcode":"0"}', b'{"errcode":null}', b"\xff", b"[" * 100_000],
)
def test_a_malformed_answer_leaves_the_call_in_doubt(body: bytes) -> None:
    assert isinstance(outcome_of(httpx.Response(200, content=body)), Unknown)


def test_what_is_not_in_the_table_is_in_doubt() -> None:
    assert isinstance(outcome_of(answer({"errcode": 987654})), Unknown)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (httpx.Response(502, content=b"<html>"), Unknown),
        (httpx.Response(429), NotSent),
        (answer({"errcode": 0}, 500), Unknown),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
    ],
)
def test_answers_that_are_not_dingtalks_are_judged_by_status_and_phase(
    given: httpx.Response | Failure, kind: type[AnyOutcome]
) -> None:
    assert type(outcome_of(given)) is kind


def test_a_token_is_asked_for_with_key_and_secret() -> None:
    request = DingTalkTokens().request(account_of(TABLE), "")
    assert str(request.url) == (
        "https://provider.example/gettoken?appkey=ding1&appsecret=s3%20cr%26t"
    )
    token = DingTalkTokens().read(
        answer({"errcode": 0, "errmsg": "ok", "access_token": "T", "expires_in": 7200})
    )
    assert (token.text, token.expires_in_s) == ("T", 7200.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (answer({"errcode": 40089, "errmsg": "bad secret"}), "40089: bad secret"),
        (answer({"errcode": 0}), "http_200: an answer without a token"),
        (httpx.Response(503), "http_503: an answer without a token"),
    ],
)
def test_a_refused_token_says_the_providers_code(given: httpx.Response, said: str) -> None:
    with pytest.raises(TokenRefused, match=said):
        DingTalkTokens().read(given)


@pytest.mark.parametrize(
    ("code", "refused"), [(40001, True), (40014, True), (42001, True), (41001, True), (0, False)]
)
def test_the_tokens_own_errors_are_told_from_others(code: int, refused: bool) -> None:
    assert CHANNEL.token_refused(answer({"errcode": code})) is refused
    assert CHANNEL.token_refused(answer({"errcode": 88, "sub_code": str(code)})) is refused


def found_by(
    given: httpx.Response | Failure,
    *,
    attempt: int = 1,
    doubted: bool = False,
    now: int = NOON_MS,
) -> ResolveResult:
    (one,) = deliveries("dingtalk", ["u1"], {"text": "a"}, attempt=attempt)
    earlier = now - 60_000 if doubted else now
    asked = Attempt(one, called_at=earlier, now=now, token="T", last_called_at=now, task="99")
    dialogue = CHANNEL.resolve(account_of(TABLE), asked)
    assert dialogue is not None
    request = next(dialogue)
    assert request.url.raw_path.endswith(b"/getsendresult?access_token=T")
    assert request.read() == b'{"agent_id":7,"task_id":99}'
    with pytest.raises(StopIteration) as end:
        dialogue.send(given)
    found: ResolveResult = end.value.value
    return found


def kept_back(code: str) -> dict[str, Any]:
    return {"forbidden_list": [{"code": code, "count": 1, "userid": "u1"}]}


def test_a_limit_of_the_day_waits_for_the_next_in_china() -> None:
    late = found_by(answer({"errcode": 0, "send_result": kept_back("143105")}))
    assert late.delay_ms == 12 * 3_600_000
    soon = found_by(answer({"errcode": 0, "send_result": kept_back("143103")}))
    assert soon.delay_ms == 60_000


def test_the_same_content_in_a_result_proves_an_earlier_attempt() -> None:
    said = answer({"errcode": 0, "send_result": kept_back("143106")})
    found = found_by(said, attempt=2, doubted=True)
    assert found == ResolveResult(Resolution.SENT), "the task that reached nobody is not its name"
    assert (
        found_by(said, attempt=2).resolution is Resolution.REFUSED
    )  # the first surely was not sent


def test_a_task_is_not_a_delivery_unless_the_account_says_so() -> None:
    said = answer({"errcode": 0, "task_id": 256})
    assert CHANNEL.outcomes(call("u1", "u2"), said) == [Accepted("256", queued=True)] * 2
    assert CHANNEL.outcomes(call(confirm=False), said) == [Accepted("256")]


def test_a_later_attempt_whose_result_nobody_reads_cannot_be_recalled_by_its_task() -> None:
    """Its task may have reached nobody, and a recall of it would be answered with success."""
    unread = call(confirm=False)
    for delivery in unread.deliveries:
        delivery.attempt = 2
    (found,) = CHANNEL.outcomes(unread, answer({"errcode": 0, "task_id": 256}))
    assert found == Accepted()
    assert CHANNEL.recall(unread.account, SentCall("")) is None


def test_an_acceptance_without_a_task_is_in_doubt() -> None:
    assert isinstance(outcome_of(answer({"errcode": 0, "errmsg": "ok"})), Unknown)


@pytest.mark.parametrize("code", sorted(RECEIVER_CODES))
def test_a_refusal_for_one_of_several_comes_back_each_alone(code: str) -> None:
    said = answer({"errcode": int(code), "errmsg": "why"})
    several = call("u1", "u2", "u3")
    outcomes = CHANNEL.outcomes(several, said)
    assert [type(outcome) for outcome in outcomes] == [NotSent] * 3
    assert not any(isinstance(one, NotSent) and one.account for one in outcomes)
    assert all(isinstance(one, NotSent) and one.joint for one in outcomes), "it parks none of them"
    assert isinstance(outcome_of(said), Rejected)
    again = deliveries("dingtalk", ["u1", "u2", "u3"], {"text": "你好"}, attempt=2)
    assert len({CHANNEL.batch_key(one) for one in again}) == 3
    assert len({CHANNEL.batch_key(one) for one in several.deliveries}) == 1


@pytest.mark.parametrize(
    ("result", "resolution", "detail"),
    [
        ({"read_user_id_list": ["u1"]}, Resolution.SENT, ""),
        ({"unread_user_id_list": ["u0", "u1"]}, Resolution.SENT, ""),
        (
            {"invalid_user_id_list": ["u1"]},
            Resolution.REFUSED,
            "invalid_user: no such member, or out of sight",
        ),
        ({"failed_user_id_list": ["u1"]}, Resolution.NOT_SENT, "failed"),
        ({"forbidden_user_id_list": ["u1"]}, Resolution.NOT_SENT, "forbidden"),
        # Should it stand among the unread as well, the reason why it was kept back is the better word.
        (
            {"forbidden_user_id_list": ["u1"], "unread_user_id_list": ["u1"]},
            Resolution.NOT_SENT,
            "forbidden",
        ),
        (kept_back("143103"), Resolution.NOT_SENT, "143103"),
        (kept_back("143104"), Resolution.NOT_SENT, "143104"),
        (kept_back("143105"), Resolution.NOT_SENT, "143105"),
        (kept_back("999999"), Resolution.NOT_SENT, "999999"),
        (
            kept_back("143106"),
            Resolution.REFUSED,
            "143106: the member has had this very content today",
        ),
        (kept_back("1430002"), Resolution.REFUSED, "1430002: the content is forbidden"),
        ({"unread_user_id_list": ["u2"]}, Resolution.ASK_LATER, "in none of the task's lists yet"),
    ],
)
def test_a_known_task_tells_what_became_of_a_member(
    result: dict[str, Any], resolution: Resolution, detail: str
) -> None:
    found = found_by(answer({"errcode": 0, "send_result": result}))
    assert (found.resolution, found.detail) == (resolution, detail)


@pytest.mark.parametrize(
    "given",
    [
        answer({"errcode": 40035, "errmsg": "no such task"}),
        answer({"errcode": 0}),
        httpx.Response(502),
        Failure(Phase.WRITTEN, "timeout"),
    ],
)
def test_a_query_that_fails_settles_nothing(given: httpx.Response | Failure) -> None:
    assert found_by(given).resolution is Resolution.ASK_LATER


def test_an_attempt_without_a_task_has_no_query() -> None:
    (one,) = deliveries("dingtalk", ["u1"], {"text": "a"})
    assert CHANNEL.resolve(account_of(TABLE), Attempt(one, called_at=1, now=2)) is None


def test_options_are_checked_and_the_secret_is_never_shown() -> None:
    account = account_of(TABLE, ca_file="/ca.pem")
    assert "s3 cr&t" not in repr(account)
    assert CHANNEL.request(call(ca_file="/ca.pem")).extensions["ca_file"] == "/ca.pem"
    with pytest.raises(AccountError, match="agent_id"):
        account_of({**TABLE, "agent_id": "seven"})


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    late = {"dingtalk": {"results_after_ms": "2000"}}  # a busy machine asks late, too
    with spawn(tmp_path_factory.mktemp("dingtalk"), fsync=False, behaviours=late) as started:
        yield started


@pytest.fixture
def peer(simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer("dingtalk", simulator, transport)
    transport.close()


def test_a_notice_whose_answer_was_lost_is_repeated_without_a_double(peer: Peer) -> None:
    first = peer.call(101)
    (lost,) = peer.send(first, Faults(reset=1.0))
    assert isinstance(lost, Unknown)
    again = peer.call(101, attempt=2)
    assert peer.channel.fingerprint(first) == peer.channel.fingerprint(again)
    (repeated,) = peer.send(again)
    assert isinstance(repeated, Accepted)
    assert peer.accepted().count("user-101") == 1


def test_a_repeat_is_a_task_of_its_own_which_reaches_nobody(peer: Peer) -> None:
    notice = peer.call(151)
    (one,) = notice.deliveries
    tasks = [outcome.provider_id for outcome in peer.send(notice) + peer.send(peer.call(151))]  # type: ignore[union-attr]
    assert len(set(tasks)) == 2

    def asked(task: str) -> tuple[Resolution, str]:
        attempt = msgspec.structs.replace(peer.attempt(one), task=task)
        found = peer.engine.resolve(peer.channel, peer.account, attempt, 5.0)
        assert found is not None
        return found.resolution, found.detail.partition(": ")[0]

    assert await_(
        lambda: (
            (told := [asked(task) for task in tasks])[1][0] is not Resolution.ASK_LATER and told
        ),
        timeout=10,
    ) == [(Resolution.SENT, ""), (Resolution.REFUSED, "143106")]


def test_one_member_that_is_not_reached_is_told_by_the_task_and_hides_no_other(peer: Peer) -> None:
    notice = peer.call(201, 202, 203)
    rule = Faults(receiver="user-201", receiver_codes={"143105": 1.0})
    outcomes = peer.send(notice, rule)
    (task,) = {outcome.provider_id for outcome in outcomes if isinstance(outcome, Accepted)}
    channel = peer.channel
    assert isinstance(channel, DingTalkChannel)

    def asked() -> list[tuple[Resolution, str]]:
        known: Asked = {}
        attempts = (
            msgspec.structs.replace(peer.attempt(one), task=task) for one in notice.deliveries
        )
        found = (peer.engine.resolve(channel, peer.account, one, 5.0, known) for one in attempts)
        told = [(one.resolution, one.detail) for one in found if one is not None]
        assert len(known) == 1  # one question, however many members
        return told

    early = asked()
    assert early == [(Resolution.ASK_LATER, "in none of the task's lists yet")] * 3
    assert await_(lambda: (found := asked()) != early and found, timeout=10) == [
        (Resolution.NOT_SENT, "143105"),
        (Resolution.SENT, ""),
        (Resolution.SENT, ""),
    ]


def test_an_expired_token_is_renewed_once_and_the_notice_sent_once(peer: Peer) -> None:
    assert isinstance(peer.send(peer.call(301))[0], Accepted)
    peer.simulator.control(expire_tokens=True)
    peer.recorder.exchanges.clear()
    assert isinstance(peer.send(peer.call(302))[0], Accepted)
    assert [one.purpose for one in peer.recorder.exchanges] == ["send", "token", "send"]
    assert peer.accepted().count("user-302") == 1


def test_a_wrong_secret_sends_nothing(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(401, app_secret="wrong"))
    assert isinstance(outcome, NotSent)
    assert outcome.code == "login_refused"
    assert "40089" in outcome.detail


def test_another_agent_is_the_accounts_fault(peer: Peer) -> None:
    (outcome,) = peer.send(peer.call(501, agent_id=5))
    assert isinstance(outcome, NotSent)
    assert (outcome.code, outcome.account) == ("40056", True)


def test_the_dedup_outlives_a_restart_of_the_simulator(tmp_path: Path) -> None:
    transport = Transport()
    with spawn(tmp_path) as first:
        peer = Peer("dingtalk", first, transport)
        assert isinstance(peer.send(peer.call(1))[0], Accepted)
    with spawn(tmp_path) as second:
        peer = Peer("dingtalk", second, transport)
        assert isinstance(peer.send(peer.call(1, attempt=2))[0], Accepted)
        assert peer.accepted() == ["user-1"]
    transport.close()


def test_nothing_is_doubled_or_lost_while_one_in_five_calls_fails(peer: Peer) -> None:
    many = range(10_000, 10_500)
    faults = Faults(reset=0.1, close=0.05, drop=0.05, codes={"143103": 0.1})
    peer.simulator.control(rules=[faults])
    assert all(isinstance(peer.deliver(number), Accepted) for number in many)
    answers = {record.answer for record in peer.simulator.records()}
    assert answers >= {"reset", "close", "drop", "duplicate", "200"}
    accepted = peer.accepted()
    receivers = [peer.call(number).deliveries[0].receiver for number in many]
    assert [accepted.count(receiver) for receiver in receivers] == [1] * len(many)
