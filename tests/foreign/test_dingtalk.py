"""`dingtalk-sdk` 1.3.8 judges our work notices and the answers of our simulator.

It logs in as an application and puts its access token into the address as we do; its classes word the
kinds of message that both know. Its `asyncsend_v2` and `recall` go over another gateway of the time
(eco.taobao.com): there their members are compared, and the same members go by its own `post` to our
simulator. DingTalk's official SDK (`alibabacloud-dingtalk`) knows api.dingtalk.com alone, no work notices.

The judge takes 100 MB of memory, so it is imported by a fixture.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest

from channels.channel import Account, Attempt, Call, LoginRefused, Resolution, SentCall
from channels.providers.dingtalk.app import DingTalkChannel
from channels.providers.dingtalk.app_account import DingTalkTokens
from message.outcomes import Accepted
from simulator import Faults, Simulator
from tests.channels.providers.chats import account_of, deliveries
from tests.conformance.samples.dingtalk import ACCOUNT
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

OURS = DingTalkChannel()
MEMBERS = ["Ann", "bob"]
AGENT = ACCOUNT["agent_id"]
OTHER_GATEWAY = "https://eco.taobao.com/router/rest"
CARD = {"title": "订单", "markdown": "### 已发货"}
BUTTONS = [("一", "https://e.cn/1"), ("二", "https://e.cn/2")]
OA = {"message_url": "https://e.cn/1", "head": {"bgcolor": "FFBBBBBB", "text": "头"}}
OA_BODY = {
    "title": "订单",
    "content": "已发货",
    "author": "鸿雁",
    "image": "@lADO",
    "file_count": "3",
}
OA_ROWS = {"姓名:": "张三", "年龄:": "20"}


@pytest.fixture(scope="module")
def sdk() -> Any:
    import_module("dingtalk.model.message")
    return import_module("dingtalk")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    behaviours = {"dingtalk": {"results_after_ms": "0"}}
    with spawn(tmp_path_factory.mktemp("ding"), fsync=False, behaviours=behaviours) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the judge's requests. The simulator answers those to the other gateway with 404."""
    simulator.control(rules=[])
    routes = {
        f"{OURS.endpoint}/": f"{simulator.url}/dingtalk/",
        OTHER_GATEWAY: f"{simulator.url}/dingtalk/rest",
    }
    with led(routes) as kept:
        yield kept


def client(sdk: Any, secret: str = ACCOUNT["app_secret"]) -> Any:
    return sdk.AppKeyClient("corp", ACCOUNT["app_key"], secret, auto_retry=False)


def account(**changes: Any) -> Account:
    """Ours, at the provider's own address."""
    return account_of({**ACCOUNT, **changes}, OURS.endpoint)


def refusal() -> Any:
    """Returns the class of error that the judge raises."""
    return import_module("dingtalk.core.exceptions").DingTalkClientException


def ours(token: str, content: dict[str, Any]) -> Made:
    """Returns our adapter's request of one notice."""
    made = deliveries("dingtalk", MEMBERS, content)
    assert not any(OURS.refusal(account(), one) for one in made)
    return of_httpx(OURS.request(Call(account(), made, token)))


def test_our_default_endpoint_is_the_judges(sdk: Any) -> None:
    assert f"{OURS.endpoint}/" == sdk.AppKeyClient.API_BASE_URL


def test_the_judge_logs_in_as_our_adapter_does(sdk: Any, theirs: list[Made]) -> None:
    token = client(sdk).access_token
    (its,) = theirs
    assert of_httpx(DingTalkTokens().request(account(), "")).named == its.named
    assert DingTalkTokens().read(its.answer).text == token


def test_a_refused_login_has_the_code_that_the_judge_raises(sdk: Any, theirs: list[Made]) -> None:
    with pytest.raises(refusal()) as refused:
        client(sdk, "wrong").get_access_token()
    with pytest.raises(LoginRefused, match=f"^{vars(refused.value)['errcode']}: "):
        DingTalkTokens().read(theirs[-1].answer)


Wording = Callable[[Any], Any]
SAID: dict[str, tuple[Wording, dict[str, Any]]] = {
    "text": (lambda m: m.TextBody("订单 & 1\n"), {"text": "订单 & 1\n"}),
    "markdown": (
        lambda m: m.MarkdownBody("订单", "**1**"),
        {"markdown": {"title": "订单", "text": "**1**"}},
    ),
    "link": (
        lambda m: m.LinkBody("https://e.cn/1?a=b&c", "@lADO", "订单", "已发货"),
        {
            "link": {
                "title": "订单",
                "text": "已发货",
                "url": "https://e.cn/1?a=b&c",
                "image": "@lADO",
            }
        },
    ),
    "one button": (
        lambda m: m.SingleActionCardBody(**CARD, single_title="看", single_url="https://e.cn/1"),
        {
            "action_card": {
                "title": CARD["title"],
                "text": CARD["markdown"],
                "single": {"title": "看", "url": "https://e.cn/1"},
            }
        },
    ),
    "two buttons": (
        lambda m: m.BtnActionCardBody(
            **CARD,
            btn_orientation="1",
            btn_list=[{"title": title, "action_url": url} for title, url in BUTTONS],
        ),
        {
            "action_card": {
                "title": CARD["title"],
                "text": CARD["markdown"],
                "buttons": [{"title": title, "url": url} for title, url in BUTTONS],
                "orientation": "horizontal",
            }
        },
    ),
    "oa": (
        lambda m: m.OaBody(
            OA["message_url"], "FFBBBBBB", "头", m.OaBodyContent(**OA_BODY, forms=OA_ROWS)
        ),
        {
            "oa": {
                **OA,
                "body": {**OA_BODY, "form": [{"key": k, "value": v} for k, v in OA_ROWS.items()]},
            }
        },
    ),
    "image": (lambda m: m.ImageBody("@lADO"), {"image": {"media_id": "@lADO"}}),
    "file": (lambda m: m.FileBody("@lADO"), {"file": {"media_id": "@lADO"}}),
}


@pytest.mark.parametrize("kind", sorted(SAID))
def test_a_notice_is_worded_as_the_judge_words_it_and_taken(
    sdk: Any, theirs: list[Made], kind: str
) -> None:
    wording, content = SAID[kind]
    body = wording(sdk.model.message).get_dict()
    judge = client(sdk)
    with pytest.raises(refusal()):
        judge.message.asyncsend_v2(body, AGENT, MEMBERS)
    named = theirs[-1]
    assert (named.method, named.address) == ("POST", OTHER_GATEWAY)
    assert named.query["method"] == "dingtalk.oapi.message.corpconversation.asyncsend_v2"
    mine = ours(judge.access_token, content)
    _same_members(mine, named)
    path = mine.address.removeprefix(OURS.endpoint)
    said = judge.post(path, {**mine.json, "msg": body})
    assert said["errcode"] == 0
    its = theirs[-1]
    assert mine.named == its.named
    assert mine.json == its.json
    call = Call(account(), deliveries("dingtalk", MEMBERS, content))
    assert OURS.outcomes(call, its.answer) == [Accepted(str(said["task_id"]), queued=True)] * 2


def test_a_tasks_result_and_its_recall_are_asked_for_by_the_judges_members(
    sdk: Any, theirs: list[Made]
) -> None:
    judge = client(sdk)
    mine = ours(judge.access_token, {"text": "result"})
    path = mine.address.removeprefix(OURS.endpoint)
    task = str(judge.post(path, mine.json)["task_id"])
    (one, _) = deliveries("dingtalk", MEMBERS, {"text": "result"})
    attempt = Attempt(one, called_at=1, now=2, token=judge.access_token, task=task)
    dialogue = OURS.resolve(account(), attempt)
    assert dialogue is not None
    question = of_httpx(next(dialogue))
    with pytest.raises(refusal()):
        judge.message.getsendresult(AGENT, task)
    _same_members(question, theirs[-1])
    result = judge.post(question.address.removeprefix(OURS.endpoint), question.json)
    assert result["send_result"]["unread_user_id_list"] == MEMBERS
    assert question.named == theirs[-1].named
    with pytest.raises(StopIteration) as ended:
        dialogue.send(theirs[-1].answer)
    assert ended.value.value.resolution is Resolution.SENT
    recall = OURS.recall(account(), SentCall(task, judge.access_token))
    assert recall is not None
    wish = of_httpx(next(recall))
    with pytest.raises(refusal()):
        judge.message.recall(AGENT, task)
    assert theirs[-1].query["method"] == "dingtalk.oapi.message.corpconversation.recall"
    _same_members(wish, theirs[-1])
    assert judge.post(wish.address.removeprefix(OURS.endpoint), wish.json)["errcode"] == 0
    assert wish.named == theirs[-1].named


def test_every_code_of_ours_is_raised_by_the_judge(
    sdk: Any, theirs: list[Made], simulator: Simulator
) -> None:
    judge = client(sdk)
    mine = ours(judge.access_token, {"text": "code"})
    call = Call(account(), deliveries("dingtalk", ["Ann"], {"text": "code"}))
    for row in OURS.errors:
        simulator.control(rules=[Faults(codes={row.code: 1.0})])
        with pytest.raises(refusal()) as refused:
            judge.post(mine.address.removeprefix(OURS.endpoint), mine.json)
        (outcome,) = OURS.outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert outcome.code == row.code
        said = theirs[-1].answer.json()
        assert refused.value.errcode == said["errcode"]
        assert row.code in (str(said["errcode"]), said.get("sub_code"), _behind(said))


def _behind(said: dict[str, Any]) -> str:
    """A service's own code stands behind the gateway's."""
    return f"{said['errcode']}.{said.get('sub_code')}"


def _same_members(mine: Made, its: Made) -> None:
    """Their names and values; the other gateway has each as a text."""
    own = {"method", "timestamp", "format", "v", "simplify", "session"}
    members = {name: text for name, text in its.query.items() if name not in own}
    wanted = {name: isinstance(value, str) for name, value in mine.json.items()}
    assert members.keys() == wanted.keys()
    read = {name: text if wanted[name] else json.loads(text) for name, text in members.items()}
    assert read == mine.json
