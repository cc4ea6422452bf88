"""Every adapter in bad times: answers that its provider did not give, or not whole.

A proxy, a firewall, a login page, a wrong charset, a broken or redirected connection answer in the
provider's place. Whatever comes, a delivery is Accepted only by the provider's own whole answer. The bad
answers are generated; a part of them is made of the good answer, which the simulator gives.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from channels.channel import (
    Attempt,
    Call,
    Dialogue,
    LoginRefused,
    Resolution,
    ResolveResult,
    TokenRefused,
)
from channels.engine import MAX_QUESTIONS
from channels.probe.probe import ExchangeRecorder
from channels.transports import TransportRouter
from message.outcomes import Accepted, NotSent, Rejected, Unknown
from simulator import Simulator
from tests.conformance.samples import UNLIMITED
from tests.conformance.test_adapters import SAMPLES, Peer
from tests.harness.simulators import spawn

HTTP = sorted(name for name, one in SAMPLES.items() if one.scheme == "http")
EXAMPLES = 60
"""Of each provider, drawn anew in each run."""
PAGES = [
    b"",
    b" ",
    b"\n\n",
    b"OK",
    b"null",
    b"true",
    b"0",
    b"[]",
    b"{}",
    b'"ok"',
    b"<!DOCTYPE html><html><head><title>Login</title></head><body>Please sign in</body></html>",
    b"<html><body><h1>502 Bad Gateway</h1></body></html>",
    "<html><body>请登录</body></html>".encode("gbk"),
    b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    b'{"error":"login required","redirect":"https://sso.example/login"}',
    b'{"code":401,"message":"please log in"}',
    b'{"code":200,"message":"success","data":null}',
    b'{"status":"ok"}',
    b'{"status":200,"success":true}',
    b'{"success":true,"message":"ok"}',
    b'{"result":"OK"}',
    b"\xff\xfe\x00\x00",
    b"\x1f\x8b\x08\x00",
    b"[" * 10_000,
    b"data: {}\n\n",
]
STATUSES = [
    *[200] * 6,
    201,
    202,
    204,
    206,
    301,
    302,
    303,
    307,
    308,
    400,
    401,
    403,
    404,
    407,
    408,
    409,
    413,
    421,
    425,
    429,
    451,
    500,
    502,
    503,
    504,
    511,
    520,
    524,
]


class Good(NamedTuple):
    """One provider's call, and its own answer to it."""

    peer: Peer
    call: Call
    answer: httpx.Response
    token: httpx.Response | None


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    folder = tmp_path_factory.mktemp("bad")
    with spawn(folder, fsync=False, behaviours=UNLIMITED) as started:
        yield started


@pytest.fixture(scope="module", params=HTTP)
def good(request: pytest.FixtureRequest, simulator: Simulator) -> Iterator[Good]:
    wires = TransportRouter()
    peer = Peer(SAMPLES[request.param], simulator, wires)
    call = peer.call()
    (outcome,) = peer.send(call)
    assert isinstance(outcome, Accepted)
    answer = answered(peer.recorder, "send")
    assert answer is not None
    yield Good(peer, call, answer, answered(peer.recorder, "token"))
    wires.close()


def answered(recorder: ExchangeRecorder, purpose: str) -> httpx.Response | None:
    answers = [one.answer for one in recorder.exchanges if one.purpose == purpose]
    found = [one for one in answers if isinstance(one, httpx.Response)]
    return found[-1] if found else None


def spoilt(body: bytes) -> st.SearchStrategy[bytes]:
    """The good answer, but not whole or not as it was written."""
    text = body.decode()
    encoded = [text.encode(name) for name in ("utf-16", "utf-16-le", "utf-32")]
    return st.one_of(
        st.integers(0, max(len(body) - 1, 0)).map(lambda n: body[:n]),
        st.integers(1, max(len(body), 1)).map(lambda n: body[n:]),
        st.sampled_from(
            [
                *(one for one in encoded if one != body),
                b"\xef\xbb\xbf" + body,
                gzip.compress(body),
                body + body,
                body + b"}",
                b")]}',\n" + body,
                b"callback(" + body + b");",
                b"<html>" + body + b"</html>",
                json.dumps(text).encode(),
                body.replace(b'"', b"'"),
            ]
        ),
    )


@cache  # to make a strategy costs as much as to draw from it
def bodies(good: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(st.sampled_from(PAGES), spoilt(good), st.binary(max_size=64))


STATUS = st.sampled_from(STATUSES)
BAD_STATUS = st.sampled_from([status for status in STATUSES if status >= 300])
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(["text/html; charset=gbk", "application/json"]),
        "location": st.sampled_from(["https://sso.example/login", "/", ""]),
        "retry-after": st.sampled_from(["1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", "-1"]),
        "content-encoding": st.just("identity"),
    },
)


def is_whole(body: bytes, good: bytes) -> bool:
    """Whether it says all that the good answer says, as JSON or byte by byte."""
    if body == good:
        return True
    try:
        return bool(json.loads(body) == json.loads(good))
    except (ValueError, RecursionError):
        return False


def outcome_of(good: Good, answer: httpx.Response) -> object:
    channel = good.peer.channel
    if channel.token_refused(answer):
        return NotSent("token")
    (outcome,) = channel.outcomes(good.call, answer)
    return outcome


relaxed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@relaxed
@given(data=st.data())
def test_only_the_providers_own_whole_answer_is_an_acceptance(
    good: Good, data: st.DataObject
) -> None:
    own = good.answer.content
    status = data.draw(STATUS, label="status")
    body = data.draw(bodies(own), label="body")
    fields = data.draw(HEADERS, label="headers")
    if is_whole(body, own):
        return
    outcome = outcome_of(good, httpx.Response(status, headers=fields, content=body))
    assert not isinstance(outcome, Accepted)
    if 200 <= status < 300 or status in (301, 302, 303, 307, 308):
        assert isinstance(outcome, Unknown)
    if isinstance(outcome, Rejected):
        assert not outcome.code.startswith(
            "http_"
        )  # a page of anybody's is no word of the provider's


@relaxed
@given(data=st.data())
def test_the_good_answer_under_a_bad_status_is_no_acceptance(
    good: Good, data: st.DataObject
) -> None:
    status = data.draw(BAD_STATUS, label="status")
    own = good.answer.content
    if not own:
        return  # it says nothing that another status could contradict
    outcome = outcome_of(good, httpx.Response(status, content=own))
    assert isinstance(outcome, Unknown)


def test_no_page_of_anybody_else_rejects_a_message_or_halts_an_account(good: Good) -> None:
    # Some providers' own answers have a member `code`.
    pages = [page for page in PAGES if not page.startswith(b'{"code"')]
    asked = [*product([200, 302, 401, 403, 404, 407, 502], pages)]
    outcomes = [outcome_of(good, httpx.Response(status, content=page)) for status, page in asked]
    wrong = [
        (status, page, outcome)
        for (status, page), outcome in zip(asked, outcomes, strict=True)
        if not isinstance(outcome, NotSent | Unknown)
        or (isinstance(outcome, NotSent) and outcome.account)
    ]
    assert wrong == []


@relaxed
@given(data=st.data())
def test_no_token_is_read_from_a_bad_answer(good: Good, data: st.DataObject) -> None:
    source = good.peer.channel.tokens
    if source is None or good.token is None:
        return
    own = good.token.content
    body = data.draw(bodies(own), label="body")
    if is_whole(body, own):
        return
    with pytest.raises(TokenRefused):
        source.read(httpx.Response(200, content=body))


def test_no_page_of_anybody_else_is_a_refused_login(good: Good) -> None:
    source = good.peer.channel.tokens
    if source is None:
        return  # it has no tokens
    for status, page in product([200, 302, 403, 502], PAGES):
        if page.startswith(b"{"):
            continue
        with pytest.raises(TokenRefused) as found:
            source.read(httpx.Response(status, content=page))
        assert not isinstance(found.value, LoginRefused), (status, page)


def test_no_bad_answer_to_a_query_settles_anything(good: Good) -> None:
    peer, (delivery,) = good.peer, good.call.deliveries
    now = 1_900_000_000_000
    attempt = Attempt(delivery, called_at=now - 86_400_000, now=now, token="T", task="256")

    def dialogue() -> Dialogue | None:
        return peer.channel.resolve(peer.account, attempt)

    if dialogue() is None:
        return  # it has no query
    wrong = []
    for status, page in product([200, 302, 403, 404, 500], PAGES):
        asked = dialogue()
        assert asked is not None
        found = told(asked, httpx.Response(status, content=page))
        if found.resolution is not Resolution.ASK_LATER:
            wrong.append((status, page, found))
    assert wrong == []


def told(dialogue: Dialogue, answer: httpx.Response) -> ResolveResult:
    """What the dialogue finds if it gets nothing but this answer."""
    next(dialogue)
    for _ in range(MAX_QUESTIONS):
        try:
            dialogue.send(answer)
        except StopIteration as end:
            found: ResolveResult = end.value
            return found
    raise AssertionError("it asks for ever")
