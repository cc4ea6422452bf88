"""`wechatpy` 1.8.18 judges our calls to WeChat and WeCom, and the answers of our simulator.

Its clients send to our simulator each kind of message that they and we know; our adapters make the same
requests. It raises the codes of the simulator's refusals, by which our adapters judge.

It asks for tokens of WeCom as we do. For WeChat it knows `cgi-bin/token`, which voids earlier tokens; we
ask for `stable_token`, which is younger than the judge, and hand the token over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from wechatpy import WeChatClient
from wechatpy.enterprise import WeChatClient as WecomClient
from wechatpy.exceptions import WeChatClientException

from channels.channel import Account, Call, LoginRefused
from channels.providers.wecom.app import WecomChannel
from channels.registry import PROVIDERS
from message.envelope import Template
from message.outcomes import Accepted, Rejected
from simulator import Faults, Simulator
from tests.channels.providers.chats import KEY, account_of, deliveries
from tests.conformance.samples import sample
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

pytestmark = pytest.mark.filterwarnings("ignore:.*method of `WeChatClient` is deprecated")
WECHAT, WECOM = "https://api.weixin.qq.com", "https://qyapi.weixin.qq.com"
OPENID, MEMBERS = "oSimulator000000000000000001", ["Ann", "bob"]
DATA = {"thing1": {"value": "订单 & 1", "color": "#173177"}, "time2": {"value": "2026-11-21 12:00"}}
MINI = {"appid": "xiaochengxuappid12345", "pagepath": "index?foo=bar"}
ID = "ngqIpbwh8bUfcSsECmogfXcV14J0tQlEpBO27izEYtY"
ARTICLE = {"title": "订单", "description": "已发货", "url": "https://e.cn/1"}
AGENT = 1_000_002


def account(provider: str, **changes: Any) -> Account:
    """Ours, at the provider's own address."""
    of = sample(provider)
    assert of is not None
    table = {"provider": provider, **of.account_table, **changes}
    return account_of(table, PROVIDERS[provider].endpoint)


def ours(to: Account, receivers: list[str], token: str, **said: Any) -> Made:
    """Returns our adapter's request of one message."""
    channel = PROVIDERS[to.provider]
    made = deliveries(channel.channel, receivers, **said)
    assert not any(channel.refusal(to, one) for one in made)
    return of_httpx(channel.request(Call(to, made, token)))


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("wechat"), fsync=False) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator, request: pytest.FixtureRequest) -> Iterator[list[Made]]:
    """Yields the judge's requests. Tests with `mini` in their name speak with mini-programs' protocol."""
    simulator.control(rules=[])
    wechat = "wechat_mini" if "mini" in request.node.name else "wechat_official"
    routes = {
        f"{WECHAT}/": f"{simulator.url}/{wechat}/",
        f"{WECOM}/": f"{simulator.url}/wecom/",
    }
    with led(routes) as kept:
        yield kept


def wechat(provider: str, simulator: Simulator) -> Any:
    """The judge's client, with the token that our own request gets from the simulator."""
    source = PROVIDERS[provider].tokens
    assert source is not None
    asked = source.request(account(provider), "")
    assert isinstance(asked, httpx.Request)
    url = str(asked.url).replace(WECHAT, f"{simulator.url}/{provider}")
    with httpx.Client(trust_env=False) as client:
        token = source.read(client.post(url, content=asked.read())).text
    return WeChatClient("simulator-id", "simulator-secret", access_token=token, auto_retry=False)


def wecom(secret: str = "simulator-secret") -> Any:
    """The judge's client; it asks for a token by itself."""
    return WecomClient("simulator-id", secret, auto_retry=False)


def test_an_official_accounts_template_message_is_worded_and_taken(
    theirs: list[Made], simulator: Simulator
) -> None:
    client = wechat("wechat_official", simulator)
    said = client.message.send_template(OPENID, ID, DATA, "https://e.cn/1?a=b", MINI)
    assert (said["errcode"], said["msgid"] > 0) == (0, True)
    (its,) = theirs
    content = {"template_id": ID, "data": DATA, "url": "https://e.cn/1?a=b", "miniprogram": MINI}
    mine = ours(account("wechat_official"), [OPENID], client.access_token, content=content)
    assert mine.named == its.named
    assert mine.json == {**its.json, "client_msg_id": KEY}  # younger than the judge
    call = Call(account("wechat_official"), deliveries("wechat_official", [OPENID]))
    outcomes = PROVIDERS["wechat_official"].outcomes(call, its.answer)
    assert outcomes == [Accepted(str(said["msgid"]))]


def test_a_mini_programs_subscribe_message_is_worded_and_taken(
    theirs: list[Made], simulator: Simulator
) -> None:
    data = {name: {"value": one["value"]} for name, one in DATA.items()}
    client = wechat("wechat_mini", simulator)
    assert client.wxa.send_subscribe_message(OPENID, ID, data, "pages/1")["errcode"] == 0
    (its,) = theirs
    params = {name: one["value"] for name, one in DATA.items()}
    content = {"template_id": ID, "data": params, "page": "pages/1"}
    mine = ours(account("wechat_mini"), [OPENID], client.access_token, content=content)
    assert mine.named == its.named
    optional = {"miniprogram_state": "formal", "lang": "zh_CN"}
    assert mine.json == {**its.json, **optional}


@pytest.mark.parametrize(
    ("secret", "code"), [("simulator-secret", ""), ("wrong", "40001")], ids=["good", "wrong"]
)
def test_wecoms_token_is_asked_for_as_the_judge_does(
    theirs: list[Made], secret: str, code: str
) -> None:
    client = wecom(secret)
    source: Any = WecomChannel.tokens
    if not code:
        assert client.access_token
    else:
        with pytest.raises(WeChatClientException) as refused:
            client.fetch_access_token()
        assert str(refused.value.errcode) == code
    (its,) = theirs
    mine = of_httpx(source.request(account("wecom", corpsecret=secret), ""))
    assert mine.named == its.named
    if not code:
        assert source.read(its.answer).text == client.access_token
    else:
        with pytest.raises(LoginRefused, match=rf"^{code} "):
            source.read(its.answer)


Sending = Callable[[Any], dict[str, Any]]
SAID: dict[str, tuple[Sending, dict[str, Any]]] = {
    "text": (lambda m: m.send_text(AGENT, MEMBERS, "订单 & 1\n"), {"text": "订单 & 1\n"}),
    "safe": (lambda m: m.send_text(AGENT, MEMBERS, "a", safe=1), {"text": "a", "safe": 1}),
    "markdown": (lambda m: m.send_markdown(AGENT, MEMBERS, "**1**"), {"markdown": "**1**"}),
    "textcard": (
        lambda m: m.send_text_card(AGENT, MEMBERS, **ARTICLE, btntxt="看"),
        {"textcard": {**ARTICLE, "btntxt": "看"}},
    ),
    "news": (
        lambda m: m.send_articles(AGENT, MEMBERS, [{**ARTICLE, "image": "https://e.cn/1.png"}]),
        {"news": {"articles": [{**ARTICLE, "picurl": "https://e.cn/1.png"}]}},
    ),
    "image": (lambda m: m.send_image(AGENT, MEMBERS, "M1"), {"image": {"media_id": "M1"}}),
    "voice": (lambda m: m.send_voice(AGENT, MEMBERS, "M1"), {"voice": {"media_id": "M1"}}),
    "file": (lambda m: m.send_file(AGENT, MEMBERS, "M1"), {"file": {"media_id": "M1"}}),
    "video": (
        lambda m: m.send_video(AGENT, MEMBERS, "M1", "订单", "已发货"),
        {"video": {"media_id": "M1", "title": "订单", "description": "已发货"}},
    ),
}


@pytest.mark.parametrize("kind", sorted(SAID))
def test_a_wecom_message_is_worded_as_the_judge_words_it_and_taken(
    theirs: list[Made], kind: str
) -> None:
    client = wecom()
    send, content = SAID[kind]
    said = send(client.message)
    assert (said["errcode"], said["invaliduser"]) == (0, "")
    its = theirs[-1]
    to = account("wecom", duplicate_check=False)
    mine = ours(to, MEMBERS, client.access_token, content=content)
    assert mine.named == its.named
    # Nobody but members is named, and what is not said to be safe is not.
    assert {**mine.json, "toparty": "", "totag": ""} == {"safe": 0, **its.json}


def test_members_that_got_nothing_are_named_to_the_judge_and_read_by_our_adapter(
    theirs: list[Made], simulator: Simulator
) -> None:
    simulator.control(rules=[Faults(receiver_codes={"invaliduser": 0.5})])
    members = [f"member{number}" for number in range(20)]
    said = wecom().message.send_text(AGENT, members, "b")
    named = set(said["invaliduser"].split("|"))
    assert set() < named < set(members)
    call = Call(account("wecom"), deliveries("wecom", members, {"text": "b"}))
    outcomes = PROVIDERS["wecom"].outcomes(call, theirs[-1].answer)
    rejected = {
        one for one, outcome in zip(members, outcomes, strict=True) if isinstance(outcome, Rejected)
    }
    assert rejected == named


@pytest.mark.parametrize("provider", ["wechat_official", "wechat_mini", "wecom"])
def test_every_code_of_ours_is_raised_by_the_judge(
    theirs: list[Made], simulator: Simulator, provider: str
) -> None:
    channel, of = PROVIDERS[provider], sample(provider)
    assert of is not None
    client = wecom() if provider == "wecom" else wechat(provider, simulator)
    said: dict[str, Any] = {"template": Template(ID, {"thing1": "1"})}
    if provider == "wecom":
        said = {"content": {"text": "c"}}
    receivers = MEMBERS[:1] if provider == "wecom" else [OPENID]
    made = ours(account(provider), receivers, client.access_token, **said)
    path = made.address.partition("/cgi-bin/")[2]
    call = Call(account(provider), deliveries(channel.channel, receivers))
    for row in channel.errors:
        if row.code in of.per_receiver or not row.code.lstrip("-").isdigit():
            continue
        simulator.control(rules=[Faults(codes={row.code: 1.0})])
        with pytest.raises(WeChatClientException) as refused:
            client.post(path, data=made.json)
        assert str(refused.value.errcode) == row.code
        (outcome,) = channel.outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert outcome.code == row.code
