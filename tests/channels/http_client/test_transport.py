"""The pool, the surroundings and httpx's side of the transport; its outcomes are in tests/conformance."""

import os
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx
import pycurl
import pytest

from channels.channel import Failure, Phase
from channels.http_client.connection import Connection
from channels.http_client.dialer import Dialer
from channels.http_client.exchange import Exchange
from channels.http_client.failures import BadRequest, TransportFailure
from channels.http_client.transport import MAX_TIMEOUT_S, Transport
from channels.http_client.wire_format import ResponseParser
from tests.conformance import wire as w
from tests.conformance.senders import Unwaited, post
from tests.conformance.wire import Script, Wire


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=[Transport, Unwaited])
def transport(time: Time, request: pytest.FixtureRequest) -> Iterator[Transport]:
    transport: Transport = request.param(idle_s=60, clock=time)
    yield transport
    transport.close()


def send(transport: Transport, request: httpx.Request) -> httpx.Response:
    answer = transport.send(request)
    assert isinstance(answer, httpx.Response), answer
    return answer


def test_calls_one_after_another_share_a_connection(transport: Transport) -> None:
    with Wire() as provider:
        for _ in range(5):
            send(transport, post(provider.url))
        assert (provider.requests, provider.connections, transport.idle) == (5, 1, 1)


@pytest.mark.parametrize("calls_before", [0, 1])
def test_no_first_byte_leaves_once_the_right_to_send_is_over(
    transport: Transport, calls_before: int
) -> None:
    """On a new connection and on a kept one; `not_after` is when the caller's lease ends."""
    with Wire() as provider:
        for _ in range(calls_before):
            send(transport, post(provider.url))
        late = post(provider.url)
        late.extensions["not_after"] = monotonic() - 0.001
        answer = transport.send(late)
        assert isinstance(answer, Failure)
        assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "too_late")
        in_time = post(provider.url)
        in_time.extensions["not_after"] = monotonic() + 60
        send(transport, in_time)
        assert provider.requests == calls_before + 1


def test_a_thread_that_ends_leaves_its_connection_to_the_others(transport: Transport) -> None:
    with Wire() as provider:
        for _ in range(5):
            thread = threading.Thread(target=send, args=(transport, post(provider.url)))
            thread.start()
            thread.join()
        assert (provider.requests, provider.connections) == (5, 1)


def test_a_hundred_threads_send_each_request_once(transport: Transport) -> None:
    with Wire() as provider, ThreadPoolExecutor(100) as pool:
        bodies = [b"%d" % number for number in range(2_000)]
        answers = pool.map(lambda body: send(transport, post(provider.url, body=body)), bodies)
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(provider.bodies) == sorted(bodies)
        assert provider.connections <= 100


def test_two_origins_share_no_connection(transport: Transport) -> None:
    with Wire() as one, Wire() as other:
        for _ in range(2):
            send(transport, post(one.url))
            send(transport, post(other.url))
        assert (one.connections, other.connections, transport.idle) == (1, 1, 2)


def test_idle_connections_are_closed_after_the_limit(transport: Transport, time: Time) -> None:
    with Wire() as provider:
        send(transport, post(provider.url))
        time.now += 59
        transport.sweep()
        assert transport.idle == 1
        time.now += 2
        transport.sweep()
        assert transport.idle == 0
        assert provider.done.wait(w.PATIENCE_S)


def test_the_janitor_sweeps_by_itself() -> None:
    transport = Transport(idle_s=0.02)
    with Wire() as provider:
        send(transport, post(provider.url))
        assert provider.done.wait(w.PATIENCE_S)
    transport.close()


def test_close_is_idempotent_and_closes_idle_connections(transport: Transport) -> None:
    with Wire() as provider:
        send(transport, post(provider.url))
        transport.close()
        transport.close()
        assert provider.done.wait(w.PATIENCE_S)
        answer = transport.send(post(provider.url))
    assert isinstance(answer, Failure)
    assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "closed")


def test_a_call_under_way_at_close_ends_and_closes_its_connection(transport: Transport) -> None:
    reached = threading.Event()
    go = threading.Event()

    def slow(wire: Wire, connection: socket.socket) -> bool:
        reached.set()
        return go.wait(w.PATIENCE_S) and w.ok(wire, connection)

    with Wire(slow) as provider, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(send, transport, post(provider.url))
        assert reached.wait(w.PATIENCE_S)
        transport.close()
        go.set()
        assert under_way.result().status_code == 200
        assert transport.idle == 0
        assert provider.done.wait(w.PATIENCE_S)


def test_close_before_the_first_call_is_safe() -> None:
    transport = Transport()
    transport.close()
    assert transport.idle == 0


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_not_used(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with Wire() as proxy, Wire() as provider:
        monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        send(transport, post(provider.url))
        assert (proxy.connections, provider.requests) == (0, 1)


def test_a_configured_proxy_is_asked_for_a_tunnel() -> None:
    refusal = w.say(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
    with Wire(refusal) as proxy, Wire() as provider:
        transport = Transport(proxy=f"http://127.0.0.1:{proxy.port}")
        answer = transport.send(post(provider.url))
        assert isinstance(answer, Failure)
        assert answer.phase is Phase.NOT_WRITTEN
        assert proxy.heads[0].startswith(b"CONNECT 127.0.0.1:%d " % provider.port)
        assert provider.requests == 0
        transport.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "POST"])
def test_every_method_is_sent_as_it_is(transport: Transport, method: str) -> None:
    empty = w.say(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n")
    with Wire(*([empty] if method == "HEAD" else [])) as provider:
        answer = send(transport, httpx.Request(method, f"{provider.url}/a%2Fb?c=d"))
        assert answer.status_code == 200
        assert provider.heads[0].split(b"\r\n")[0] == method.encode() + b" /hook/a%2Fb?c=d HTTP/1.1"


def test_the_answer_has_status_fields_body_and_time(transport: Transport) -> None:
    with Wire(w.answer("202 Accepted", b'{"id":"x"}', "X-Two: 1", "X-Two: 2")) as provider:
        answer = send(transport, post(provider.url))
    assert answer.status_code == 202
    assert answer.headers.get_list("x-two") == ["1", "2"]
    assert answer.json() == {"id": "x"}
    assert answer.elapsed.total_seconds() > 0


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b"])
def test_a_line_break_in_a_field_is_never_written(transport: Transport, value: str) -> None:
    with Wire() as provider:
        request = httpx.Request("POST", provider.url, headers={"X-A": value}, content=b"{}")
        with pytest.raises(BadRequest):
            transport.send(request)
        with pytest.raises(httpx.LocalProtocolError):
            transport.handle_request(request)
        assert provider.connections == 0


def test_a_failure_is_raised_to_httpx_with_its_phase(transport: Transport) -> None:
    with Wire(w.close) as provider, pytest.raises(TransportFailure) as raised:
        transport.handle_request(post(provider.url))
    assert raised.value.failure.phase is Phase.WRITTEN
    assert isinstance(raised.value, httpx.TransportError)


def test_an_httpx_client_can_be_mounted_on_it(transport: Transport) -> None:
    with Wire(w.answer("200 OK", '{"token":"秘"}'.encode())) as provider:
        client = httpx.Client(transport=transport, timeout=5)
        answer = client.post(provider.url, json={"a": 1})
        assert answer.json() == {"token": "秘"}
        assert b"accept-encoding" not in provider.heads[0].lower()
        client.close()


@pytest.mark.parametrize("total", [None, 0, 1e30])
def test_odd_timeouts_neither_hang_nor_raise(transport: Transport, total: float | None) -> None:
    with Wire() as provider:
        request = post(provider.url)
        request.extensions["timeout"] = {"total": total} if total is not None else {}
        send(transport, request)
    assert MAX_TIMEOUT_S < 1e30


def test_an_answer_that_comes_too_late_is_not_the_next_calls(transport: Transport) -> None:
    go = threading.Event()

    def late(wire: Wire, connection: socket.socket) -> bool:
        return go.wait(w.PATIENCE_S) and w.answer("200 OK", b"first")(wire, connection)

    with Wire(late, w.answer("200 OK", b"second")) as provider:
        assert isinstance(transport.send(post(provider.url, 0.2)), Failure)
        threading.Timer(0.05, go.set).start()
        assert send(transport, post(provider.url)).content == b"second"
        assert provider.connections == 2


def begun(connection: Connection, url: str) -> Exchange:
    exchange = connection.begin(post(url), 5.0, 5.0)
    assert isinstance(exchange, Exchange)
    return exchange


def test_a_call_that_breaks_off_leaves_no_answer_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    connection = Connection(Dialer())
    with Wire(w.answer("200 OK", b"first"), w.answer("200 OK", b"second")) as provider:
        with monkeypatch.context() as patch:
            patch.setattr(ResponseParser, "feed", interrupted)
            with pytest.raises(KeyboardInterrupt):
                begun(connection, provider.url).wait()
        answer = begun(connection, provider.url).wait()
        assert isinstance(answer, httpx.Response)
        assert answer.content == b"second"
    connection.close()


def test_names_are_resolved_within_the_deadline() -> None:
    """A resolver that hangs would hang the call, were libcurl built without its own threads for it."""
    assert pycurl.version_info()[4] & pycurl.VERSION_ASYNCHDNS


@pytest.mark.parametrize(
    "end", [w.then(w.answer("200 OK", b"{}", "Connection: close"), w.goodbye), w.close, w.reset]
)
def test_a_provider_that_ends_each_connection_costs_no_descriptors(
    transport: Transport, end: Script
) -> None:
    """A worker that kept one for each would reach its limit of open files, and send nothing more."""
    with Wire(*[end] * 30) as provider:
        transport.send(post(provider.url))
        open_before = w.descriptors()
        for _ in range(29):
            transport.send(post(provider.url))
        assert (provider.requests, transport.idle) == (30, 1)
        assert w.descriptors() <= open_before + 1  # the provider's side of the last one


def test_connections_share_the_names_that_were_looked_up() -> None:
    """A provider that ends each connection would cost a look-up a call."""
    with Wire() as provider:
        port = httpx.URL(provider.url).port
        dialer, other = Dialer(), pycurl.Curl()
        for option, value in (
            (pycurl.SHARE, dialer._names),
            (pycurl.CONNECT_ONLY, 1),
            (pycurl.URL, provider.url),
            (pycurl.RESOLVE, [f"known-to-another.invalid:{port}:127.0.0.1"]),
        ):
            other.setopt(option, value)
        other.perform()
        other.close()
        known = httpx.URL(f"http://known-to-another.invalid:{port}")
        wire = dialer.open(known, 5, 5)
        assert not isinstance(wire, Failure)
        wire.close()
        assert isinstance(Dialer().open(known, 5, 5), Failure)


def test_an_open_connection_takes_one_descriptor(transport: Transport) -> None:
    with Wire() as first, Wire() as second:
        transport.send(post(first.url))  # the reader of answers has its own descriptors by now
        open_before = w.descriptors()
        transport.send(post(second.url))
        assert w.descriptors() == open_before + 2  # ours and the provider's


def test_a_connection_that_broke_off_keeps_its_descriptor_until_its_owner_closes_it() -> None:
    """The reader of answers may still know the number, which must not be another connection's by then."""
    with Wire(w.reset) as provider:
        connection = Connection(Dialer())
        exchange = begun(connection, provider.url)
        assert isinstance(exchange.wait(), Failure)
        os.fstat(exchange.wire.descriptor)
        connection.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(exchange.wire.descriptor)


def test_a_process_without_a_descriptor_left_sends_nothing(transport: Transport) -> None:
    with Wire() as provider:
        transport.send(post(provider.url))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (w.descriptors(), hard))
        try:
            kept = transport.send(post(provider.url))
            fresh = transport.send(post(provider.url.replace("127.0.0.1", "localhost")))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert isinstance(kept, httpx.Response)
        assert isinstance(fresh, Failure)
        assert fresh.phase is Phase.NOT_WRITTEN
        assert provider.requests == 2


def test_after_every_kind_of_failure_the_next_call_works(transport: Transport) -> None:
    with Wire(w.close, w.ok, w.reset, w.ok, w.say(b"no http", on=False), w.ok) as provider:
        kinds = [type(transport.send(post(provider.url))).__name__ for _ in range(6)]
    assert kinds == ["Failure", "LeanResponse"] * 3
