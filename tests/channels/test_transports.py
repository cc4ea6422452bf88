"""Which transport a request goes over, and when it is opened and closed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import httpx
import pytest

from channels.channel import Failure, Phase
from channels.endpoints import over_http2
from channels.http_client.failures import BadRequest
from channels.transports import TransportRouter
from tests.channels.smtp_client.test_transport import mail
from tests.channels.smtp_server import MailServer
from tests.conformance.senders import post
from tests.conformance.wire import Wire
from tests.conformance.wire_http2 import Http2Wire


class Fake:
    """A transport that counts."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.closed = 0
        self.beat = 0.0

    def send(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request.url.scheme)
        return httpx.Response(200)

    def begin(self, request: httpx.Request, done: object) -> httpx.Response:
        return self.send(request)

    def close(self) -> None:
        self.closed += 1


class Bench:
    """Wires over fakes, with those that were made."""

    def __init__(self) -> None:
        self.http: list[Fake] = []
        self.mail: list[Fake] = []
        self.http2: list[Fake] = []
        self.wires = TransportRouter(
            lambda: self._make(self.http),
            lambda: self._make(self.mail),
            lambda: self._make(self.http2),
        )

    def send(self, url: str) -> httpx.Response | Failure:
        return self.wires.send(httpx.Request("POST", url))

    def _make(self, made: list[Fake]) -> Fake:
        made.append(Fake())
        return made[-1]


def test_the_scheme_chooses_the_transport_and_its_first_call_opens_it() -> None:
    bench = Bench()
    assert (bench.http, bench.mail) == ([], [])
    for url in ("https://a.example", "http://a.example"):
        bench.send(url)
    assert [one.sent for one in bench.http] == [["https", "http"]]
    assert bench.mail == []
    for url in ("smtps://a.example", "smtp://a.example"):
        bench.send(url)
    assert [one.sent for one in bench.mail] == [["smtps", "smtp"]]
    assert bench.http2 == []
    for url in ("h2://a.example", "h2c://a.example"):
        bench.send(url)
    assert [one.sent for one in bench.http2] == [["h2", "h2c"]]


def test_a_scheme_that_nobody_serves_is_a_bad_request() -> None:
    bench = Bench()
    with pytest.raises(BadRequest, match="ftp"):
        bench.send("ftp://a.example")
    assert (bench.http, bench.mail) == ([], [])


def test_closing_closes_what_was_opened_once_and_opens_nothing_more() -> None:
    bench = Bench()
    bench.send("smtp://a.example")
    bench.wires.close()
    bench.wires.close()
    assert [one.closed for one in bench.mail] == [1]
    answer = bench.send("https://a.example")
    assert isinstance(answer, Failure)
    assert (answer.phase, answer.code) == (Phase.NOT_WRITTEN, "closed")
    assert bench.http == []


def test_many_first_calls_at_once_open_one_transport() -> None:
    bench = Bench()
    together = threading.Barrier(8)

    def first() -> None:
        together.wait()
        bench.send("smtp://a.example")

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(first) for _ in range(8)]:
            done.result()
    assert len(bench.mail) == 1


def test_the_real_transports_serve_all_kinds() -> None:
    wires = TransportRouter()
    with Wire() as provider, MailServer() as server, Http2Wire() as modern:
        assert isinstance(wires.send(post(provider.url)), httpx.Response)
        answer = wires.send(mail(server))
        assert isinstance(answer, httpx.Response)
        request = post(modern.url)
        request.url = over_http2(request.url)
        assert isinstance(wires.send(request), httpx.Response)
        assert (provider.requests, len(server.messages), modern.requests) == (1, 1, 1)
    wires.close()
    assert isinstance(wires.send(post("http://127.0.0.1:9/")), Failure)


def test_the_loop_that_went_round_least_lately_is_told_of() -> None:
    bench = Bench()
    assert bench.wires.beat == pytest.approx(monotonic(), abs=1)
    bench.send("http://a.example")
    bench.send("smtp://a.example")
    bench.http[0].beat, bench.mail[0].beat = 7.0, 9.0
    assert bench.wires.beat == 7.0
