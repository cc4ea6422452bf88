"""Well-kept libraries of others judge our robots of groups.

`dingtalkchatbot` 1.5.7 posts each kind of message, signed, to our simulator: it is taken, and our adapter
makes the same address, sign and words. `apprise` 2.2.0 does so for Feishu and WeCom, in the clear and with
texts alone: it knows no more. Neither provider has a library of its own for robots.

Feishu's sign is held against vectors of `go-lark` v1.14.0, vectors/feishu_sign.json. vectors/feishu_sign.go
made them; its comment has the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from dingtalkchatbot import chatbot

from channels.channel import Call
from channels.providers.dingtalk.robot import DingTalkRobotChannel
from channels.providers.feishu.robot import FeishuRobotChannel
from channels.registry import PROVIDERS
from simulator import Simulator
from simulator.protocols.feishu_robot import FeishuRobot
from simulator.servers.http_request import Request
from simulator.wire import ProtocolContext, ReceivedCall, Reply
from tests.channels.providers.chats import account_of, deliveries
from tests.conformance.samples import UNLIMITED
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

DINGTALK, FEISHU, WECOM = (
    "https://oapi.dingtalk.com",
    "https://open.feishu.cn",
    "https://qyapi.weixin.qq.com",
)
TOKEN, SECRET = "simulator-id", "SEC32f2e8be1ec0e1ab"
WECOM_KEY = "693a91f6-7xxx-4bc4-97a0-0ec2sifa5aaa"
VECTORS = json.loads((Path(__file__).parent / "vectors" / "feishu_sign.json").read_text())
GROUP = "group:ops"
TEXT = '订单 "1" & <2>\n已发货 +%~'
CARD = {"title": "订单", "text": "### 已发货"}
ROW = {"title": "看", "url": "https://e.cn/1?a=b&c=d", "image": "https://e.cn/1.png"}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    credentials = {"dingtalk_robot": {"secret": SECRET}, "wecom_robot": {"key": WECOM_KEY}}
    behaviours = {name: dict(of) for name, of in UNLIMITED.items()}
    folder = tmp_path_factory.mktemp("robots")
    with spawn(folder, fsync=False, credentials=credentials, behaviours=behaviours) as started:
        yield started


@pytest.fixture
def made(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the judges' requests."""
    routes = {
        f"{DINGTALK}/": f"{simulator.url}/dingtalk_robot/",
        f"{FEISHU}/": f"{simulator.url}/feishu_robot/",
        f"{WECOM}/": f"{simulator.url}/wecom_robot/",
    }
    with led(routes) as kept:
        yield kept


def plugin(name: str) -> Any:
    """One of apprise's; imported late, since each process of the suite reads this module."""
    return import_module(f"apprise.plugins.{name}")


def ours(provider: str, table: dict[str, Any], content: dict[str, Any], now_s: float = 0.0) -> Made:
    """Returns our adapter's request at the provider's own address, at that time."""
    channel: Any = PROVIDERS[provider]
    timed = {"dingtalk_robot": DingTalkRobotChannel, "feishu_robot": FeishuRobotChannel}
    if provider in timed:
        channel = timed[provider](lambda: now_s)
    account = account_of({"provider": provider, "group": "ops", **table}, channel.endpoint)
    (one,) = deliveries(channel.channel, [GROUP], content)
    assert not channel.refusal(account, one)
    return of_httpx(channel.request(Call(account, [one])))


Sending = Callable[[Any], dict[str, Any]]
CARDS = [chatbot.CardItem("一", "https://e.cn/1"), chatbot.CardItem("二", "https://e.cn/2")]
BUTTONS = [{"title": "一", "url": "https://e.cn/1"}, {"title": "二", "url": "https://e.cn/2"}]
SAID: dict[str, tuple[Sending, dict[str, Any]]] = {
    "text": (lambda bot: bot.send_text(TEXT), {"text": TEXT}),
    "all": (lambda bot: bot.send_text(TEXT, is_at_all=True), {"text": TEXT, "at": {"all": True}}),
    "members": (
        lambda bot: bot.send_text(TEXT, False, ["13800000001"], ["u1"], is_auto_at=False),
        {"text": TEXT, "at": {"mobiles": ["+8613800000001"], "users": ["u1"]}},
    ),
    "markdown": (lambda bot: bot.send_markdown(**CARD), {"markdown": CARD}),
    "link": (
        lambda bot: bot.send_link("订单", "已发货", ROW["url"], ROW["image"]),
        {"link": {**ROW, "title": "订单", "text": "已发货"}},
    ),
    "one button": (
        lambda bot: bot.send_action_card(chatbot.ActionCard(**CARD, btns=CARDS[:1])),
        {"action_card": {**CARD, "single": BUTTONS[0]}},
    ),
    "two buttons": (
        lambda bot: bot.send_action_card(chatbot.ActionCard(**CARD, btns=CARDS, btn_orientation=1)),
        {"action_card": {**CARD, "buttons": BUTTONS, "orientation": "horizontal"}},
    ),
    "rows": (
        lambda bot: bot.send_feed_card(
            [chatbot.CardItem(ROW["title"], ROW["url"], ROW["image"])] * 2
        ),
        {"feed_card": [ROW, ROW]},
    ),
}


def without_defaults(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the body without members that only repeat a default of DingTalk's."""
    body = {**body, "at": {name: value for name, value in body.get("at", {}).items() if value}}
    if "actionCard" in body:
        card = {name: value for name, value in body["actionCard"].items() if name != "hideAvatar"}
        if "singleURL" in card:
            card.pop("btnOrientation", None)
        else:
            card["btnOrientation"] = str(card["btnOrientation"])
        body["actionCard"] = card
    return body


@pytest.mark.parametrize("kind", sorted(SAID))
def test_a_dingtalk_robot_posts_and_signs_as_the_library_does(made: list[Made], kind: str) -> None:
    send, content = SAID[kind]
    bot = chatbot.DingtalkChatbot(f"{DINGTALK}/robot/send?access_token={TOKEN}", secret=SECRET)
    bot.msg_open_type = str  # else it wraps links, so that they open in DingTalk's own browser
    assert send(bot) == {"errcode": 0, "errmsg": "ok"}
    (theirs,) = made
    table = {"access_token": TOKEN, "secret": SECRET}
    mine = ours("dingtalk_robot", table, content, int(theirs.query["timestamp"]) / 1_000)
    assert mine.named == theirs.named
    assert mine.fields["Content-Type"] == theirs.fields["Content-Type"].partition(";")[0]
    assert without_defaults(mine.json) == without_defaults(theirs.json)


def test_a_dingtalk_robots_wrong_secret_is_refused_to_the_library(made: list[Made]) -> None:
    address = f"{DINGTALK}/robot/send?access_token={TOKEN}"
    answer = chatbot.DingtalkChatbot(address, secret="SECwrong").send_text(TEXT)
    assert answer["errcode"] == 310000


@pytest.mark.parametrize("vector", VECTORS)
def test_a_feishu_robots_sign_is_what_go_lark_makes(vector: dict[str, Any]) -> None:
    secret, at_s = vector["secret"], vector["timestamp"]
    mine = ours("feishu_robot", {"hook": "h", "secret": secret}, {"text": TEXT}, at_s + 0.9)
    assert (mine.json["timestamp"], mine.json["sign"]) == (str(at_s), vector["sign"])


@pytest.mark.parametrize("vector", VECTORS)
def test_the_simulator_takes_the_sign_that_go_lark_makes_and_no_other(
    vector: dict[str, Any],
) -> None:
    robot = FeishuRobot(
        ProtocolContext(
            credentials={"feishu_robot": {"hook": "h", "secret": vector["secret"]}},
            now_ms=lambda: int(vector["timestamp"]) * 1_000,
        )
    )
    request = Request()
    request.method = "POST"
    for sign, taken in ((vector["sign"], ReceivedCall), (vector["sign"].lower(), Reply)):
        said = {"msg_type": "text", "content": {"text": "a"}}
        signed = {"timestamp": str(vector["timestamp"]), "sign": sign, **said}
        request.body = json.dumps(signed).encode()
        assert isinstance(robot.read(request, "/open-apis/bot/v2/hook/h"), taken)


def test_a_feishu_robots_text_is_worded_as_apprise_words_it(made: list[Made]) -> None:
    judge = plugin("feishu").NotifyFeishu(token="simulator-id")
    judge.request_rate_per_sec = 0
    judge.send(TEXT)
    (theirs,) = made
    mine = ours("feishu_robot", {"hook": "simulator-id"}, {"text": TEXT})
    # The documented address ends with the hook; apprise adds a slash.
    assert (mine.method, f"{mine.address}/", mine.query) == theirs.named
    assert mine.json == theirs.json


def test_a_wecom_robots_text_is_worded_as_apprise_words_it_and_taken(made: list[Made]) -> None:
    judge = plugin("wecombot").NotifyWeComBot(key=WECOM_KEY)
    judge.request_rate_per_sec = 0
    assert judge.send(TEXT)
    (theirs,) = made
    mine = ours("wecom_robot", {"key": WECOM_KEY}, {"text": TEXT})
    assert mine.named == theirs.named
    assert mine.json == theirs.json
