"""HTTP/2, row by row: what the provider did, what the sender must believe, how many requests it processed.

The provider's own count is the judge, as in test_transport.py: an outcome may say less than what happened,
never something else.
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from hyperframe.frame import DataFrame, HeadersFrame

from channels.channel import Failure
from channels.http2_client import connection as http2_connection
from channels.http2_client.stream import Stream
from channels.http2_client.transport import Http2Transport
from channels.http_client.failures import BadRequest
from channels.http_client.request import post_json
from channels.http_client.response import LeanResponse
from channels.judging.outcomes import of_failure, refusal
from message.outcomes import WITHOUT_ANSWER, Accepted, AnyOutcome, NotSent, Unknown
from simulator.servers.certificates import Authority
from tests.conformance import wire_http2 as w
from tests.conformance.senders import Sender, http2, post, unwaited_http2
from tests.conformance.wire import PATIENCE_S, RESET, descriptors
from tests.conformance.wire_http2 import Act, Http2Wire

SHORT_S = 1.0
AMPLE_S = 5.0
STREAM_CLOSED = 5


@dataclass
class Row:
    """A provider's script and what must hold after as many sends as there are outcomes."""

    name: str
    script: list[Act]
    outcomes: list[type[AnyOutcome]]
    requests: int
    total_s: float = AMPLE_S
    """Of a send without success. Others have ample time: the first one opens the connection."""
    connections: int = 1
    wire: dict[str, Any] = field(default_factory=dict)
    """How the provider is made."""
    body: bytes = b'{"attempt":1}'
    resets: list[int] = field(default_factory=list)
    """Codes of the RST_STREAM frames that we sent."""


TOO_MUCH = b"x" * (3 << 20)
ROWS = [
    Row("an_answer", [w.ok], [Accepted], 1),
    Row("answers_over_one_connection", [], [Accepted] * 4, 4),
    Row("accept_then_close_on_a_fresh_connection", [w.close], [Unknown], 1),
    Row("accept_then_reset_on_a_fresh_connection", [w.reset], [Unknown], 1),
    Row("accept_then_close_on_a_reused_connection", [w.ok, w.close], [Accepted, Unknown], 2),
    Row("accept_then_reset_on_a_reused_connection", [w.ok, w.reset], [Accepted, Unknown], 2),
    Row(
        "every_second_request_closed",
        [w.ok, w.close, w.ok, w.close],
        [Accepted, Unknown, Accepted, Unknown],
        4,
        connections=2,
    ),
    Row(
        "answered_then_closed_while_idle", [w.then(w.ok, w.close)], [Accepted] * 2, 2, connections=2
    ),
    Row(
        "answered_then_reset_while_idle", [w.then(w.ok, w.reset)], [Accepted] * 2, 2, connections=2
    ),
    Row(
        "answered_then_goaway_and_closed_while_idle",
        [w.then(w.ok, w.goaway(), w.close)],
        [Accepted] * 2,
        2,
        connections=2,
    ),
    # GOAWAY: streams above its last one were not processed (RFC 9113 §6.8), the others may have been.
    Row("goaway_before_on_a_fresh_connection", [w.goaway_before], [NotSent], 0),
    Row(
        "goaway_before_on_a_reused_connection",
        [w.ok, w.goaway_before],
        [Accepted, NotSent, Accepted],
        2,
        connections=2,
    ),
    Row(
        "goaway_with_this_stream_then_its_answer",
        [w.then(w.goaway(), w.ok)],
        [Accepted] * 2,
        2,
        connections=2,
    ),
    Row(
        "goaway_with_this_stream_then_its_answer_reused",
        [w.ok, w.then(w.goaway(), w.ok)],
        [Accepted] * 3,
        3,
        connections=2,
    ),
    Row(
        "goaway_as_a_notice_then_the_answer",
        [w.then(w.goaway(last=w.LAST), w.ok)],
        [Accepted] * 2,
        2,
        connections=2,
    ),
    Row("goaway_with_this_stream_then_close", [w.then(w.goaway(), w.close)], [Unknown], 1),
    Row(
        "goaway_with_an_error_then_close",
        [w.then(w.goaway(w.INTERNAL_ERROR), w.close)],
        [Unknown, Accepted],
        2,
        connections=2,
    ),
    Row("goaway_as_a_notice_then_close", [w.then(w.goaway(last=w.LAST), w.close)], [Unknown], 1),
    Row(
        "a_notice_then_goaway_before",
        [w.ok, w.then(w.goaway(last=w.LAST), w.goaway(last=1))],
        [Accepted, NotSent],
        2,  # the script's act counts; the provider says itself that it did not process the second
    ),
    Row("goaway_then_nothing", [w.then(w.goaway(), w.stall)], [Unknown], 1, SHORT_S, resets=[8]),
    Row(
        "goaway_before_after_it_began_to_answer",
        [w.then(w.begin_answer, w.goaway(last=0))],
        [Unknown],
        1,
    ),
    # RST_STREAM: REFUSED_STREAM says that nothing was done (§8.7), no other code does.
    Row("refused_on_a_fresh_connection", [w.refuse], [NotSent, Accepted], 1),
    Row("refused_on_a_reused_connection", [w.ok, w.refuse], [Accepted, NotSent, Accepted], 2),
    Row("refused_after_it_began_to_answer", [w.then(w.begin_answer, w.rst(7))], [Unknown], 1),
    Row("refused_after_an_interim_answer", [w.then(w.interim("103"), w.rst(7))], [Unknown], 1),
    *(
        Row(f"reset_with_{name}", [w.ok, w.rst(code)], [Accepted, Unknown, Accepted], 3)
        for name, code in (
            ("no_error", w.NO_ERROR),
            ("protocol_error", w.PROTOCOL_ERROR),
            ("internal_error", w.INTERNAL_ERROR),
            ("cancel", w.CANCEL),
            ("enhance_your_calm", 11),
            ("http_1_1_required", 13),
            ("a_code_nobody_knows", 99),
        )
    ),
    Row("reset_within_the_answer", [w.then(w.half_a_body, w.rst(2))], [Unknown, Accepted], 2),
    # Answers that are not whole, or late.
    Row("half_a_head", [w.then(w.begin_answer, w.close)], [Unknown], 1),
    Row("half_a_body", [w.then(w.half_a_body, w.close)], [Unknown], 1),
    Row("half_a_body_reused", [w.ok, w.then(w.half_a_body, w.close)], [Accepted, Unknown], 2),
    Row("only_interim", [w.then(w.interim("103"), w.close)], [Unknown], 1),
    Row("answer_after_the_deadline", [w.stall], [Unknown], 1, SHORT_S, resets=[8]),
    Row(
        "an_answer_after_the_deadline_leaves_the_connection_good",
        [w.ok, w.stall, w.ok],
        [Accepted, Unknown, Accepted],
        3,
        SHORT_S,
        resets=[8],
    ),
    Row("slow_drip_past_the_total_deadline", [w.drip], [Unknown], 1, SHORT_S),
    # Ordinary answers of every shape.
    Row("interim_100", [w.then(w.interim("100"), w.ok)], [Accepted], 1),
    Row("interim_103", [w.then(w.interim("103"), w.ok)], [Accepted], 1),
    Row("trailers", [w.trailers], [Accepted] * 2, 2),
    Row("empty_204", [w.answer("204", b"")], [Accepted] * 2, 2),
    Row("long_header", [w.answer("200", b"{}", ("x", "y" * 10_000))], [Accepted] * 2, 2),
    Row("large_body", [w.answer("200", b"x" * 40_000)], [Accepted] * 2, 2),
    Row("body_over_the_bound", [w.answer("200", TOO_MUCH)], [Unknown, Accepted], 2, resets=[8]),
    Row("endless_headers", [w.answer("200", b"", *[("x", "y" * 4_000)] * 20)], [Unknown], 1),
    # What breaks the protocol after the request was written.
    Row("no_frame_at_all", [w.raw(b"220 mail.example.com ESMTP\r\n" * 9)], [Unknown], 1),
    Row("a_frame_on_a_stream_of_nobody", [w.raw(b"\0\0\1\0\0\0\0\0\0x")], [Unknown], 1),
    Row("bad_hpack", [w.raw(b"\0\0\2\1\5\0\0\0\1\xff\xff")], [Unknown], 1),
    Row("too_large_a_frame", [w.raw(b"\xff\xff\xff\0\0\0\0\0\1")], [Unknown], 1),
    Row("a_push", [w.raw(b"\0\0\5\5\4\0\0\0\1\0\0\0\2\x88")], [Unknown], 1),
    Row("an_extension_frame", [w.then(w.raw(b"\0\0\3\xfa\0\0\0\0\1abc"), w.ok)], [Accepted], 1),
    # Before the request was written.
    Row("no_http2_at_all", [], [NotSent], 0, wire={"opening": b"HTTP/1.1 400 Bad Request\r\n\r\n"}),
    Row("no_settings", [], [NotSent], 0, SHORT_S, wire={"greets": False}),
    Row("late_settings", [], [Accepted] * 2, 2, wire={"greets_after_s": 0.2}),
    Row("no_stream_allowed", [], [NotSent], 0, SHORT_S, wire={"settings": {w.MAX_CONCURRENT: 0}}),
    # Flow control: a request whose END_STREAM is held back is not whole, and is cancelled.
    Row(
        "starved_from_the_start",
        [],
        [NotSent] * 2,
        0,
        SHORT_S,
        wire={"settings": {w.WINDOW: 0}},
        resets=[8, 8],
    ),
    Row(
        "starved_before_the_last_byte",
        [],
        [NotSent],
        0,
        SHORT_S,
        wire={"settings": {w.WINDOW: 12}, "widens": False},
        resets=[8],
    ),
    Row("a_body_in_many_frames", [], [Accepted] * 2, 2, body=b"x" * (1 << 20)),
    Row("a_tiny_window", [], [Accepted] * 2, 2, wire={"settings": {w.WINDOW: 3}}),
    Row("no_body", [], [Accepted] * 2, 2, body=b""),
    *(
        Row(f"no_second_request_after_{status}", [w.answer(status, b"{}", *fields)], [kind], 1)
        for status, kind, *fields in (
            ("301", Unknown, ("location", "/other")),
            ("307", Unknown, ("location", "/other")),
            ("401", NotSent),
            ("408", NotSent),
            ("409", Unknown),
            ("421", NotSent),
            ("429", NotSent, ("retry-after", "1")),
            ("500", Unknown),
            ("503", Unknown, ("retry-after", "1")),
        )
    ),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(
    params=[
        pytest.param((http2, "http"), id="waited"),
        pytest.param((unwaited_http2, "http"), id="unwaited"),
        pytest.param((http2, "https"), id="waited-tls"),
        pytest.param((unwaited_http2, "https"), id="unwaited-tls"),
    ]
)
def pair(request: pytest.FixtureRequest) -> tuple[Callable[[str], Sender], str]:
    """What makes a sender, and the scheme that it is to use."""
    found: tuple[Callable[[str], Sender], str] = request.param
    return found


@pytest.fixture
def tls(pair: tuple[object, str], authority: Authority) -> ssl.SSLContext | None:
    """The provider's side; None: it speaks without TLS."""
    if pair[1] == "http":
        return None
    context = authority.server("localhost")
    context.set_alpn_protocols(["h2"])
    return context


@pytest.fixture
def sender(pair: tuple[Callable[[str], Sender], str], authority: Authority) -> Iterator[Sender]:
    make, scheme = pair
    transport = make(str(authority.file) if scheme == "https" else "")
    yield transport
    transport.close()


@pytest.fixture
def serve(tls: ssl.SSLContext | None) -> Callable[..., Http2Wire]:
    """Makes a provider that plays a script."""
    return partial(Http2Wire, tls=tls)


@pytest.fixture
def plain() -> Iterator[Http2Transport]:
    transport = Http2Transport()
    yield transport
    transport.close()


def outcome(answer: object) -> AnyOutcome:
    if isinstance(answer, Failure):
        assert answer.code in WITHOUT_ANSWER
        return of_failure(answer)
    return refusal(answer, 0.0) or Accepted()  # type: ignore[arg-type] # either of the two


def until(true: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE_S
    while not true():
        assert monotonic() < deadline, "it never came"
        sleep(0.005)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_outcome_agrees_with_what_the_provider_processed(
    sender: Sender, serve: Callable[..., Http2Wire], row: Row
) -> None:
    with serve(*row.script, **row.wire) as provider:
        believed = []
        for wanted in row.outcomes:
            total_s = AMPLE_S if wanted is Accepted else row.total_s
            request = post(provider.url, total_s, row.body)
            believed.append(type(outcome(sender.send(request))))
            assert "while_idle" not in row.name or provider.done.wait(PATIENCE_S)
        assert believed == row.outcomes
        assert provider.requests == row.requests
        assert set(provider.bodies) <= {row.body}
        until(lambda: provider.resets[: len(row.resets)] == row.resets)
        assert set(provider.resets[len(row.resets) :]) <= {STREAM_CLOSED}
        assert provider.connections == row.connections


@pytest.mark.parametrize("end", [w.close, w.reset, w.then(w.ok, w.close)])
def test_a_provider_that_ends_each_connection_costs_no_descriptors(
    sender: Sender, serve: Callable[..., Http2Wire], end: Act
) -> None:
    with serve(*[end] * 21) as provider:
        sender.send(post(provider.url))
        open_before = descriptors()
        for _ in range(20):
            sender.send(post(provider.url))
        # Both sides of the last one may be open, and the reader closes ours a moment later.
        until(lambda: descriptors() <= open_before + 2)


def test_a_request_cut_short_is_no_request(sender: Sender, tls: ssl.SSLContext | None) -> None:
    """The provider opens all windows, reads a little and resets while the body is on its way."""
    with socket.create_server(("127.0.0.1", 0)) as provider:

        def read_a_little() -> None:
            connection, _ = provider.accept()
            if tls:
                connection = tls.wrap_socket(connection, server_side=True)
            connection.sendall(bytes.fromhex("000006040000000000 00047fffffff"))
            connection.sendall(bytes.fromhex("000004080000000000 7fff0000"))
            connection.recv(1_000)
            sleep(0.1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()

        reading = threading.Thread(target=read_a_little)
        reading.start()
        where = "https://localhost" if tls else "http://127.0.0.1"
        url = f"{where}:{provider.getsockname()[1]}/"
        answer = outcome(sender.send(post(url, body=b"x" * (64 << 20))))
        reading.join()
    assert isinstance(answer, NotSent)


def test_a_request_that_the_socket_does_not_take_is_not_sent_and_never_leaves_later(
    sender: Sender, tls: ssl.SSLContext | None
) -> None:
    """The provider opens all windows and reads nothing before the deadline; what it reads afterwards has
    no END_STREAM."""
    body = b"x" * (32 << 20)
    read = [0]
    with socket.create_server(("127.0.0.1", 0)) as provider:

        def read_late() -> None:
            connection, _ = provider.accept()
            if tls:
                connection = tls.wrap_socket(connection, server_side=True)
            connection.sendall(bytes.fromhex("000006040000000000 00047fffffff"))
            connection.sendall(bytes.fromhex("000004080000000000 7fff0000"))
            given_up.wait(PATIENCE_S)
            connection.settimeout(2.0)
            try:
                while more := connection.recv(1 << 20):
                    read[0] += len(more)
            except OSError:
                pass
            connection.close()

        given_up = threading.Event()
        reading = threading.Thread(target=read_late)
        reading.start()
        where = "https://localhost" if tls else "http://127.0.0.1"
        url = f"{where}:{provider.getsockname()[1]}/"
        answer = outcome(sender.send(post(url, 0.5, body)))
        given_up.set()
        reading.join()
    assert isinstance(answer, NotSent)
    assert read[0] < len(body)


def test_a_large_body_is_sent_once(sender: Sender, serve: Callable[..., Http2Wire]) -> None:
    with serve() as provider:
        body = b"x" * (4 << 20)
        assert outcome(sender.send(post(provider.url, body=body))) == Accepted()
        assert provider.bodies == [body]
        assert provider.heads[0][b"content-length"] == b"%d" % len(body)


def test_an_answer_before_the_whole_request_is_the_answer(plain: Http2Transport) -> None:
    """RFC 9113 §8.1: a server may answer a request that it has not read whole."""

    def early(session: w.Session, frame: object) -> None:
        if isinstance(frame, DataFrame):
            session.head(frame.stream_id, "413", end=True)

    with Http2Wire(settings={w.WINDOW: 5}, widens=False, seen=early) as provider:
        answer = plain.send(post(provider.url))
        assert isinstance(answer, LeanResponse)
        assert answer.status_code == 413
        assert provider.requests == 0
        until(lambda: provider.resets == [w.CANCEL])


def test_answers_find_their_calls_in_any_order(plain: Http2Transport) -> None:
    """The provider answers the last of eight first."""
    said: dict[int, bytes] = {}

    def hold(session: w.Session, stream: int) -> bool:
        said[stream] = provider.bodies[-1]
        session.waiting.append(stream)
        if len(session.waiting) == 8:
            for one in reversed(session.waiting):
                session.head(one, "200")
                session.data(one, b"about " + said[one])
        return True

    with Http2Wire(*[hold] * 8) as provider:
        answers = at_once(plain, provider, 8)
    assert sorted(answers) == sorted((b"%d" % n, b"about %d" % n) for n in range(8))
    assert provider.connections == 1


def at_once(
    transport: Http2Transport, provider: Http2Wire, count: int
) -> list[tuple[bytes, bytes]]:
    """(what was sent, what was answered) of so many threads."""
    found: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()

    def call(number: int) -> None:
        body = b"%d" % number
        answer = transport.send(post(provider.url, PATIENCE_S, body))
        found.put(
            (body, answer.content if isinstance(answer, LeanResponse) else repr(answer).encode())
        )

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found.get() for _ in threads]


@pytest.mark.parametrize("allowed", [1, 3])
def test_no_more_streams_are_open_than_the_provider_allows(
    plain: Http2Transport, allowed: int
) -> None:
    slow = w.later(w.stall, 0.02, lambda session, stream: finish(session, stream))

    def finish(session: w.Session, stream: int) -> bool:
        with provider.lock:
            session.waiting.remove(stream)
            session.head(stream, "200", end=True)
        return True

    with Http2Wire(*[slow] * 30, settings={w.MAX_CONCURRENT: allowed}) as provider:
        answers = at_once(plain, provider, 30)
        assert {said for _, said in answers} == {b""}
        assert provider.most <= allowed
        assert provider.requests == 30
        assert provider.connections == 1


def test_a_call_that_waited_in_line_past_its_lease_is_not_sent(plain: Http2Transport) -> None:
    with Http2Wire(w.stall, settings={w.MAX_CONCURRENT: 1}) as provider:
        first: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        assert plain.begin(post(provider.url, 1.0), first.put) is None
        assert provider.began.wait(PATIENCE_S)
        second = post(provider.url, PATIENCE_S)
        second.extensions["not_after"] = monotonic() + 0.3
        late = plain.send(second)
        assert isinstance(late, Failure)
        assert (late.code, outcome(late)) == ("too_late", NotSent("too_late", late.detail))
        assert isinstance(outcome(first.get()), Unknown)
        assert provider.requests == 1
        assert len(provider.heads) == 1


def test_a_lease_that_is_over_lets_no_frame_leave(plain: Http2Transport) -> None:
    with Http2Wire() as provider:
        assert outcome(plain.send(post(provider.url))) == Accepted()
        request = post(provider.url)
        request.extensions["not_after"] = monotonic() - 0.001
        assert isinstance(outcome(plain.send(request)), NotSent)
        assert outcome(plain.send(post(provider.url))) == Accepted()
        assert len(provider.heads) == 2


def test_a_body_that_flow_control_held_past_the_lease_is_not_sent(plain: Http2Transport) -> None:
    """HEADERS leave in time, the window opens after the lease: END_STREAM must not follow."""

    def open_later(session: w.Session, frame: object) -> None:
        if isinstance(frame, HeadersFrame):
            w.later(w.stall, 0.4, w.widened)(session, frame.stream_id)

    with Http2Wire(settings={w.WINDOW: 0}, seen=open_later) as provider:
        request = post(provider.url)
        request.extensions["not_after"] = monotonic() + 0.2
        answer = plain.send(request)
        assert isinstance(answer, Failure)
        assert answer.code == "too_late"
        assert isinstance(outcome(answer), NotSent)
        until(lambda: provider.resets == [w.CANCEL])
        assert provider.requests == 0


def test_calls_that_a_goaway_meets_are_told_apart_by_its_last_stream(plain: Http2Transport) -> None:
    """Five calls; the provider processed the first three, answers two of them and goes."""
    calls: list[int] = []

    def go(session: w.Session, stream: int) -> bool:
        calls.append(stream)
        if len(calls) < 5:
            return True
        session.goaway(calls[2])
        session.head(calls[0], "200", end=True)
        session.head(calls[2], "200", end=True)
        return False

    with Http2Wire(*[go] * 5) as provider:
        told: list[SimpleQueue[LeanResponse | Failure]] = [SimpleQueue() for _ in range(5)]
        for number, queue in enumerate(told):
            assert plain.begin(post(provider.url, body=b"%d" % number), queue.put) is None
        outcomes = [type(outcome(queue.get(timeout=PATIENCE_S))) for queue in told]
    assert outcomes == [Accepted, Unknown, Accepted, NotSent, NotSent]


def test_a_silent_provider_is_asked_and_given_up(
    plain: Http2Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_connection, "PING_AFTER_S", 0.1)
    monkeypatch.setattr(http2_connection, "PING_WAIT_S", 0.2)
    with Http2Wire(w.stall, deaf=True) as provider:
        begun = monotonic()
        assert isinstance(outcome(plain.send(post(provider.url, PATIENCE_S))), Unknown)
        assert monotonic() - begun < PATIENCE_S / 2
        assert provider.pings == 1


def test_while_a_ping_is_unanswered_no_call_is_written(
    plain: Http2Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_connection, "PING_AFTER_S", 0.1)
    monkeypatch.setattr(http2_connection, "PING_WAIT_S", 0.6)
    with Http2Wire(w.stall, deaf=True) as provider:
        first: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        assert plain.begin(post(provider.url, PATIENCE_S), first.put) is None
        until(lambda: provider.pings == 1)
        assert isinstance(outcome(plain.send(post(provider.url, PATIENCE_S))), NotSent)
        assert isinstance(outcome(first.get()), Unknown)
        assert len(provider.heads) == 1


def test_a_provider_that_answers_pings_keeps_its_connection(
    plain: Http2Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http2_connection, "PING_AFTER_S", 0.05)
    monkeypatch.setattr(http2_connection, "PING_WAIT_S", 5.0)
    with Http2Wire(w.later(w.stall, 0.5, w.ok)) as provider:
        assert outcome(plain.send(post(provider.url))) == Accepted()
        assert provider.pings > 1
        assert outcome(plain.send(post(provider.url))) == Accepted()
        assert provider.connections == 1


def test_an_idle_connection_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = Http2Transport(idle_s=0.1)
    with Http2Wire() as provider:
        assert outcome(transport.send(post(provider.url))) == Accepted()
        assert provider.done.wait(PATIENCE_S)
        assert outcome(transport.send(post(provider.url))) == Accepted()
        assert provider.connections == 2
    transport.close()


def test_closing_waits_for_the_calls_under_way_and_takes_no_more(plain: Http2Transport) -> None:
    with Http2Wire(w.later(w.stall, 0.2, w.ok)) as provider:
        told: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
        assert plain.begin(post(provider.url), told.put) is None
        assert provider.began.wait(PATIENCE_S)
        plain.close()
        plain.close()
        assert isinstance(outcome(plain.send(post(provider.url))), NotSent)
        assert outcome(told.get(timeout=PATIENCE_S)) == Accepted()
        assert provider.done.wait(PATIENCE_S)
        assert provider.requests == 1


def test_what_came_is_read_before_a_call_is_written(
    plain: Http2Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GOAWAY that the thread which reads has not seen yet: the next call goes to a new connection."""
    with Http2Wire() as provider:
        assert outcome(plain.send(post(provider.url))) == Accepted()
        (connection,) = [route.connection for route in plain._routes.values()]
        assert connection is not None
        session = provider.sessions[0]
        monkeypatch.setattr(
            connection, "serve", lambda: None
        )  # the thread that reads comes too late
        with connection._lock:
            session.goaway(1)
            wire = connection._wire
            assert wire is not None
            until(lambda: not wire.silent())
            told: SimpleQueue[object] = SimpleQueue()
            stream = Stream(post(provider.url), PATIENCE_S, told.put)
            ready = threading.Thread(target=lambda: told.put(connection.begin(stream)))
            ready.start()
        assert told.get(timeout=PATIENCE_S) is False
        ready.join()
        assert provider.requests == 1


def test_many_threads_open_one_connection(plain: Http2Transport) -> None:
    with Http2Wire(greets_after_s=0.1) as provider:
        answers = at_once(plain, provider, 20)
        assert len(answers) == 20
        assert provider.connections == 1
        assert provider.requests == 20


def test_what_is_told_may_begin_the_next_call(plain: Http2Transport) -> None:
    with Http2Wire() as provider:
        told: SimpleQueue[LeanResponse | Failure] = SimpleQueue()

        def again(_: LeanResponse | Failure) -> None:
            assert plain.begin(post(provider.url), told.put) is None

        assert plain.begin(post(provider.url), again) is None
        assert outcome(told.get(timeout=PATIENCE_S)) == Accepted()


def test_one_who_raises_keeps_nobody_from_being_told(
    plain: Http2Transport, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: LeanResponse | Failure) -> None:
        raise RuntimeError("broken")

    with Http2Wire() as provider:
        assert plain.begin(post(provider.url), broken) is None
        assert outcome(plain.send(post(provider.url))) == Accepted()
    assert "answer_not_taken" in capsys.readouterr().out


def test_a_refused_connection_sends_nothing(sender: Sender) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert isinstance(outcome(sender.send(post(f"http://127.0.0.1:{port}/"))), NotSent)


def test_an_unknown_name_sends_nothing(sender: Sender) -> None:
    answer = sender.send(post("http://provider.invalid/hook"))
    assert isinstance(answer, Failure)
    assert answer.code == "dns"
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


def test_a_certificate_that_nobody_vouches_for_sends_nothing(authority: Authority) -> None:
    context = authority.server("localhost")
    context.set_alpn_protocols(["h2"])
    transport = Http2Transport()
    with Http2Wire(tls=context) as provider:
        answer = transport.send(post(provider.url))
        assert isinstance(answer, Failure)
        assert answer.code == "tls"
        assert isinstance(outcome(answer), NotSent)
        assert provider.requests == 0
    transport.close()


@pytest.mark.parametrize("offered", [[], ["http/1.1"]])
def test_a_server_that_does_not_agree_on_http2_sends_nothing(
    authority: Authority, offered: list[str]
) -> None:
    context = authority.server("localhost")
    if offered:
        context.set_alpn_protocols(offered)
    transport = Http2Transport(ca_bundle=str(authority.file))
    with Http2Wire(tls=context) as provider:
        answer = transport.send(post(provider.url))
        assert isinstance(answer, Failure)
        assert answer.detail == "the provider does not speak HTTP/2"
        assert isinstance(outcome(answer), NotSent)
    transport.close()


def test_another_scheme_is_a_mistake_of_the_adapter(plain: Http2Transport) -> None:
    with pytest.raises(BadRequest):
        plain.send(post("ftp://127.0.0.1/x"))


@pytest.mark.parametrize(
    "fields",
    [{"x": "a\r\nb: c"}, {"x": "a\0"}, {"a b": "c"}, {"x": " a"}, {":path": "/other"}],
)
def test_a_field_that_http_cannot_carry_is_never_written(
    plain: Http2Transport, fields: dict[str, str]
) -> None:
    with Http2Wire() as provider:
        raw = [(name.encode(), value.encode()) for name, value in fields.items()]
        request = post_json(httpx.URL(provider.url), raw, b"{}", {})
        with pytest.raises(BadRequest):
            plain.send(request)
        assert provider.connections == 0


def test_the_request_says_what_the_adapter_said_and_nothing_of_the_connection(
    plain: Http2Transport,
) -> None:
    with Http2Wire() as provider:
        fields = [(b"Host", b"other"), (b"Apns-Topic", b"t"), (b"Connection", b"close")]
        request = post_json(httpx.URL(provider.url + "?q=1"), fields, b"{}", {})
        assert outcome(plain.send(request)) == Accepted()
        (head,) = provider.heads
    assert head == {
        b":method": b"POST",
        b":scheme": b"http",
        b":authority": f"127.0.0.1:{provider.port}".encode(),
        b":path": b"/hook?q=1",
        b"apns-topic": b"t",
        b"content-type": b"application/json",
        b"content-length": b"2",
    }


def test_the_answer_is_httpxs_own(plain: Http2Transport) -> None:
    with Http2Wire(w.answer("200", b'{"id":1}', ("apns-id", "A-1"), ("x", "1"))) as provider:
        answer = plain.send(post(provider.url))
        assert isinstance(answer, LeanResponse)
        assert answer.headers["apns-id"] == "A-1"
        assert answer.json() == {"id": 1}
        assert ":status" not in answer.headers


def test_the_provider_reads_why_a_failure_was_told_in_plain_words(plain: Http2Transport) -> None:
    with Http2Wire(w.then(w.goaway(), w.close)) as provider:
        answer = plain.send(post(provider.url))
    assert isinstance(answer, Failure)
    assert re.search("closed", answer.detail)
