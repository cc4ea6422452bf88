"""The engine: never raises, and what an adapter breaks is judged by what was written."""

from collections.abc import Callable
from typing import Any, ClassVar

import httpx
import msgspec
import pytest

from channels.channel import Account, Attempt, Call, Failure, Phase, Token, TokenSource
from channels.engine import Engine, NonBlockingEngine, TokenRejected
from channels.http_client.failures import BadRequest
from channels.providers.null import NullChannel
from channels.providers.webhook.adapter import WebhookChannel
from channels.tokens.contract import LoginUnavailable, TokenLife, TokenUnavailable
from message.outcomes import (
    Accepted,
    AnyOutcome,
    Limit,
    NotSent,
    Rejected,
    Unknown,
    is_paced,
)
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


class Beginner(Sender):
    """Tells its answers when it is asked to, or knows them at once."""

    def __init__(
        self, *answers: httpx.Response | Failure | Exception, at_once: bool = False
    ) -> None:
        super().__init__(answers[0])
        self.left = list(answers)
        self.at_once = at_once
        self.told: Callable[[httpx.Response | Failure], None] | None = None

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        self.answer = self.left.pop(0)
        return super().send(request)

    def begin(
        self, request: httpx.Request, done: Callable[[httpx.Response | Failure], None]
    ) -> httpx.Response | Failure | None:
        if self.at_once or isinstance(self.left[0], Exception):
            return self.send(request)
        self.told = lambda answer: done(answer)
        return None

    def tell(self) -> None:
        assert self.told is not None
        answer = self.left.pop(0)
        assert not isinstance(answer, Exception)
        self.told(answer)


class Source:
    """Asked by nobody here."""

    def request(self, account: Account, stale: str) -> httpx.Request:
        raise NotImplementedError

    def read(self, answer: httpx.Response) -> Token:
        raise NotImplementedError


class WithToken(WebhookChannel):
    """Wants a token; 401 says that it is not the right one."""

    tokens: ClassVar[TokenSource | None] = Source()

    def token_refused(self, answer: httpx.Response) -> bool:
        return answer.status_code == 401


class Issuer:
    """Tokens by number; `away`: there is none to be had."""

    def __init__(self) -> None:
        self.number = 1
        self.away = False
        self.login_refused = False
        self.refused: list[str] = []

    def get(self, _account: Account, _source: TokenSource) -> str:
        if self.login_refused:
            raise LoginUnavailable("40001 bad secret", 7.0)
        if self.away:
            raise TokenUnavailable("nobody answers")
        return f"token-{self.number}"

    def held(self, _account: Account, _source: TokenSource) -> str | None:
        return None if self.away or self.login_refused else f"token-{self.number}"

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        self.refused.append(stale)
        self.number += 1
        return self.get(account, source)

    def refused_logins(self) -> list[str]:
        return ["main"] if self.login_refused else []

    def lives(self) -> dict[str, TokenLife]:
        return {}


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


class Modern(WebhookChannel):
    http2: ClassVar[bool] = True


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_adapter_says_http2_and_the_engine_chooses_its_wire(scheme: str) -> None:
    made = Call(account(f"{scheme}://provider.example/x"), (delivery(),))
    urls = []
    for channel in (WebhookChannel(), Modern()):
        sender = Sender(OK)
        Engine(sender).send(channel, made, 1.0)
        (request,) = sender.sent
        urls.append(str(request.url))
        assert request.extensions["timeout"] == {"total": 1.0}
    wire = {"http": "h2c", "https": "h2"}[scheme]
    assert urls == [f"{scheme}://provider.example/x", f"{wire}://provider.example/x"]


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


# ---- what is not waited for ----------------------------------------------------------------------

REFUSED = httpx.Response(401)
Told = list[AnyOutcome] | TokenRejected


def begun(
    engine: NonBlockingEngine, channel: WebhookChannel, told: list[Told]
) -> list[AnyOutcome] | None:
    return engine.begin(channel, call(), 1.0, told.append)


def renewed(engine: NonBlockingEngine, refused: TokenRejected) -> list[AnyOutcome]:
    found = engine.with_new_token(WithToken(), refused.call)
    return engine.send_renewed(WithToken(), found, 1.0) if isinstance(found, Call) else found


def test_an_answer_is_told_when_it_comes() -> None:
    sender, told = Beginner(OK), list[Told]()
    assert begun(NonBlockingEngine(sender), WebhookChannel(), told) is None
    assert told == []
    sender.tell()
    assert told == [[Accepted("7")]]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (OK, Accepted),
        (Failure(Phase.NOT_WRITTEN, "connect"), NotSent),
        (BadRequest("a line break"), Rejected),
        (RuntimeError("out of everything"), Unknown),
    ],
    ids=repr,
)
def test_what_is_known_at_once_is_not_told(
    answer: httpx.Response | Failure | Exception, outcome: type[AnyOutcome]
) -> None:
    told: list[Told] = []
    known = begun(NonBlockingEngine(Beginner(answer, at_once=True)), WebhookChannel(), told)
    assert known is not None
    assert [type(one) for one in known] == [outcome]
    assert told == []


def test_a_fault_over_an_answer_that_is_told_is_in_doubt() -> None:
    sender, told = Beginner(OK), list[Told]()
    begun(NonBlockingEngine(sender), Broken("outcomes"), told)
    sender.tell()
    ((outcome,),) = told
    assert isinstance(outcome, Unknown)


def test_a_refused_token_is_told_and_the_call_made_again_with_another() -> None:
    sender, issuer, told = Beginner(REFUSED, OK), Issuer(), list[Told]()
    engine = NonBlockingEngine(sender, issuer)
    assert begun(engine, WithToken(), told) is None
    sender.tell()
    (refused,) = told
    assert isinstance(refused, TokenRejected)
    assert refused.call.token == "token-1"
    assert renewed(engine, refused) == [Accepted("7")]
    assert issuer.refused == ["token-1"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_token_refused_twice_is_the_accounts_fault(at_once: bool) -> None:
    sender, told = Beginner(REFUSED, REFUSED, at_once=at_once), list[Told]()
    engine = NonBlockingEngine(sender, Issuer())
    assert begun(engine, WithToken(), told) is None
    if not at_once:
        sender.tell()
    (refused,) = told
    assert isinstance(refused, TokenRejected)
    assert renewed(engine, refused) == [NotSent("token_refused", account=True)]


def test_without_a_token_nothing_is_sent() -> None:
    sender, issuer, told = Beginner(OK), Issuer(), list[Told]()
    issuer.away = True
    engine = NonBlockingEngine(sender, issuer)
    assert begun(engine, WithToken(), told) is None
    known = [NotSent("token_unavailable", "nobody answers")]
    (needs,) = told
    assert isinstance(needs, TokenRejected)
    assert needs.call.token == ""
    assert renewed(engine, needs) == known
    assert engine.send(WithToken(), call(), 1.0) == known
    assert sender.sent == []


@pytest.mark.parametrize("refused", [False, True])
def test_a_call_that_is_withdrawn_while_it_waits_for_a_token_is_not_made(refused: bool) -> None:
    """The wait may outlast the delivery's time, or an operator may pause its lane."""
    sender, issuer = Beginner(REFUSED if refused else OK), Issuer()
    wait = issuer.renew if refused else issuer.get
    late: list[str] = []

    def waiting(*asked: Any) -> str:
        late.append("ttl_in_retry")
        return wait(*asked)

    setattr(issuer, "renew" if refused else "get", waiting)
    one = msgspec.structs.replace(call(), withdrawn=lambda: "".join(late))
    (outcome,) = Engine(sender, issuer).send(WithToken(), one, 1.0)
    assert isinstance(outcome, NotSent)
    assert outcome.code == "withdrawn"
    assert len(sender.sent) == refused


def test_a_refused_login_is_the_accounts_and_spends_no_attempt() -> None:
    sender, issuer = Beginner(OK), Issuer()
    issuer.login_refused = True
    known = Engine(sender, issuer).send(WithToken(), call(), 1.0)
    told = NotSent("login_refused", "40001 bad secret", 7_000, account=True, limit=Limit.LOGIN)
    assert known == [told]
    assert is_paced(told)
    assert sender.sent == []


def test_the_null_provider_is_never_waited_for() -> None:
    one = Call(Account("n", "null", ""), (delivery(),))
    engine = NonBlockingEngine(Beginner(OK))
    assert engine.begin(NullChannel(), one, 1.0, lambda _: None) == [Accepted(delivery().key)]


def test_an_engine_keeps_the_masked_answer_of_a_refusal_where_it_is_asked_to() -> None:
    made = call()
    receiver = made.deliveries[0].receiver
    refused = httpx.Response(400, content=f'{{"to":"{receiver}","why":"blocked"}}'.encode())
    (plain,) = Engine(Sender(refused)).send(WebhookChannel(), made, 1.0)
    (kept,) = Engine(Sender(refused), keep_answers=True).send(WebhookChannel(), made, 1.0)
    assert (plain.answer, kept.answer) == ("", '{"to":"***","why":"blocked"}')  # type: ignore[union-attr]
    (sent,) = Engine(Sender(OK), keep_answers=True).send(WebhookChannel(), made, 1.0)
    assert sent == Accepted("7")
