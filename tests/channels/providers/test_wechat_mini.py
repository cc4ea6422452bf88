"""WeChat mini-program: literal bytes in, outcomes out; then the same through a simulator process."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.providers.wechat.mini import WechatMiniChannel
from channels.registry import AccountError
from message.delivery import Delivery
from message.envelope import Template
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from simulator import Faults
from tests.channels.providers.wechat_calls import account, answer, call, deliveries
from tests.harness.simulators import spawn

CHANNEL = WechatMiniChannel()
TEMPLATE = Template("T-1", {"thing1": "您好", "time2": {"value": "12:00", "color": "#173177"}})


def mine(endpoint: str = "https://proxy.example", **more: Any) -> Account:
    options = {"appid": "simulator-id", "secret": "simulator-secret", **more}
    return account("wechat_mini", endpoint, **options)


def one(**fields: Any) -> Delivery:
    fields.setdefault("template", None if "content" in fields else TEMPLATE)
    (delivery,) = deliveries("wechat_mini", fields.pop("receiver", "oABCDEFG"), **fields)
    return delivery


def outcome_of(got: httpx.Response | Failure, **fields: Any) -> AnyOutcome:
    (outcome,) = CHANNEL.outcomes(call(mine(), [one(**fields)]), got)
    return outcome


def test_the_request_byte_by_byte() -> None:
    made = Call(mine(), [one(attributes={"wechat": {"page": "p/a?x=1"}})], "t")
    request = CHANNEL.request(made)
    assert request.url.raw_path == b"/cgi-bin/message/subscribe/send?access_token=t"
    assert request.read().decode() == (
        '{"touser":"oABCDEFG","template_id":"T-1",'
        '"data":{"thing1":{"value":"您好"},"time2":{"value":"12:00"}},'
        '"miniprogram_state":"formal","lang":"zh_CN","page":"p/a?x=1"}'
    )


def test_an_account_chooses_the_version_and_the_language() -> None:
    made = Call(mine(miniprogram_state="trial", lang="en_US"), [one()], "t")
    body = CHANNEL.request(made).read()
    assert b'"miniprogram_state":"trial","lang":"en_US"' in body
    assert b'"page"' not in body
    with pytest.raises(AccountError, match="miniprogram_state"):
        mine(miniprogram_state="production")


def test_what_can_never_be_sent_is_refused_with_its_reason() -> None:
    assert CHANNEL.refusal(mine(), one()) == ""
    assert CHANNEL.refusal(mine(), one(receiver="?")).startswith("bad_openid: ")
    assert CHANNEL.refusal(mine(), one(content={})).startswith("bad_content: ")
    bell = one(template=Template("T-1", {"thing1": "bell \x07"}))
    assert CHANNEL.refusal(mine(), bell).startswith("bad_character: ")


@pytest.mark.parametrize("attempt", [1, 2, 5])
def test_a_missing_grant_rejects_whatever_definite_refusals_came_before(attempt: int) -> None:
    """Of an attempt in doubt before it the ledger knows (tests/recovery/retry/test_stage.py)."""
    refused = answer(errcode=43101, errmsg="user refuse to accept the msg")
    assert isinstance(outcome_of(refused, attempt=attempt), Rejected)


@pytest.mark.parametrize(
    ("got", "kind"),
    [
        (answer(errcode=0, errmsg="ok"), Accepted),
        (Failure(Phase.NOT_WRITTEN, "dns"), NotSent),
        (Failure(Phase.WRITTEN, "reset"), Unknown),
        (httpx.Response(502), Unknown),
        (httpx.Response(200, content=b"{}"), Unknown),
        (answer(errcode=99), Unknown),
    ],
)
def test_every_answer_has_an_outcome(got: httpx.Response | Failure, kind: type[object]) -> None:
    assert isinstance(outcome_of(got), kind)


def test_nothing_can_be_asked_or_repeated() -> None:
    assert CHANNEL.resolve(mine(), Attempt(one(), called_at=1, now=2)) is None
    assert CHANNEL.dedup_window_ms == 0


def test_through_a_simulator(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as simulator:
        transport = Transport()
        engine = Engine(transport, OwnTokens(ExchangeRecorder(transport), 5.0))
        made = Call(mine(f"{simulator.url}/wechat_mini"), [one()])
        (accepted,) = engine.send(CHANNEL, made, 5.0)
        assert isinstance(accepted, Accepted)
        simulator.control(rules=[Faults(codes={"43101": 1.0})], expire_tokens=True)
        (refused,) = engine.send(CHANNEL, made, 5.0)
        assert refused == Rejected("43101", "user refuse to accept the msg")
        empty = one(template=Template("T-1", {"thing1": ""}))
        simulator.control(rules=[])
        assert engine.send(CHANNEL, Call(made.account, [empty]), 5.0) == [
            Rejected("47003", "argument invalid!")
        ]
        assert [record.accepted for record in simulator.records()] == [True, False]
        transport.close()
