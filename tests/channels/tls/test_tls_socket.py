"""TLS over a socket, with the peer's side played byte by byte."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from channels.http_client.sockets import PlainWire
from channels.tls import tls_socket as tls_wire
from channels.tls.context import CaBundles, TlsPeer
from channels.tls.tls_socket import TlsWire
from simulator.servers.certificates import Authority

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
PATIENCE_S = 5.0


class Provider:
    """OpenSSL in memory behind a socket: what it sends, and in which pieces, is the test's to say."""

    def __init__(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self.socket = connection

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self.socket.sendall(self._out.read())
                self._in.write(self.socket.recv(65_536))
            else:
                self.socket.sendall(self._out.read())
                return

    def sealed(self, data: bytes) -> bytes:
        self._tls.write(data)
        return self._out.read()

    def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(65_536)
            except ssl.SSLWantReadError:
                self._in.write(self.socket.recv(65_536))


@pytest.fixture(params=["held", "ssl"])
def pair(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[TlsWire, Provider]]:
    """Over records that keep the interpreter, and over those of `ssl`."""
    if request.param == "ssl":
        monkeypatch.setattr(tls_wire, "records_of", lambda tls, most: tls)
    authority = Authority(tmp_path)
    ours, theirs = socket.socketpair()
    provider = Provider(authority.server("localhost"), theirs)
    peer = TlsPeer(CaBundles().context(str(authority.file)), "localhost")
    wire = TlsWire(PlainWire(ours), peer)
    shaking = Thread(target=provider.shake_hands)
    shaking.start()
    wire.open(PATIENCE_S)
    shaking.join()
    yield wire, provider
    ours.close()
    theirs.close()


def test_an_answer_that_comes_byte_by_byte_is_whole(pair: tuple[TlsWire, Provider]) -> None:
    wire, provider = pair
    data = provider.sealed(ANSWER)
    for byte in data[:-1]:
        provider.socket.sendall(bytes([byte]))
        assert wire.receive_now() is None
    provider.socket.sendall(data[-1:])
    assert wire.receive_now() == ANSWER


def test_two_records_that_come_at_once_are_read_one_after_the_other(
    pair: tuple[TlsWire, Provider],
) -> None:
    """No poll tells of the second: the socket is empty."""
    wire, provider = pair
    provider.socket.sendall(provider.sealed(b"one") + provider.sealed(b"two"))
    for expected in (b"one", b"two"):
        assert wire.receive_now() == expected
    assert wire.receive_now() is None


def test_session_tickets_leave_an_idle_connection_silent(pair: tuple[TlsWire, Provider]) -> None:
    """They came with the handshake, and nothing has been read since."""
    wire, _ = pair
    assert wire.descriptor >= 0
    assert wire.silent()
    assert wire._peer.session is not None


def test_a_stray_answer_in_tls_ends_the_silence(pair: tuple[TlsWire, Provider]) -> None:
    wire, provider = pair
    provider.socket.sendall(provider.sealed(ANSWER))
    assert not wire.silent()


@pytest.mark.parametrize("size", [1, 5, 20])
def test_the_beginning_of_a_stray_answer_ends_the_silence(
    pair: tuple[TlsWire, Provider], size: int
) -> None:
    """Its rest could be taken for the next call's answer."""
    wire, provider = pair
    answer, stray = provider.sealed(ANSWER), provider.sealed(ANSWER)
    provider.socket.sendall(answer + stray[:size])
    assert wire.receive_now() == ANSWER
    assert not wire.silent()


def test_an_end_that_tls_did_not_say_is_no_end(pair: tuple[TlsWire, Provider]) -> None:
    wire, provider = pair
    provider.socket.sendall(provider.sealed(b"HTTP/1.1 200 OK\r\n\r\n{"))
    provider.socket.close()
    assert wire.receive_now()
    with pytest.raises(OSError, match="EOF"):
        wire.receive_now()


def test_a_record_that_somebody_changed_is_an_error(pair: tuple[TlsWire, Provider]) -> None:
    wire, provider = pair
    data = bytearray(provider.sealed(ANSWER))
    data[-1] ^= 1
    provider.socket.sendall(data)
    with pytest.raises(OSError, match=r"MAC|record"):
        wire.receive_now()


def test_bytes_that_are_no_tls_are_an_error(pair: tuple[TlsWire, Provider]) -> None:
    wire, provider = pair
    provider.socket.sendall(ANSWER)
    provider.socket.shutdown(socket.SHUT_WR)
    with pytest.raises(OSError, match="SSL"):
        wire.receive_now()


def test_a_wait_for_an_answer_ends_at_its_deadline_whatever_drips(
    pair: tuple[TlsWire, Provider],
) -> None:
    wire, provider = pair
    data, began = provider.sealed(b"x" * 16_000), monotonic()

    def drip() -> None:
        for byte in data[:200]:
            try:
                provider.socket.sendall(bytes([byte]))
            except OSError:
                return
            if monotonic() > began + PATIENCE_S:
                return

    dripping = Thread(target=drip)
    dripping.start()
    with pytest.raises(TimeoutError):
        wire.receive(0.3)
    assert monotonic() - began < PATIENCE_S
    dripping.join()


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 1 << 20, (1 << 20) + 1])
def test_a_request_of_any_size_arrives_whole(pair: tuple[TlsWire, Provider], size: int) -> None:
    wire, provider = pair
    data, taken, found = b"x" * size, 0, b""

    def write() -> None:
        nonlocal taken
        while taken < size:
            taken += wire.send(data[taken:], PATIENCE_S)

    writing = Thread(target=write)
    writing.start()
    while len(found) < size:
        found += provider.read()
    writing.join()
    assert (found, taken) == (data, size)


def test_a_record_that_the_peer_does_not_take_counts_for_nothing(
    pair: tuple[TlsWire, Provider],
) -> None:
    wire, _ = pair
    with pytest.raises(TimeoutError):
        wire.send(b"x" * (1 << 20), 0.2)
