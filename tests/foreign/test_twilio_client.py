"""Twilio's own client (package `twilio`) judges our adapter and our simulator.

It sends texts and content templates to our simulator, lists what went to a number, and is refused there.
Its requests are those of our adapter. It takes half a second to import, so a fixture does it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any
from urllib.parse import parse_qs

import pytest

from channels.channel import Account, Attempt, Call, Resolution
from channels.providers.twilio.adapter import Twilio
from message.envelope import Template
from message.outcomes import Accepted
from simulator import Faults, Lists, Simulator
from tests.channels.providers.sms_calls import AT_MS, account_of, delivery
from tests.conformance.samples.twilio import ACCOUNT
from tests.foreign.sdk_wire import Made, led, of_httpx
from tests.harness.simulators import spawn

TO, SENDER = "+14152000001", ACCOUNT["sender"]
SERVICE = "MG" + "1" * 32
TEMPLATE = Template("HX" + "2" * 32, {"1": "4711 & 5", "2": "é 鸿雁"})


@pytest.fixture(scope="module")
def rest() -> Any:
    return import_module("twilio.rest")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("twilio"), fsync=False) as started:
        yield started


@pytest.fixture
def theirs(simulator: Simulator) -> Iterator[list[Made]]:
    """Yields the requests of Twilio's client."""
    simulator.control(rules=[], lists=Lists(lag_ms=0))
    with led({f"{Twilio.endpoint}/": f"{simulator.url}/twilio/"}) as kept:
        yield kept


def client(rest: Any, token: str = ACCOUNT["auth_token"]) -> Any:
    return rest.Client(ACCOUNT["account_sid"], token)


def account(**changes: Any) -> Account:
    return account_of(ACCOUNT, Twilio.endpoint, **changes)


def compared(mine: Made, its: Made) -> None:
    """Asserts that both requests are the same."""
    assert mine.named == its.named
    assert mine.fields["Authorization"] == its.fields["Authorization"]
    assert mine.fields["Accept"] == its.fields["Accept"]
    assert parse_qs(mine.body.decode()) == parse_qs(its.body.decode())
    assert mine.fields.get("Content-Type") == its.fields.get("Content-Type")


SAID: dict[str, tuple[dict[str, str], dict[str, Any], dict[str, str]]] = {
    "text": (
        {"body": "Your order\n1 & 2 + é 鸿雁 %", "from_": SENDER},
        {"content": {"text": "Your order\n1 & 2 + é 鸿雁 %"}},
        {},
    ),
    "template": (
        {
            "content_sid": TEMPLATE.id,
            "content_variables": '{"1":"4711 & 5","2":"é 鸿雁"}',
            "messaging_service_sid": SERVICE,
        },
        {"template": TEMPLATE},
        {"sender": "", "messaging_service_sid": SERVICE},
    ),
    "callback": (
        {
            "body": "a",
            "from_": SENDER,
            "status_callback": "https://n.example/r?a=b&hongyan_call=0123456789abcdef0123456789abcdef",
        },
        {"content": {"text": "a"}},
        {"status_callback": "https://n.example/r?a=b"},
    ),
}


@pytest.mark.parametrize("kind", sorted(SAID))
def test_what_twilios_client_sends_the_simulator_takes_and_our_adapter_sends_the_same(
    rest: Any, theirs: list[Made], kind: str
) -> None:
    told, said, changes = SAID[kind]
    message = client(rest).messages.create(to=TO, **told)
    (its,) = theirs
    to = account(**changes)
    one = delivery(TO, **said)
    assert not Twilio().refusal(to, one)
    call = Call(to, [one])
    compared(of_httpx(Twilio().request(call)), its)
    assert message.sid.startswith("SM")
    assert Twilio().outcomes(call, its.answer) == [Accepted(message.sid)]


def test_twilios_client_lists_what_keeps_our_adapter_from_saying_not_sent(
    rest: Any, theirs: list[Made]
) -> None:
    to, judge = "+14152000099", client(rest)
    one = delivery(to, content={"text": "a"})

    def verdict() -> Any:
        attempt = Attempt(one, called_at=AT_MS, now=AT_MS + 90_000)
        dialogue = Twilio().resolve(account(), attempt)
        question = next(dialogue)
        while True:
            asked = of_httpx(question)
            found = judge.messages.list(to=to, page_size=1_000)
            if "To" in asked.query:
                assert asked.named[:2] == theirs[-1].named[:2]
                assert asked.query["To"] == theirs[-1].query["To"]
                answer = theirs[-1].answer
            else:
                judge.messages.list(limit=20)
                answer = theirs[-1].answer
            try:
                question = dialogue.send(answer)
            except StopIteration as ended:
                return ended.value.resolution, found

    assert verdict() == (Resolution.NOT_SENT, [])
    sid = judge.messages.create(to=to, body="a", from_=SENDER).sid
    resolution, found = verdict()
    assert [message.sid for message in found] == [sid]
    assert resolution is not Resolution.NOT_SENT


def test_every_code_of_ours_is_raised_by_twilios_client(
    rest: Any, theirs: list[Made], simulator: Simulator
) -> None:
    raised = import_module("twilio.base.exceptions").TwilioRestException
    call = Call(account(), [delivery(TO, content={"text": "a"})])
    for row in Twilio.errors:
        code = row.code.removesuffix("*")
        simulator.control(rules=[Faults(codes={code: 1.0})])
        with pytest.raises(raised) as refused:
            client(rest).messages.create(to=TO, body="a", from_=SENDER)
        assert str(refused.value.code) == code
        (outcome,) = Twilio().outcomes(call, theirs[-1].answer)
        assert not isinstance(outcome, Accepted)
        assert outcome.code == code


def test_the_simulator_refuses_twilios_client_with_a_wrong_token(
    rest: Any, theirs: list[Made]
) -> None:
    raised = import_module("twilio.base.exceptions").TwilioRestException
    with pytest.raises(raised) as refused:
        client(rest, "wrong").messages.create(to=TO, body="a", from_=SENDER)
    assert (refused.value.status, refused.value.code) == (401, 20003)
