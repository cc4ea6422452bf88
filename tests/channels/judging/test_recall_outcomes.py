"""Taking back what was sent: by providers that can, before their simulators; what their answers mean."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from channels.channel import Failure, Phase, RecallResult, RecallStatus, SentCall
from channels.engine import Engine
from channels.http_client.transport import Transport
from channels.judging.recall_outcomes import taken_back
from channels.registry import PROVIDERS
from message.outcomes import Accepted
from simulator import Faults, Simulator
from tests.channels.providers.chats import TIMEOUT_S, Peer
from tests.harness.simulators import spawn

CAN = ("dingtalk", "feishu", "wecom")
UNHEARD_OF = {"feishu": "om_1234567"}


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(Path(tmp_path_factory.mktemp("simulator"))) as started:
        yield started


@pytest.fixture(params=CAN)
def peer(request: pytest.FixtureRequest, simulator: Simulator) -> Iterator[Peer]:
    transport = Transport()
    yield Peer(request.param, simulator, transport)
    transport.close()


def accepted(peer: Peer, *numbers: int) -> str:
    outcomes = peer.send(peer.call(*numbers))
    (name,) = {o.provider_id for o in outcomes if isinstance(o, Accepted)}
    return name


def recall(peer: Peer, provider_id: str, *rules: Faults) -> RecallResult | None:
    peer.simulator.control(rules=list(rules))
    return peer.engine.recall(peer.channel, peer.account, SentCall(provider_id), TIMEOUT_S)


def test_what_was_sent_is_taken_back_by_its_id_and_may_be_asked_for_twice(peer: Peer) -> None:
    name = accepted(peer, *range(1, 1 + min(2, peer.channel.max_batch)))
    assert recall(peer, name) == RecallResult(RecallStatus.BACK)
    assert recall(peer, name) == RecallResult(RecallStatus.BACK)
    counted = peer.simulator.report().summary.counts[f"recalled.{peer.channel.provider}.{name}"]
    assert counted == 2


def test_what_the_provider_does_not_know_is_refused_in_its_words(peer: Peer) -> None:
    said = recall(peer, UNHEARD_OF.get(peer.channel.provider, "1234567"))
    assert said is not None
    assert said.taken is RecallStatus.REFUSED
    assert said.detail.partition(":")[0] in ("40035", "40058", "230001")


def test_an_answer_that_is_lost_says_nothing(peer: Peer) -> None:
    name = accepted(peer, 3)
    said = recall(peer, name, Faults(method="RECALL", reset=1.0))
    assert said is not None
    assert said.taken is RecallStatus.ASK_LATER
    assert recall(peer, name) == RecallResult(RecallStatus.BACK)


def test_a_token_that_has_expired_is_renewed_on_the_way(peer: Peer) -> None:
    name = accepted(peer, 4)
    peer.simulator.control(expire_tokens=True)
    assert recall(peer, name) == RecallResult(RecallStatus.BACK)


def test_without_a_name_of_the_providers_there_is_nothing_to_recall(peer: Peer) -> None:
    assert recall(peer, "") is None


def test_whoever_names_a_window_can_recall_and_nobody_else() -> None:
    able = {name for name, channel in PROVIDERS.items() if channel.recall_window_ms}
    assert able == {*CAN, "discord"}  # discord: test_chat_webhooks.py
    for name, channel in PROVIDERS.items():
        if name not in able:
            account = None  # nobody looks at it
            assert channel.recall(account, SentCall("1")) is None  # type: ignore[arg-type]


def test_what_an_answer_means() -> None:
    errors, ok = PROVIDERS["wecom"].errors, httpx.Response(200)
    failure = Failure(Phase.WRITTEN, "timeout")
    assert taken_back(errors, failure, "", "") == RecallResult(RecallStatus.ASK_LATER, "timeout")
    assert taken_back(errors, ok, "", "").taken is RecallStatus.ASK_LATER
    assert taken_back(errors, ok, "0", "ok") == RecallResult(RecallStatus.BACK)
    assert taken_back(errors, ok, "-1", "busy") == RecallResult(RecallStatus.ASK_LATER, "-1: busy")
    of_feishu = PROVIDERS["feishu"].errors
    assert taken_back(of_feishu, ok, "1500", "").taken is RecallStatus.ASK_LATER
    assert taken_back(errors, ok, "40058", "no") == RecallResult(RecallStatus.REFUSED, "40058: no")
    assert taken_back(errors, ok, "99", "").taken is RecallStatus.REFUSED


def test_nothing_is_asked_of_a_provider_that_cannot() -> None:
    class Nobody:
        def send(self, request: httpx.Request) -> httpx.Response:
            raise AssertionError(request)

    webhook = PROVIDERS["webhook"]
    assert Engine(Nobody()).recall(webhook, None, SentCall("1"), 1.0) is None  # type: ignore[arg-type]
