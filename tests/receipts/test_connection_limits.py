"""Strangers on real sockets: what they send is bounded before anything is kept."""

from __future__ import annotations

import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from backends.http_server import connection_limits as limits
from tests.idempotency.making import World
from tests.receipts.test_process import push, running

MIB = 1 << 20
SENT = 200 * MIB
GROWTH = 48 * MIB
"""Far below what is sent, far above what one connection may keep."""


@pytest.fixture
def served(world: World, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    world.open()
    with running(tmp_path, world.url) as (process, url):
        assert httpx.get(f"{url}/readyz").status_code == 200
        yield process, url


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def peak(process: subprocess.Popen[str]) -> int:
    """The most memory that the process ever had, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found
    return int(found[1]) * 1024


def pour(client: socket.socket, piece: bytes, size: int = SENT) -> int:
    """Send so much of it, or until the other side ends; the bytes that went."""
    sent = 0
    try:
        while sent < size:
            sent += client.send(piece)
    except OSError:
        pass
    return sent


def ended(client: socket.socket) -> bytes:
    """All that is answered until the other side ends."""
    said = b""
    try:
        while part := client.recv(65_536):
            said += part
    except ConnectionError:
        pass
    return said


CHUNKED = "POST /receipts/ali?secret=x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
FLOODS = {
    "one header": ("POST /receipts/ali HTTP/1.1\r\nHost: x\r\nX-Long: ", b"a" * 65_536),
    "many headers": ("POST /receipts/ali HTTP/1.1\r\nHost: x\r\n", b"X-Many: 1\r\n" * 6_000),
    "one request line": ("GET /receipts/", b"a" * 65_536),
    "one query": ("GET /receipts/ali?secret=", b"%41" * 20_000),
    "no line at all": ("", b"\x00" * 65_536),
    "line breaks": ("", b"\r\n" * 30_000),
    "a chunk's head": (CHUNKED, b"1;ext=" + b"a" * 65_536),
    "chunks without end": (CHUNKED, b"10000\r\n" + b"a" * 65_536 + b"\r\n"),
    "fields behind the chunks": (CHUNKED + "0\r\n", b"X-Trailer: 1\r\n" * 5_000),
    "a body of a gibibyte": (
        "POST /receipts/ali HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n",
        b"a" * 65_536,
    ),
}


def test_what_never_ends_is_cut_off_and_not_kept(
    served: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = served
    before, kept = peak(process), {}
    for flood, (head, piece) in FLOODS.items():
        with connect(url) as client:
            client.sendall(head.encode())
            assert pour(client, piece) < SENT, f"{flood}: the connection was never closed"
        before, kept[flood] = peak(process), peak(process) - before
    assert max(kept.values()) < GROWTH, kept
    assert httpx.get(f"{url}/readyz").status_code == 200


def test_a_body_over_the_limit_is_answered_and_the_connection_closed(
    served: tuple[subprocess.Popen[str], str],
) -> None:
    _, url = served
    with connect(url) as client:
        client.sendall(b"POST /receipts/ali HTTP/1.1\r\nHost: x\r\nContent-Length: 2097152\r\n\r\n")
        assert ended(client).startswith(b"HTTP/1.1 413")
    assert push(url, [{"x": "a" * 2 * MIB}]).status_code == 413


@contextmanager
def bounded() -> Iterator[str]:
    """A server in this process that answers every request with `ok`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    config = uvicorn.Config(
        app, http=limits.BoundedProtocol, ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_a_request_that_does_not_become_whole_in_time_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REQUEST_S", 0.2)
    with bounded() as url:
        for begun in (
            b"",
            b"POST / HTTP/1.1\r\nX-Slow: ",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
        ):
            with connect(url) as client:
                client.sendall(begun)
                assert ended(client) == b""
        with httpx.Client(base_url=url) as client_:
            assert {client_.get("/").text for _ in range(3)} == {"ok"}


def test_those_who_say_nothing_make_room_for_those_who_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CONNECTIONS", 3)
    with bounded() as url:
        silent = [connect(url) for _ in range(3)]
        assert httpx.get(url).text == "ok"
        assert ended(silent[0]) == b"", "the oldest goes first"
        silent[2].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"ok" in ended(silent[2])
        for one in silent:
            one.close()


def test_bodies_are_bounded_together() -> None:
    budget = limits.BodyBudget(10)
    assert budget.take(6)
    assert not budget.take(6)
    budget.give_back(6)
    assert budget.take(10)
