"""Every row: what the provider did, what the sender must believe, how many requests the provider read.

The provider's own count is the judge: an outcome may say less than what happened, never something else.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from channels.channel import Failure
from channels.judging.outcomes import of_failure, refusal
from message.outcomes import WITHOUT_ANSWER, Accepted, AnyOutcome, NotSent, Unknown
from simulator.servers.certificates import Authority
from tests.conformance import wire as w
from tests.conformance.senders import Reference, Sender, lean, post, unwaited
from tests.conformance.wire import Script, Wire

SHORT_S = 1.0
AMPLE_S = 5.0


@dataclass
class Row:
    """A provider's script and what must hold after as many sends as there are outcomes."""

    name: str
    script: list[Script]
    outcomes: list[type[AnyOutcome]]
    requests: int
    total_s: float = AMPLE_S
    """Of a send without success. Others have ample time: the first one opens the connection."""
    only_lean: str = ""
    """Why the reference cannot hold this row."""
    only: str = ""
    """The scheme that it is about."""


ROWS = [
    Row("an_answer", [w.ok], [Accepted], 1),
    Row("accept_then_close_on_a_fresh_connection", [w.close], [Unknown], 1),
    Row("accept_then_reset_on_a_fresh_connection", [w.reset], [Unknown], 1),
    Row("accept_then_close_on_a_reused_connection", [w.ok, w.close], [Accepted, Unknown], 2),
    Row("accept_then_reset_on_a_reused_connection", [w.ok, w.reset], [Accepted, Unknown], 2),
    Row(
        "every_second_request_closed",
        [w.ok, w.close, w.ok, w.close],
        [Accepted, Unknown, Accepted, Unknown],
        4,
    ),
    Row("answered_then_closed_while_idle", [w.then(w.ok, w.close)], [Accepted, Accepted], 2),
    Row("answered_then_reset_while_idle", [w.then(w.ok, w.reset)], [Accepted, Accepted], 2),
    Row("half_a_head", [w.say(b"HTTP/1.1 200 OK\r\nConte", on=False)], [Unknown], 1),
    Row(
        "half_a_body",
        [w.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", on=False)],
        [Unknown],
        1,
    ),
    Row(
        "half_a_chunk_on_a_reused_connection",
        [
            w.ok,
            w.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc", on=False),
        ],
        [Accepted, Unknown],
        2,
    ),
    Row("no_http_at_all", [w.say(b"220 mail.example.com ESMTP\r\n", on=False)], [Unknown], 1),
    Row("answer_after_the_deadline", [w.stall], [Unknown], 1, SHORT_S),
    Row("answer_after_the_deadline_reused", [w.ok, w.stall], [Accepted, Unknown], 2, SHORT_S),
    Row(
        "slow_drip_past_the_total_deadline",
        [w.drip],
        [Unknown],
        1,
        SHORT_S,
        only_lean="httpx times each read, not the whole",
    ),
    Row("interim_100", [w.then(w.say(b"HTTP/1.1 100 Continue\r\n\r\n"), w.ok)], [Accepted], 1),
    Row(
        "interim_103",
        [w.then(w.say(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"), w.ok)],
        [Accepted],
        1,
    ),
    Row("only_interim", [w.say(b"HTTP/1.1 100 Continue\r\n\r\n", on=False)], [Unknown], 1),
    Row("chunked", [w.chunks([b'{"id"', b':"7"}'], b"X-Sum: 1\r\n")], [Accepted] * 2, 2),
    Row("empty_204", [w.say(b"HTTP/1.1 204 No Content\r\n\r\n")], [Accepted] * 2, 2),
    Row(
        "connection_close",
        [w.then(w.answer("200 OK", b"{}", "Connection: close"), w.close)],
        [Accepted, Accepted],
        2,
    ),
    Row(
        "body_until_close",
        [w.then(w.say(b"HTTP/1.1 200 OK\r\n\r\n{}"), w.goodbye)],
        [Accepted, Accepted],
        2,
    ),
    Row(
        "body_cut_short_by_anybody",
        [w.say(b"HTTP/1.1 200 OK\r\n\r\n{}", on=False)],
        [Unknown, Accepted],
        2,
        only="https",
    ),
    Row("long_header", [w.answer("200 OK", b"{}", "X: " + "y" * 30_000)], [Accepted] * 2, 2),
    Row(
        "endless_headers",
        [w.say(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * w.TOO_MUCH, on=False)],
        [Unknown],
        1,
    ),
    Row(
        "body_over_the_bound",
        [w.answer("200 OK", b"x" * w.TOO_MUCH), w.ok],
        [Unknown, Accepted],
        2,
        only_lean="httpx takes any length",
    ),
    Row(
        "chunks_over_the_bound",
        [w.chunks([b"x" * 65_536] * 40), w.ok],
        [Unknown, Accepted],
        2,
        only_lean="httpx takes any length",
    ),
    *(
        Row(f"no_second_request_after_{status[:3]}", [w.answer(status, b"{}", *fields)], [kind], 1)
        for status, kind, *fields in (
            ("301 Moved Permanently", Unknown, "Location: /other"),
            ("302 Found", Unknown, "Location: /other"),
            ("307 Temporary Redirect", Unknown, "Location: /other"),
            ("308 Permanent Redirect", Unknown, "Location: /other"),
            ("401 Unauthorized", NotSent, 'WWW-Authenticate: Basic realm="x"'),
            ("407 Proxy Authentication Required", NotSent, 'Proxy-Authenticate: Basic realm="x"'),
            ("408 Request Timeout", NotSent, "Connection: close"),
            ("409 Conflict", Unknown),
            ("417 Expectation Failed", NotSent),
            ("421 Misdirected Request", NotSent),
            ("429 Too Many Requests", NotSent, "Retry-After: 1"),
            ("500 Internal Server Error", Unknown),
            ("503 Service Unavailable", Unknown, "Retry-After: 1"),
            ("503 Service Unavailable", Unknown),
        )
    ),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(
    params=[
        pytest.param((lean, "http"), id="lean"),
        pytest.param((unwaited, "http"), id="unwaited"),
        pytest.param((Reference, "http"), id="httpx"),
        # Not httpx: over TLS it takes a stray answer for the next call's.
        pytest.param((lean, "https"), id="lean-tls"),
        pytest.param((unwaited, "https"), id="unwaited-tls"),
    ]
)
def pair(request: pytest.FixtureRequest) -> tuple[Callable[[str], Sender], str]:
    """What makes a sender, and the scheme that it is to use."""
    found: tuple[Callable[[str], Sender], str] = request.param
    return found


@pytest.fixture
def tls(pair: tuple[object, str], authority: Authority) -> ssl.SSLContext | None:
    """The provider's side; None: it speaks plain HTTP."""
    return authority.server("localhost") if pair[1] == "https" else None


@pytest.fixture
def sender(pair: tuple[Callable[[str], Sender], str], authority: Authority) -> Iterator[Sender]:
    make, scheme = pair
    transport = make(str(authority.file) if scheme == "https" else "")
    yield transport
    transport.close()


@pytest.fixture
def serve(tls: ssl.SSLContext | None) -> Callable[..., Wire]:
    """Makes a provider that plays a script."""
    return partial(Wire, tls=tls)


def outcome(answer: object) -> AnyOutcome:
    if isinstance(answer, Failure):
        assert answer.code in {*WITHOUT_ANSWER, "reference"}
        return of_failure(answer)
    return refusal(answer, 0.0) or Accepted()  # type: ignore[arg-type] # either of the two


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_outcome_agrees_with_what_the_provider_read(
    sender: Sender, serve: Callable[..., Wire], tls: ssl.SSLContext | None, row: Row
) -> None:
    if row.only_lean and isinstance(sender, Reference):
        pytest.skip(row.only_lean)
    if row.only and row.only != ("https" if tls else "http"):
        pytest.skip(f"of {row.only} alone")
    with serve(*row.script) as provider:
        believed = []
        for wanted in row.outcomes:
            total_s = AMPLE_S if wanted is Accepted else row.total_s
            believed.append(type(outcome(sender.send(post(provider.url, total_s)))))
            assert "while_idle" not in row.name or provider.done.wait(w.PATIENCE_S)
        assert believed == row.outcomes
        assert provider.requests == row.requests


def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_calls(
    sender: Sender, serve: Callable[..., Wire]
) -> None:
    """The provider sends a second answer while the connection is idle, and keeps it open."""
    answered, stale = threading.Event(), threading.Event()

    def twice(wire: Wire, connection: socket.socket) -> bool:
        w.ok(wire, connection)
        answered.wait(w.PATIENCE_S)
        w.answer("200 OK", b'{"id":"stale"}')(wire, connection)
        stale.set()
        return True

    with serve(twice, w.answer("429 Too Many Requests")) as provider:
        assert outcome(sender.send(post(provider.url))) == Accepted()
        answered.set()
        assert stale.wait(w.PATIENCE_S)
        assert isinstance(outcome(sender.send(post(provider.url))), NotSent)
        assert provider.requests == 2


def test_a_large_body_is_sent_once_and_without_expect(
    sender: Sender, serve: Callable[..., Wire]
) -> None:
    with serve() as provider:
        body = b"x" * (4 << 20)
        assert outcome(sender.send(post(provider.url, body=body))) == Accepted()
        assert provider.bodies == [body]
        assert b"expect" not in provider.heads[0].lower()


def test_a_large_body_cut_short_by_the_provider_is_not_sent_again(
    sender: Sender, serve: Callable[..., Wire]
) -> None:
    with serve(w.ok, w.close) as provider:
        sender.send(post(provider.url))
        answer = sender.send(post(provider.url, body=b"x" * (4 << 20)))
        assert isinstance(outcome(answer), Unknown)
        assert provider.requests == 2


def test_a_request_cut_short_is_no_request(sender: Sender, tls: ssl.SSLContext | None) -> None:
    """The provider resets while the body is still on its way: it has read no request, and must be
    believed to have sent nothing, or to be in doubt, but never to have accepted."""
    with socket.create_server(("127.0.0.1", 0)) as provider:

        def read_a_little() -> None:
            connection, _ = provider.accept()
            if tls:
                connection = tls.wrap_socket(connection, server_side=True)
            connection.recv(1_000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, w.RESET)
            connection.close()

        reading = threading.Thread(target=read_a_little)
        reading.start()
        where = "https://localhost" if tls else "http://127.0.0.1"
        url = f"{where}:{provider.getsockname()[1]}/"
        answer = outcome(sender.send(post(url, body=b"x" * (64 << 20))))
        reading.join()
    expected = Unknown if isinstance(sender, Reference) else NotSent
    assert isinstance(answer, expected)


def test_a_refused_connection_sends_nothing(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert isinstance(outcome(sender.send(post(f"http://127.0.0.1:{port}/"))), NotSent)


def test_an_unknown_name_sends_nothing(sender: Sender) -> None:
    answer = sender.send(post("http://provider.invalid/hook"))
    assert isinstance(outcome(answer), NotSent)


def test_a_connection_nobody_accepts_sends_nothing(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        address = full.getsockname()
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(address)
        answer = sender.send(post(f"http://127.0.0.1:{address[1]}/", SHORT_S))
        assert isinstance(outcome(answer), NotSent)
        for one in crowd:
            one.close()


def test_another_scheme_sends_nothing(sender: Sender) -> None:
    answer = sender.send(post("ftp://127.0.0.1/x"))
    assert isinstance(outcome(answer), NotSent)
