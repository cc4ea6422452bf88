"""OpenSSL's own server judges what TLS does beside answers: key updates, tickets, renegotiation.

`openssl s_server` does what its standard input says, and says on its standard output what it received.
"""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import IO

import httpx
import pytest

from channels.http_client.transport import Transport
from simulator.servers.certificates import Authority
from tests.conformance.senders import Unwaited, post
from tests.harness.waiting import await_

PATIENCE_S = 20.0
ANSWER = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class OpenSsl:
    """One server; it serves one connection after the other."""

    def __init__(self, certificate: Path, *flags: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        program = shutil.which("openssl")
        assert program is not None
        command = [
            program,
            "s_server",
            "-accept",
            f"127.0.0.1:{self.port}",
            "-cert",
            str(certificate),
        ]
        self._process = subprocess.Popen(
            [*command, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.said = b""
        assert self._process.stdout is not None
        self._listening = Thread(target=self._listen, args=(self._process.stdout,), daemon=True)
        self._listening.start()
        self.await_said(b"ACCEPT")

    def await_said(self, text: bytes, times: int = 1) -> None:
        """Until it has said so, as often."""
        await_(
            lambda: self.said.count(text) >= times, PATIENCE_S, lambda: f"{text!r}: {self.said!r}"
        )

    def say(self, text: str) -> None:
        """A line that begins with one letter is a command, else it goes to the client."""
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._listening.join()  # closed while it reads, the pipe would end that thread by an error
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self, stdout: IO[bytes]) -> None:
        while data := stdout.read1(65_536):  # type: ignore[attr-defined] # a pipe is buffered
            self.said += data


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(params=["-tls1_3", "-tls1_2"])
def server(request: pytest.FixtureRequest, authority: Authority) -> Iterator[OpenSsl]:
    server = OpenSsl(authority.certificate("127.0.0.1"), request.param)
    yield server
    server.close()


@pytest.fixture(params=[Transport, Unwaited])
def transport(request: pytest.FixtureRequest, authority: Authority) -> Iterator[Transport]:
    transport: Transport = request.param(ca_bundle=str(authority.file))
    yield transport
    transport.close()


class Calls:
    """Calls of one transport to one server, numbered."""

    def __init__(self, transport: Transport, server: OpenSsl) -> None:
        self._transport, self._server, self._count = transport, server, 0

    def make(self) -> None:
        """One call, which the server answers when it has read it whole."""
        self._count += 1
        body, found = f"call-{self._count}-over", list[object]()
        request = post(f"https://127.0.0.1:{self._server.port}/", PATIENCE_S, body.encode())
        calling = Thread(target=lambda: found.append(self._transport.send(request)))
        calling.start()
        self._server.await_said(body.encode())
        self._server.say(ANSWER)
        calling.join(PATIENCE_S)
        assert isinstance(found[0], httpx.Response), (found, self._server.said)


@pytest.mark.parametrize("letter", ["k", "K"], ids=["of_its_own_key", "of_both"])
@pytest.mark.parametrize("server", ["-tls1_3"], indirect=True)
def test_a_key_update_on_an_idle_connection_is_no_stray_answer(
    server: OpenSsl, transport: Transport, letter: str
) -> None:
    calls = Calls(transport, server)
    calls.make()
    for _ in range(3):
        server.say(f"{letter}\n")
        calls.make()
    assert server.said.count(b"-----BEGIN SSL SESSION PARAMETERS-----") <= 1
    assert server.said.count(b"ACCEPT") == 1
    assert b"CONNECTION CLOSED" not in server.said


def test_an_ordinary_connection_is_kept(server: OpenSsl, transport: Transport) -> None:
    calls = Calls(transport, server)
    for _ in range(3):
        calls.make()
    assert b"CONNECTION CLOSED" not in server.said


def test_the_next_connection_resumes_the_session(server: OpenSsl, transport: Transport) -> None:
    calls = Calls(transport, server)
    calls.make()
    server.say("q\n")
    server.await_said(b"DONE")
    calls.make()
    assert b"Reused session-id" in server.said
