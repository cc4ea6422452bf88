"""What one HTTP call costs the client: every candidate side by side, in one run.

    python -m benchmarks.transport [--json] [--threads 1,100] [--calls 4000] [--rounds 5]

One call: build the request of a 300-byte notification, POST it over a kept-alive connection, read
status and body. CPU is that of this process alone; the provider (simulator, without fsync)
runs in another. Rounds of all candidates alternate, so that a noisy machine disturbs them alike; each
figure is the median of its rounds. Read the ratios. Over TLS the same provider has a certificate made for
the run, which every client verifies; what each costs beside plain HTTP is shown, and has no bar.
"""

from __future__ import annotations

import argparse
import http.client
import json
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httptools
import httpx
import pycurl
from rich.console import Console
from rich.table import Table

from channels.channel import Call, Failure
from channels.engine import Engine
from channels.http_client.request import post_json
from channels.http_client.transport import Transport
from channels.registry import PROVIDERS, accounts_for
from message.delivery import deliveries_of
from message.envelope import Notification
from message.outcomes import Accepted
from simulator import spawn
from simulator.servers.certificates import Authority

BASE = "httpx.Client"
OURS = "channels.http_client.transport"
TLS = ", https"
BAR = 0.2
BODY = b'{"content":"' + b"x" * 286 + b'"}'
HEADERS = [(b"Content-Type", b"application/json"), (b"Idempotency-Key", b"benchmark")]
HEADER_DICT = {"Content-Type": "application/json", "Idempotency-Key": "benchmark"}
TIMEOUT_S = 30.0

OneCall = Callable[[], None]
MakeCall = Callable[[], OneCall]
"""Made once in each thread; what it returns is called and makes one call."""


class Figure(NamedTuple):
    """Medians over the rounds."""

    cpu_us: float
    per_s: float


def httpx_client(url: str, ca_file: str = "") -> MakeCall:
    client = httpx.Client(
        verify=ssl.create_default_context(cafile=ca_file or None),
        timeout=TIMEOUT_S,
        limits=httpx.Limits(max_connections=None),
        trust_env=False,
    )

    def call() -> None:
        _expect(client.post(url, content=BODY, headers=HEADERS).status_code)

    return lambda: call


def httpx_transport(url: str) -> MakeCall:
    transport = httpx.HTTPTransport(limits=httpx.Limits(max_connections=None), trust_env=False)
    prepared = httpx.URL(url)

    def call() -> None:
        request = httpx.Request("POST", prepared, content=BODY, headers=HEADERS)
        answer = transport.handle_request(request)
        answer.read()
        _expect(answer.status_code)

    return lambda: call


def ours(url: str, ca_file: str = "") -> MakeCall:
    transport = Transport(ca_bundle=ca_file)
    prepared = httpx.URL(url)
    extensions = {"timeout": {"total": TIMEOUT_S}}
    fields = [(b"Host", prepared.netloc), (b"Idempotency-Key", b"benchmark")]

    def call() -> None:
        answer = transport.send(post_json(prepared, fields, BODY, extensions))
        assert not isinstance(answer, Failure), answer
        _expect(answer.status_code)

    return lambda: call


def our_engine(url: str) -> MakeCall:
    """The webhook channel and all: from a delivery to its outcome."""
    engine = Engine(Transport())
    notification = Notification(
        id="benchmark",
        channel="webhook",
        kind="notice",
        receivers=["u"],
        content={"text": "x" * 200},
        created_at=1,
    )
    (account,) = accounts_for(notification.lane, {"a": {"provider": "webhook", "endpoint": url}})
    (delivery,) = deliveries_of(notification, b"", expires_at=1)
    channel, one = PROVIDERS["webhook"], Call(account, (delivery,))

    def call() -> None:
        (outcome,) = engine.send(channel, one, TIMEOUT_S)
        assert isinstance(outcome, Accepted), outcome

    return lambda: call


def bare_pycurl(url: str) -> MakeCall:
    """libcurl's own HTTP, with nothing but the status read."""
    return _pycurl(url, safe=False)


def safe_pycurl(url: str) -> MakeCall:
    """libcurl's own HTTP with what a sender needs: the answer's fields, and the guard against a
    second send (a callback before each request; docs/decisions/020-transport.md)."""
    return _pycurl(url, safe=True)


def _pycurl(url: str, *, safe: bool) -> MakeCall:
    lines = [name + b": " + value for name, value in HEADERS]

    def make() -> OneCall:
        curl, body, head = pycurl.Curl(), list[bytes](), list[bytes]()
        for option, value in ((pycurl.URL, url), (pycurl.NOSIGNAL, 1), (pycurl.PROXY, "")):
            curl.setopt(option, value)
        curl.setopt(pycurl.WRITEFUNCTION, body.append)
        if safe:
            curl.setopt(pycurl.HEADERFUNCTION, head.append)
            curl.setopt(pycurl.PREREQFUNCTION, lambda *_: pycurl.PREREQFUNC_OK)

        def call() -> None:
            curl.setopt(pycurl.POSTFIELDS, BODY)
            curl.setopt(pycurl.HTTPHEADER, lines)
            curl.perform()
            body.clear()
            head.clear()
            _expect(curl.getinfo(pycurl.RESPONSE_CODE))

        return call

    return make


def stdlib(url: str, ca_file: str = "") -> MakeCall:
    parts, trusted = urlsplit(url), ssl.create_default_context(cafile=ca_file or None)

    def make() -> OneCall:
        connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.netloc, timeout=TIMEOUT_S, context=trusted
            )

        def call() -> None:
            connection.request("POST", parts.path, BODY, HEADER_DICT)
            answer = connection.getresponse()
            answer.read()
            _expect(answer.status)

        return call

    return make


class _Reader:
    """Callbacks of httptools."""

    def __init__(self) -> None:
        self.done = False
        self.body = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.done = True


def raw_socket(url: str) -> MakeCall:
    """The floor: no deadline, no TLS, no reconnecting."""
    parts = urlsplit(url)
    fields = b"".join(name + b": " + value + b"\r\n" for name, value in HEADERS)
    start = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n".encode() + fields

    def make() -> OneCall:
        connection = socket.create_connection((parts.hostname or "", parts.port or 80))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call() -> None:
            reader = _Reader()
            parser = httptools.HttpResponseParser(reader)
            connection.sendall(start + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            while not reader.done:
                parser.feed_data(connection.recv(65_536))
            _expect(parser.get_status_code())

        return call

    return make


CANDIDATES: dict[str, Callable[[str], MakeCall]] = {
    BASE: httpx_client,
    "httpx.HTTPTransport": httpx_transport,
    "http.client": stdlib,
    OURS: ours,
    "engine + webhook": our_engine,
    "pycurl, status alone": bare_pycurl,
    "pycurl, fields and guard": safe_pycurl,
    "socket + httptools": raw_socket,
}

OVER_TLS: dict[str, Callable[[str, str], MakeCall]] = {
    BASE: httpx_client,
    "http.client": stdlib,
    OURS: ours,
}
"""Given the authority to trust, too."""


def _expect(status: int) -> None:
    assert status == 200, status


def measure(make: MakeCall, threads: int, calls: int) -> tuple[float, float]:
    """CPU µs a call, and calls a second, of `calls` calls spread over the threads."""
    share = max(1, calls // threads)
    ready, go = threading.Barrier(threads + 1), threading.Barrier(threads + 1)

    def work() -> None:
        call = make()
        call()  # connects
        ready.wait()
        go.wait()
        for _ in range(share):
            call()

    thread_group = [threading.Thread(target=work) for _ in range(threads)]
    for one in thread_group:
        one.start()
    ready.wait()
    cpu, start = time.process_time(), time.perf_counter()
    go.wait()
    for one in thread_group:
        one.join()
    spent, took = time.process_time() - cpu, time.perf_counter() - start
    return spent / (share * threads) * 1e6, share * threads / took


class Peers(NamedTuple):
    """The provider, plain and over TLS."""

    plain: str
    tls: str
    authority: str


@contextmanager
def peers() -> Iterator[Peers]:
    """Their URLs while they run."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        certificate = str(authority.certificate("127.0.0.1"))
        other = f"{folder}/tls.jsonl"
        with (
            spawn(folder, fsync=False) as plain,
            spawn(folder, fsync=False, ledger=other, certificate=certificate) as tls,
        ):
            yield Peers(f"{plain.url}/hook", f"{tls.url}/hook", str(authority.file))


def makers_for(found: Peers) -> dict[str, MakeCall]:
    """Every candidate, those over TLS under a name of their own."""
    plain = {name: candidate(found.plain) for name, candidate in CANDIDATES.items()}
    over_tls = {
        f"{name}{TLS}": candidate(found.tls, found.authority)
        for name, candidate in OVER_TLS.items()
    }
    return plain | over_tls


def compare(found_at: Peers, threads: int, calls: int, rounds: int) -> dict[str, Figure]:
    """Every candidate's figures at that many threads."""
    makers = makers_for(found_at)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, make in makers.items():
            found[name].append(measure(make, threads, calls))
    return {
        name: Figure(*(statistics.median(column) for column in zip(*rows, strict=True)))
        for name, rows in found.items()
    }


def result(threads: int, figures: dict[str, Figure]) -> dict[str, Any]:
    """One block of the output."""
    base = figures[BASE].cpu_us
    rows = {
        name: {
            "cpu_us": round(figure.cpu_us, 1),
            "per_s": round(figure.per_s),
            "of_httpx": round(figure.cpu_us / base, 3),
            **_beside_plain(name, figure, figures),
        }
        for name, figure in figures.items()
    }
    return {"threads": threads, "passes": figures[OURS].cpu_us / base <= BAR, "clients": rows}


def _beside_plain(name: str, figure: Figure, figures: dict[str, Figure]) -> dict[str, float]:
    plain = figures.get(name.removesuffix(TLS)) if name.endswith(TLS) else None
    return {"of_plain": round(figure.cpu_us / plain.cpu_us, 3)} if plain else {}


def show(block: dict[str, Any]) -> None:
    """The same for people."""
    names = ("client", "CPU µs a call", "calls/s", f"÷ {BASE}", "÷ itself plain")
    table = Table(*names, title=_title(block))
    for name, row in block["clients"].items():
        plain = f"{row['of_plain']:.2f}" if "of_plain" in row else ""
        figures = (str(row["cpu_us"]), f"{row['per_s']:,}", f"{row['of_httpx']:.3f}", plain)
        table.add_row(name, *figures)
    Console().print(table)


def _title(block: dict[str, Any]) -> str:
    verdict = "holds" if block["passes"] else "MISSED"
    return f"{block['threads']} threads; {OURS} at most {BAR} of {BASE}: {verdict}"


def main() -> int:
    """0 when our transport keeps the bar at every number of threads, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--threads", default="1,100")
    parser.add_argument("--calls", type=int, default=4_000, help="a round")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    blocks = []
    with peers() as found:
        for threads in (int(text) for text in flags.threads.split(",")):
            figures = compare(found, threads, flags.calls, flags.rounds)
            blocks.append(result(threads, figures))
            if not flags.json:
                show(blocks[-1])
    if flags.json:
        print(json.dumps(blocks, indent=2))
    return 0 if all(block["passes"] for block in blocks) else 1


if __name__ == "__main__":
    sys.exit(main())
