"""The engine: never raises, and what an adapter breaks is judged by what was written."""

import httpx
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase, Token
from channels.engine import Engine
from channels.failures import BadRequest
from channels.null import NullChannel
from channels.webhook import WebhookChannel
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from tests.channels.calls import account, call, delivery

OK = httpx.Response(200, content=b'{"id":"7"}')


class Sender:
    """A transport that answers as told, and keeps what it was given."""

    def __init__(self, answer: httpx.Response | Failure | Exception) -> None:
        self.answer = answer
        self.sent: list[httpx.Request] = []

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        self.sent.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Broken(WebhookChannel):
    """Fails in one of its two functions."""

    def __init__(self, step: str) -> None:
        super().__init__()
        self.step = step

    def request(self, call: Call) -> httpx.Request:
        if self.step == "request":
            raise KeyError("template")
        return super().request(call)

    def outcomes(self, call: Call, answer: httpx.Response | Failure) -> list[AnyOutcome]:
        if self.step == "outcomes":
            raise KeyError("id")
        if self.step == "count":
            return []
        return super().outcomes(call, answer)


def run(answer: httpx.Response | Failure | Exception, step: str = "") -> AnyOutcome:
    (outcome,) = Engine(Sender(answer)).send(Broken(step), call(), 1.0)
    return outcome


def test_a_call_is_made_with_the_lanes_deadline() -> None:
    sender = Sender(OK)
    assert Engine(sender).send(WebhookChannel(), call(), 2.5) == [Accepted("7")]
    assert sender.sent[0].extensions["timeout"]["total"] == 2.5


def test_a_fault_before_the_write_is_a_rejection_and_nothing_is_sent() -> None:
    sender = Sender(OK)
    (outcome,) = Engine(sender).send(Broken("request"), call(), 1.0)
    assert isinstance(outcome, Rejected)
    assert outcome.code == "adapter_error"
    assert sender.sent == []


def test_a_request_that_cannot_be_written_is_a_rejection() -> None:
    assert isinstance(run(BadRequest("a line break")), Rejected)


@pytest.mark.parametrize("step", ["outcomes", "count"])
def test_a_fault_after_the_write_is_in_doubt(step: str) -> None:
    outcome = run(OK, step)
    assert isinstance(outcome, Unknown)
    assert outcome.code == "adapter_error"


def test_a_fault_over_a_failure_keeps_to_what_was_written() -> None:
    assert isinstance(run(Failure(Phase.NOT_WRITTEN, "connect"), "outcomes"), NotSent)
    assert isinstance(run(Failure(Phase.WRITTEN, "timeout"), "outcomes"), Unknown)


def test_a_transport_that_breaks_leaves_the_call_in_doubt() -> None:
    assert isinstance(run(RuntimeError("out of everything")), Unknown)


def test_every_delivery_of_a_call_gets_its_outcome() -> None:
    three = Call(account(), tuple(delivery(f"user-{n}") for n in range(3)))
    outcomes = Engine(Sender(OK)).send(WebhookChannel(), three, 1.0)
    assert [type(o) for o in outcomes] == [Rejected] * 3  # webhook takes one delivery a call


def test_the_null_provider_accepts_without_a_call() -> None:
    sender = Sender(OK)
    one = Call(Account("n", "null", ""), (delivery(), delivery("user-2")))
    outcomes = Engine(sender).send(NullChannel(), one, 1.0)
    assert outcomes == [Accepted(d.key) for d in one.deliveries]
    assert sender.sent == []


def test_no_token_stands_in_what_a_log_may_show() -> None:
    one = Call(Account("a", "p", "http://127.0.0.1:9"), (delivery(),), "t0ken")
    attempt = Attempt(delivery(), called_at=1, now=2, token="t0ken")
    assert "t0ken" not in f"{one!r} {attempt!r} {Token('t0ken', 7_200)!r} {one} {attempt}"
