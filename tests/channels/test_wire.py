"""The socket transport's own edges: names, addresses, deadlines, what follows an answer, codings.

What every transport must hold is in tests/conformance, run over this one by test_wire_conformance.
"""

import gzip
import socket
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import pytest

from channels import wire_names
from channels.channel import Failure, Phase
from channels.transport import Transport
from channels.wire_dial import STAGGER_S
from tests.conformance import wire as w
from tests.conformance.authority import Authority
from tests.conformance.senders import post
from tests.conformance.test_transport_tls import trusting
from tests.conformance.wire import Wire

SHORT_S = 0.3


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport(sockets=True)
    yield transport
    transport.close()


def failed(answer: object, phase: Phase, code: str) -> bool:
    return isinstance(answer, Failure) and (answer.phase, answer.code) == (phase, code)


def content(answer: httpx.Response | Failure) -> bytes:
    assert isinstance(answer, httpx.Response), answer
    return answer.content


def test_a_resolver_that_hangs_holds_nobody_past_the_deadline(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), []

    def hang(host: str, port: int, flags: int = 0) -> list[Any]:
        if flags:
            raise socket.gaierror("a name")
        asked.append(host)
        over.wait(w.PATIENCE_S)
        return []

    monkeypatch.setattr(wire_names, "_getaddrinfo", hang)
    began = monotonic()
    for _ in range(2):
        answer = transport.send(post("http://slow.example/", SHORT_S))
        assert failed(answer, Phase.NOT_WRITTEN, "timeout")
    assert monotonic() - began < w.PATIENCE_S / 2
    assert asked == ["slow.example"]  # the second caller joined the first one's lookup
    over.set()


def test_a_dead_first_address_costs_a_moment_and_not_the_deadline(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Wire() as provider, socket.create_server(("127.0.0.1", 0), backlog=1) as full:
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        addresses = [full.getsockname(), ("127.0.0.1", provider.port)]
        found = [wire_names.Address(socket.AF_INET, address) for address in addresses]
        monkeypatch.setattr(wire_names, "_getaddrinfo", lambda *_: found)
        began = monotonic()
        assert content(transport.send(post("http://two.example/"))) == b'{"id":"7"}'
        assert STAGGER_S <= monotonic() - began < 5
        for one in crowd:
            one.close()


def test_a_refused_first_address_costs_nothing(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refusing = taken.getsockname()
    with Wire() as provider:
        addresses = [refusing, ("127.0.0.1", provider.port)]
        found = [wire_names.Address(socket.AF_INET, address) for address in addresses]
        monkeypatch.setattr(wire_names, "_getaddrinfo", lambda *_: found)
        began = monotonic()
        assert content(transport.send(post("http://two.example/"))) == b'{"id":"7"}'
        assert monotonic() - began < STAGGER_S


@pytest.mark.xfail(reason="http1.Reader adds a second answer's body to the first's", strict=False)
def test_bytes_behind_an_answer_are_never_the_next_answer(transport: Transport) -> None:
    two = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst" * 2
    with Wire(w.say(two), w.answer("200 OK", b"second")) as provider:
        assert content(transport.send(post(provider.url))) == b"first"
        assert content(transport.send(post(provider.url))) == b"second"
        assert provider.connections == 2


def test_bytes_that_come_unasked_are_never_an_answer(transport: Transport) -> None:
    spoken = threading.Event()

    def speak_later(wire: Wire, connection: socket.socket) -> bool:
        w.ok(wire, connection)
        while not asked.wait(0.01):
            pass
        connection.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        spoken.set()
        return True

    asked = threading.Event()
    with Wire(speak_later) as provider:
        transport.send(post(provider.url))
        asked.set()
        assert spoken.wait(w.PATIENCE_S)
        answer = transport.send(post(provider.url))
        assert isinstance(answer, httpx.Response)
        assert (answer.status_code, provider.connections) == (200, 2)


def test_a_head_answer_has_no_body_whatever_it_says(transport: Transport) -> None:
    with Wire(w.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")) as provider:
        request = httpx.Request("HEAD", provider.url, extensions={"timeout": {"total": 5.0}})
        assert content(transport.send(request)) == b""


@pytest.mark.parametrize("act", [w.stall, w.drip], ids=["silent", "dripping"])
def test_the_deadline_holds_under_tls(transport: Transport, tmp_path: Path, act: w.Script) -> None:
    authority = Authority(tmp_path)
    with Wire(w.ok, act, tls=authority.server("localhost")) as provider:
        transport.send(trusting(post(provider.url), authority))
        began = monotonic()
        answer = transport.send(trusting(post(provider.url, SHORT_S), authority))
        assert failed(answer, Phase.WRITTEN, "timeout")
        assert monotonic() - began < 2
        assert (provider.requests, provider.connections) == (2, 1)


def test_a_body_cut_short_under_tls_is_no_answer(transport: Transport, tmp_path: Path) -> None:
    """Without a length the body ends with the connection, and anyone on the way can cut that."""
    authority = Authority(tmp_path)
    cut = w.say(b"HTTP/1.1 200 OK\r\n\r\nhalf of i", on=False)
    with Wire(cut, tls=authority.server("localhost")) as provider:
        answer = transport.send(trusting(post(provider.url), authority))
        assert failed(answer, Phase.WRITTEN, "closed")


def test_a_timeout_that_was_long_before_is_short_for_the_next_call(transport: Transport) -> None:
    with Wire(w.ok, w.stall) as provider:
        transport.send(post(provider.url, 30.0))
        began = monotonic()
        answer = transport.send(post(provider.url, SHORT_S))
        assert failed(answer, Phase.WRITTEN, "timeout")
        assert SHORT_S * 0.9 <= monotonic() - began < 3


def test_a_provider_that_does_not_read_is_given_up_in_time(transport: Transport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        began = monotonic()
        answer = transport.send(post(url, SHORT_S, b"x" * (64 << 20)))
        assert failed(answer, Phase.NOT_WRITTEN, "timeout")
        assert monotonic() - began < 3


@pytest.mark.parametrize("zipped", [gzip.compress(b"plain"), zlib.compress(b"plain")])
def test_an_answer_zipped_unasked_is_unzipped(transport: Transport, zipped: bytes) -> None:
    with Wire(w.answer("200 OK", zipped, "Content-Encoding: gzip")) as provider:
        assert content(transport.send(post(provider.url))) == b"plain"


@pytest.mark.parametrize(
    ("body", "coding", "code"),
    [
        (gzip.compress(b"x" * (8 << 20)), "gzip", "too_large"),
        (gzip.compress(b"plain")[:-4], "gzip", "protocol"),
        (b"no zip", "gzip", "protocol"),
        (b"?", "br", "protocol"),
        (gzip.compress(gzip.compress(b"twice")), "gzip, gzip", "protocol"),
    ],
)
def test_a_body_that_cannot_be_unzipped_is_no_answer(
    transport: Transport, body: bytes, coding: str, code: str
) -> None:
    with Wire(w.answer("200 OK", body, f"Content-Encoding: {coding}")) as provider:
        assert failed(transport.send(post(provider.url)), Phase.WRITTEN, code)


def test_a_proxy_is_left_to_libcurl() -> None:
    transport = Transport(sockets=True, proxy="http://127.0.0.1:1")
    answer = transport.send(post("http://provider.invalid/"))
    assert failed(answer, Phase.NOT_WRITTEN, "connect")  # of the proxy: no name was looked up
    transport.close()


def test_a_hundred_threads_load_an_authority_once_and_all_get_through(
    transport: Transport, tmp_path: Path
) -> None:
    authority, answers = Authority(tmp_path), list[object]()
    with Wire(tls=authority.server("localhost")) as provider:

        def call() -> None:
            answers.append(transport.send(trusting(post(provider.url, 30.0), authority)))

        crew = [threading.Thread(target=call) for _ in range(100)]
        for one in crew:
            one.start()
        for one in crew:
            one.join()
    assert all(isinstance(answer, httpx.Response) for answer in answers), answers
