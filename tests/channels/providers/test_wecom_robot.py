"""WeCom group robots: literal bytes in, outcomes out; then the same through a simulator process."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.providers.wecom.robot import WecomRobotChannel
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Unknown
from tests.channels.providers.wechat_calls import account, answer, call, deliveries, kinds
from tests.harness.simulators import spawn

CHANNEL = WecomRobotChannel()


def mine(endpoint: str = "https://proxy.example", key: str = "simulator-secret") -> Account:
    return account("wecom_robot", endpoint, key=key, group="运维群")


def one(**fields: Any) -> Delivery:
    fields.setdefault("content", None if "template" in fields else {"text": "早上好"})
    (delivery,) = deliveries("wecom", "group:运维群", **fields)
    return delivery


def outcome_of(got: httpx.Response | Failure) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(mine(), [one()]), got)
    return outcome


def test_the_request_byte_by_byte_and_the_key_is_not_shown() -> None:
    content = {"text": {"content": "早上好", "mentioned_list": ["wangqing", "@all"]}}
    request = CHANNEL.request(Call(mine(key="k-7"), [one(content=content)]))
    assert request.url.raw_path == b"/cgi-bin/webhook/send?key=k-7"
    assert request.read().decode() == (
        '{"msgtype":"text","text":{"content":"早上好","mentioned_list":["wangqing","@all"]}}'
    )
    assert "k-7" not in repr(mine(key="k-7"))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"template": Template("T", {})}, "no_template"),
        ({"content": {"markdown": "x" * 4_097}}, "too_long"),
        ({"content": {"text": "x" * 2_049}}, "too_long"),
        ({"content": {"textcard": {"title": "t", "description": "d", "url": "u"}}}, "bad_content"),
        ({"content": {"text": "x", "safe": 1}}, "bad_content"),
    ],
)
def test_what_can_never_be_sent_is_refused_with_its_reason(
    fields: dict[str, Any], code: str
) -> None:
    assert CHANNEL.refusal(mine(), one()) == ""
    assert CHANNEL.refusal(mine(), one(content={"markdown": "x" * 4_096})) == ""
    assert CHANNEL.refusal(mine(), one(**fields)).startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (answer(errcode=0, errmsg="ok"), Accepted),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (Failure(Phase.WRITTEN, "timeout"), Unknown),
        (httpx.Response(403), NotSent),
        (httpx.Response(200, content=b"null"), Unknown),
        (answer(errcode=4711), Unknown),
    ],
)
def test_every_answer_has_an_outcome(got: httpx.Response | Failure, kind: type[object]) -> None:
    assert isinstance(outcome_of(got), kind)


def test_nothing_can_be_asked_or_repeated() -> None:
    assert CHANNEL.resolve(mine(), Attempt(one(), called_at=1, now=2)) is None
    assert CHANNEL.dedup_window_ms == 0
    assert CHANNEL.silencing_limits == ((20, 60),)


def test_through_a_simulator_that_keeps_to_twenty_a_minute(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        engine = Engine(transport)
        wrong = Call(mine(f"{simulator.url}/wecom_robot", key="another"), [one()])
        (refused,) = engine.send(CHANNEL, wrong, 5.0)
        assert refused == NotSent(
            "93000", "invalid webhook url", 600_000, account=True, limit=Limit.LOGIN
        )
        there = mine(f"{simulator.url}/wecom_robot")
        sent = [one(content={"text": f"第 {number} 条"}) for number in range(21)]
        outcomes = [o for each in sent for o in engine.send(CHANNEL, Call(there, [each]), 5.0)]
        assert kinds(outcomes) == ["Accepted"] * 20 + ["NotSent"]
        assert outcomes[-1] == NotSent(
            "45009", "api freq out of limit", 60_000, limit=Limit.ACCOUNT
        )
        transport.close()
