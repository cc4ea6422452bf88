"""WeCom applications: literal bytes in, outcomes out; then the same through a simulator process."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase, TokenRefused
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.wecom.app import CorpToken, WecomChannel
from channels.providers.wecom.errors import RECEIVER_CODES
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from sending.lane_routes import Route
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

CHANNEL = WecomChannel()
TEXT: dict[str, Any] = {"text": "早上好"}
CARD = {"card_type": "text_notice", "main_title": {"title": "审批"}, "card_action": {"type": 1}}


def mine(endpoint: str = "https://proxy.example/qy", *, checked: bool = True) -> Account:
    options = {"corpid": "simulator-id", "corpsecret": "simulator-secret", "agentid": 1000002}
    return account("wecom", endpoint, duplicate_check=checked, **options)


def each(*receivers: str, **fields: Any) -> list[Delivery]:
    fields.setdefault("content", None if "template" in fields else TEXT)
    return deliveries("wecom", *(receivers or ("zhangsan",)), **fields)


def outcomes_of(got: httpx.Response | Failure, *receivers: str) -> list[AnyOutcome]:
    return CHANNEL.outcomes(call(mine(), each(*receivers)), got)


def test_the_request_byte_by_byte() -> None:
    made = each("wangwu", "zhangsan", "lisi")
    request = CHANNEL.request(Call(mine(), made, "t/k"))
    assert request.url.raw_path == b"/qy/cgi-bin/message/send?access_token=t%2Fk"
    assert request.read().decode() == (
        f'{{"agentid":1000002,"client_call":"{made[0].key}","duplicate_check_interval":1800,'
        '"enable_duplicate_check":1,"msgtype":"text","safe":0,"text":{"content":"早上好"},'
        '"touser":"lisi|wangwu|zhangsan"}'
    )


def test_the_fingerprint_is_of_the_body_and_the_order_of_receivers_is_not_in_it() -> None:
    made = each("a1", "b2", "c3")
    whole = call(mine(), made)
    assert CHANNEL.fingerprint(whole) == sha256(CHANNEL.request(whole).read()).hexdigest()
    assert CHANNEL.fingerprint(whole) == CHANNEL.fingerprint(call(mine(), made[::-1]))
    assert CHANNEL.fingerprint(whole) != CHANNEL.fingerprint(call(mine(), made[:2]))
    other = each("a1", "b2", "c3", message_id="m-2")
    assert CHANNEL.fingerprint(whole) != CHANNEL.fingerprint(call(mine(), other))


@pytest.mark.parametrize(
    ("content", "kind", "inner"),
    [
        ({"text": {"content": "x"}}, "text", {"content": "x"}),
        ({"markdown": "**x**"}, "markdown", {"content": "**x**"}),
        (
            {"textcard": {"title": "t", "description": "d", "url": "https://e.example"}},
            "textcard",
            {"title": "t", "description": "d", "url": "https://e.example"},
        ),
        (
            {"news": {"articles": [{"title": "t", "url": "https://e.example"}]}},
            "news",
            {"articles": [{"title": "t", "url": "https://e.example"}]},
        ),
        ({"file": {"media_id": "1Yv-zXfHjSjU"}}, "file", {"media_id": "1Yv-zXfHjSjU"}),
    ],
)
def test_each_kind_of_message(content: dict[str, Any], kind: str, inner: dict[str, Any]) -> None:
    made = each(content={**content, "safe": 1})
    assert CHANNEL.refusal(mine(), made[0]) == ""
    body = body_of(CHANNEL.request(call(mine(), made)))
    assert (body["msgtype"], body[kind], body["safe"]) == (kind, inner, 1)


def test_a_card_is_known_by_the_calls_key_unless_it_has_a_name() -> None:
    made = each(content={"template_card": CARD})
    body = body_of(CHANNEL.request(call(mine(), made)))
    assert body["template_card"] == {**CARD, "task_id": made[0].key}
    named = each(content={"template_card": {**CARD, "task_id": "approval-7"}})
    body = body_of(CHANNEL.request(call(mine(), named)))
    assert body["template_card"]["task_id"] == "approval-7"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"receiver": "@all"}, "bad_userid"),
        ({"receiver": "a|b"}, "bad_userid"),
        ({"receiver": "张三"}, "bad_userid"),
        ({"template": Template("T", {})}, "no_template"),
        ({"content": {}}, "bad_content"),
        ({"content": {"text": "a", "markdown": "b"}}, "bad_content"),
        ({"content": {"text": ""}}, "bad_content"),
        ({"content": {"text": "x", "safe": 3}}, "bad_content"),
        ({"content": {"text": "x" * 2_049}}, "too_long"),
        ({"content": {"text": "汉" * 683}}, "too_long"),
        ({"content": {"text": "bell \x07"}}, "bad_character"),
        ({"content": {"text": {"content": "x", "mentioned_list": ["a"]}}}, "bad_content"),
        ({"content": {"textcard": {"title": "t", "description": "d"}}}, "bad_content"),
        ({"content": {"news": {"articles": []}}}, "bad_content"),
        ({"content": {"news": {"articles": [{"title": "t"}]}}}, "bad_content"),
        ({"content": {"file": {"media_id": ""}}}, "bad_content"),
        ({"content": {"template_card": {"card_type": "x"}}}, "bad_content"),
        ({"content": {"template_card": {**CARD, "task_id": "a b"}}}, "bad_content"),
        ({"content": {"mpnews": {"media_id": "x"}}}, "bad_content"),
    ],
)
def test_what_can_never_be_sent_is_refused_with_its_reason(
    fields: dict[str, Any], code: str
) -> None:
    (one,) = each(fields.pop("receiver", "zhangsan"), **fields)
    refused = CHANNEL.refusal(mine(), one)
    assert refused.startswith(f"{code}: ")


def test_members_of_one_content_join_and_a_retry_goes_alone() -> None:
    first, second = each("a1", "b2")
    (other,) = each("c3", content={"text": "晚上好"})
    assert CHANNEL.batch_key(first) == CHANNEL.batch_key(second) != CHANNEL.batch_key(other)
    first.attempt = second.attempt = 2
    assert CHANNEL.batch_key(first) != CHANNEL.batch_key(second)
    assert CHANNEL.max_batch == 1_000


def test_members_who_got_nothing_are_told_from_those_who_did() -> None:
    got = answer(
        errcode=0,
        errmsg="ok",
        msgid="m7",
        invaliduser="lisi|nobody",
        unlicenseduser="zhaoliu",
    )
    outcomes = outcomes_of(got, "ZhangSan", "LiSi", "zhaoliu", "wangwu")
    assert kinds(outcomes) == ["Accepted", "Rejected", "Rejected", "Accepted"]
    assert outcomes[0] == Accepted("m7")
    assert [o.code for o in outcomes if isinstance(o, Rejected)] == [
        "invaliduser",
        "unlicenseduser",
    ]


def test_a_call_that_reached_nobody_names_each_members_reason() -> None:
    got = answer(errcode=81013, errmsg="all invalid", invaliduser="a1", unlicenseduser="b2")
    codes = [o.code for o in outcomes_of(got, "a1", "b2", "c3") if isinstance(o, Rejected)]
    assert codes == ["invaliduser", "unlicenseduser", "81013"]


@pytest.mark.parametrize("code", sorted(RECEIVER_CODES))
def test_a_call_refused_for_one_of_several_rejects_none_of_them(code: str) -> None:
    (alone,) = outcomes_of(answer(errcode=int(code), errmsg="x"), "a1")
    assert isinstance(alone, Rejected)
    for outcome in outcomes_of(answer(errcode=int(code), errmsg="x"), "a1", "b2"):
        assert isinstance(outcome, NotSent)
        assert (outcome.code, outcome.account) == (code, False)
        assert outcome.joint, "it parks none of them"


def test_a_member_who_stands_twice_in_a_call_is_served_once_and_then_again() -> None:
    made = [*each("ZhangSan"), *each("zhangsan", message_id="m-2"), *each("lisi", message_id="m-3")]
    whole = call(mine(), made)
    assert body_of(CHANNEL.request(whole))["touser"] == "ZhangSan|lisi"
    outcomes = CHANNEL.outcomes(whole, answer(errcode=0, msgid="m7"))
    assert outcomes == [
        Accepted("m7"),
        NotSent("same_member", "the call had one for this member", 1_000, joint=True),
        Accepted("m7"),
    ]
    lost = CHANNEL.outcomes(whole, Failure(Phase.WRITTEN, "reset"))
    assert kinds(lost) == ["Unknown", "NotSent", "Unknown"]


def test_their_words_are_kept() -> None:
    assert outcomes_of(answer(errcode=40058, errmsg="said")) == [Rejected("40058", "said")]


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
        (httpx.Response(500), Unknown),
        (httpx.Response(200, content=b"ok"), Unknown),
        (httpx.Response(200, content=b"{}"), Unknown),
        (answer(errcode=1234567), Unknown),
        (httpx.Response(200, content=b'{"errcode":0,"invaliduser":7}'), Unknown),
        (httpx.Response(200, content=b'{"errcode":0,"invaliduser":null}'), Accepted),
        (httpx.Response(200, content=b'{"errcode":81013,"invaliduser":7}'), Rejected),
        (httpx.Response(200, content=b'{"errcode":40058,"errmsg":null}'), Rejected),
    ],
)
def test_every_answer_has_an_outcome_for_everyone(
    got: httpx.Response | Failure, kind: type[object]
) -> None:
    outcomes = outcomes_of(got, "a1", "b2", "c3")
    assert len(outcomes) == 3
    assert all(isinstance(outcome, kind) for outcome in outcomes)


def test_who_is_named_beside_a_null_got_nothing() -> None:
    got = httpx.Response(
        200, content=b'{"errcode":0,"msgid":"m","invaliduser":null,"unlicenseduser":"b2"}'
    )
    kinds = [type(outcome) for outcome in outcomes_of(got, "a1", "b2", "c3")]
    assert kinds == [Accepted, Rejected, Accepted]


def test_a_missing_token_is_fetched_and_the_call_made_again() -> None:
    assert CHANNEL.token_refused(answer(errcode=41001))


def test_the_token_request_byte_by_byte() -> None:
    request = CorpToken().request(mine(), "stale")
    assert (request.method, request.url.raw_path) == (
        "GET",
        b"/qy/cgi-bin/gettoken?corpid=simulator-id&corpsecret=simulator-secret",
    )
    assert CorpToken().read(answer(errcode=0, access_token="t", expires_in=7200)).text == "t"
    with pytest.raises(TokenRefused, match=r"^40001 invalid credential$"):
        CorpToken().read(answer(errcode=40001, errmsg="invalid credential"))


def test_what_is_in_doubt_is_repeated_inside_the_window() -> None:
    assert CHANNEL.resolve(mine(), Attempt(each()[0], called_at=1, now=2)) is None
    assert 0 < CHANNEL.dedup_window_ms < 1_800_000


def test_without_the_check_nothing_is_dropped_and_nothing_relied_on() -> None:
    """Whether WeCom looks at a member of the request that it does not know is not documented."""
    made = each()
    call_there = Call(mine(checked=False), made, "t")
    assert CHANNEL.request(call_there).read().decode() == (
        '{"agentid":1000002,"msgtype":"text","safe":0,"text":{"content":"早上好"},"touser":"zhangsan"}'
    )
    assert CHANNEL.fingerprint(call_there) == ""
    for checked, relied in ((True, True), (False, False)):
        there = mine(checked=checked)
        assert bool(CHANNEL.dedup_window(there)) is relied
        assert bool(Route(there, CHANNEL).window_ends(1, 1_000)) is relied


def test_the_check_is_off_unless_the_account_says_so() -> None:
    options = {"corpid": "simulator-id", "corpsecret": "simulator-secret", "agentid": 1000002}
    assert account("wecom", "https://proxy.example/qy", **options).options.duplicate_check is False


@pytest.mark.parametrize(("checked", "arrived"), [(False, 2), (True, 1)])
def test_should_they_compare_what_they_know_the_check_loses_an_equal_text(
    tmp_path: Path, checked: bool, arrived: int
) -> None:
    behaviours = {"wecom": {"compares": "fields"}}
    with spawn(tmp_path, fsync=False, behaviours=behaviours) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        there = mine(f"{simulator.url}/wecom", checked=checked)
        for message_id in ("m-1", "m-2"):
            made = Call(there, each("a1", message_id=message_id))
            assert kinds(engine.send(CHANNEL, made, 5.0)) == ["Accepted"]
        assert sum(record.accepted for record in simulator.records()) == arrived
        transport.close()


def test_the_limits_that_they_keep_silent_about_are_told() -> None:
    assert CHANNEL.receiver_limits == ((30, 60), (1_000, 3_600))


def test_through_a_simulator(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        mine_there = mine(f"{simulator.url}/wecom")
        made = Call(mine_there, each("a1", "b2", "c3"))
        rules = [Faults(receiver="b2", receiver_codes={"invaliduser": 1.0})]
        simulator.control(rules=rules)
        assert kinds(engine.send(CHANNEL, made, 5.0)) == ["Accepted", "Rejected", "Accepted"]
        again = Call(mine_there, each("a1", "c3", message_id="m-2"))
        simulator.control(rules=[Faults(reset=1.0)])
        assert kinds(engine.send(CHANNEL, again, 5.0)) == ["Unknown"] * 2
        simulator.control(rules=[], expire_tokens=True)
        assert kinds(engine.send(CHANNEL, again, 5.0)) == ["Accepted"] * 2
        accepted = [record.accepted for record in simulator.records()]
        assert accepted == [True, False, True, True, True, False, False]
        assert simulator.report(summary_only=True).summary.doubled == []
        transport.close()


def test_more_than_thirty_a_minute_are_dropped_without_a_word(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        there = mine(f"{simulator.url}/wecom")
        for number in range(32):
            made = Call(there, each("a1", message_id=f"m-{number}"))
            assert kinds(engine.send(CHANNEL, made, 5.0)) == ["Accepted"]
        assert [record.accepted for record in simulator.records()] == [True] * 30 + [False] * 2
        transport.close()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (b'"agentid":1000002->"agentid":1', "40056"),
        (b'"msgtype":"text"->"msgtype":"song"', "40008"),
        ("早->\\u65e9".encode(), "40033"),
        (b'"touser":"zhangsan"->"touser":"|"', "82001"),
        (b"1800->14401", "40058"),
        ("早上好->".encode(), "44004"),
    ],
)
def test_the_simulator_is_as_strict_as_they_are(tmp_path: Path, change: bytes, code: str) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        there = mine(f"{simulator.url}/wecom")
        with httpx.Client(trust_env=False) as client:
            token = CorpToken().read(client.send(CorpToken().request(there, ""))).text
            request = CHANNEL.request(Call(there, each(), token))
            old, _, new = change.partition(b"->")
            body = request.read()
            assert old in body
            told = client.post(request.url, content=body.replace(old, new)).json()
            assert str(told["errcode"]) == code
            good = client.post(request.url, content=body).json()
            assert good["errcode"] == 0
            bad = client.post(str(request.url)[:-3] + "xxx", content=body).json()
            assert bad["errcode"] == 40014
