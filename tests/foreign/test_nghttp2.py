"""HTTP/2 before nghttp2 (Debian's nghttp2-server and nghttp2-client 1.52), the reference implementation.

Judges our client by nghttpd, which reads every frame strictly and sends back what it was sent, and the
simulator by nghttp and h2load.
"""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from channels.channel import Failure, Phase
from channels.http2_client.transport import Http2Transport
from channels.http_client.response import LeanResponse
from simulator import Faults
from simulator.servers.certificates import Authority
from tests.conformance.senders import post
from tests.foreign.nghttp2 import Nghttpd, run
from tests.harness.simulators import spawn

PATIENCE_S = 20.0


@pytest.fixture
def transport() -> Iterator[Http2Transport]:
    made = Http2Transport()
    yield made
    made.close()


def echo(transport: Http2Transport, server: Nghttpd, body: bytes) -> LeanResponse:
    answer = transport.send(post(server.url, PATIENCE_S, body))
    assert isinstance(answer, LeanResponse), answer
    assert answer.status_code == 200
    return answer


@pytest.mark.parametrize("size", [1, 4_096, 16_384, 16_385, 65_535, 65_536, 1 << 20])
def test_nghttpd_reads_a_body_of_any_size_and_sends_it_back(
    transport: Http2Transport, size: int
) -> None:
    body = bytes(number % 251 for number in range(size))
    with Nghttpd() as server:
        assert echo(transport, server, body).content == body
        assert (server.requests(), server.received()) == (1, size)
        assert ":method: POST" in server.said()
        assert f"content-length: {size}" in server.said()


@pytest.mark.parametrize("bits", [1, 4, 10])
def test_no_byte_passes_the_windows_that_nghttpd_opens(
    transport: Http2Transport, bits: int
) -> None:
    """Beyond them nghttpd would end the stream with FLOW_CONTROL_ERROR."""
    with Nghttpd(f"--window-bits={bits}") as server:
        for number in range(3):
            body = b"%d" % number * 500
            assert echo(transport, server, body).content == body
        assert "FLOW_CONTROL_ERROR" not in server.said()
        assert server.received() == 3 * 500


def test_no_more_streams_are_open_than_nghttpd_allows(transport: Http2Transport) -> None:
    told: SimpleQueue[LeanResponse | Failure] = SimpleQueue()
    with Nghttpd("--max-concurrent-streams=2") as server:
        threads = [
            threading.Thread(
                target=lambda: told.put(transport.send(post(server.url, PATIENCE_S, b"x" * 900)))
            )
            for _ in range(30)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers = [told.get() for _ in threads]
        assert all(isinstance(one, LeanResponse) and one.content == b"x" * 900 for one in answers)
        assert "REFUSED_STREAM" not in server.said()
        assert (server.requests(), server.received()) == (30, 30 * 900)


def test_a_thousand_calls_keep_the_header_tables_of_both_sides_alike(
    transport: Http2Transport,
) -> None:
    """A mistake in HPACK ends a connection with COMPRESSION_ERROR."""
    with Nghttpd("--header-table-size=512") as server:
        for number in range(1_000):
            request = post(server.url, PATIENCE_S, b"%d" % number)
            request.headers["x-number"] = f"{number:050d}"
            answer = transport.send(request)
            assert isinstance(answer, LeanResponse), answer
            assert answer.content == b"%d" % number
        assert server.requests() == 1_000
        assert "COMPRESSION_ERROR" not in server.said()


def test_alpn_agrees_on_http2_with_nghttpd(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    transport = Http2Transport(ca_bundle=str(authority.file))
    with Nghttpd(certificate=str(authority.certificate("localhost"))) as server:
        for size in (10, 1 << 20):
            assert echo(transport, server, b"x" * size).content == b"x" * size
        assert server.requests() == 2
    transport.close()


def test_nghttpd_reads_a_goodbye_from_a_transport_that_closes() -> None:
    transport = Http2Transport()
    with Nghttpd() as server:
        echo(transport, server, b"{}")
        transport.close()
        deadline = threading.Event()
        while "recv GOAWAY frame" not in server.said():
            assert not deadline.wait(0.02)
        (code,) = re.findall(r"recv GOAWAY frame.*?error_code=(\w+)", server.said(), re.DOTALL)
        assert code == "NO_ERROR"


def test_a_server_that_has_ended_is_sent_nothing(transport: Http2Transport) -> None:
    with Nghttpd() as server:
        echo(transport, server, b"{}")
        server.stop()
        answer = transport.send(post(server.url, PATIENCE_S))
    assert isinstance(answer, Failure)
    assert answer.phase is Phase.NOT_WRITTEN


def test_nghttp_reads_the_simulators_answer(tmp_path: Path) -> None:
    with spawn(tmp_path, fsync=False) as provider:
        body = tmp_path / "body"
        body.write_text('{"id":"m","receiver":"u"}')
        said = run("nghttp", "-H", "idempotency-key: k", f"--data={body}", f"{provider.url}/hook")
        assert json.loads(said) == {"id": "sim-1"}
        assert provider.report().summary.accepted == 1


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_h2load_has_an_answer_to_each_of_many_requests(tmp_path: Path, secured: bool) -> None:
    """One stream a connection: h2load opens its first before it has read how many are allowed, and the
    simulator ends a connection with more, as Apple does ("Maximum active streams violated")."""
    body = tmp_path / "body"
    body.write_text('{"id":"m","receiver":"u"}')
    certificate = str(Authority(tmp_path).certificate("127.0.0.1")) if secured else ""
    with spawn(tmp_path, fsync=False, certificate=certificate) as provider:
        provider.control(rules=[Faults(latency_ms="1-20")])
        said = run(
            "h2load",
            *("-n", "400", "-c", "8", "-m", "1", "-d", str(body), "-H", "idempotency-key: k"),
            f"{provider.url}/hook",
        )
        assert "400 succeeded, 0 failed, 0 errored, 0 timeout" in said
        assert "status codes: 400 2xx" in said
        assert provider.report().summary.requests == 400
