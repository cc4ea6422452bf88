"""From a URL to a connection that stands: look up, connect, shake hands. Nothing is sent before.

Addresses race (RFC 8305 §5): the next one starts when the one before has failed or is STAGGER_S
old, and the first to stand wins. So a dead IPv6 path costs a quarter of a second, not the deadline.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
from itertools import chain, zip_longest
from time import monotonic
from typing import Final

import certifi
import httpx

from channels.wire_names import Address, Names

STAGGER_S: Final = 0.25
_LEAST_S: Final = 0.001
_PORTS: Final = {"http": 80, "https": 443}
_UNDER_WAY: Final = frozenset({0, errno.EINPROGRESS})


class Unreached(Exception):
    """No connection came to stand; `code` as in Failure. Nothing was sent."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class Dialer:
    """Safe from many threads. One per transport: what was looked up and loaded is shared."""

    def __init__(self, ca_bundle: str = "") -> None:
        self._bundle = ca_bundle or certifi.where()
        self._names = Names()
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._loading = threading.Lock()

    def dial(self, url: httpx.URL, ca_file: str, deadline: float) -> socket.socket:
        """A blocking socket, or a TLS one, that stands; raises Unreached."""
        if url.scheme not in _PORTS:
            raise Unreached("protocol", f"{url.scheme}:// cannot be sent to")
        host, port = url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
        context = self._context(ca_file) if url.scheme == "https" else None
        connected = self._connect(host, port, deadline)
        if context is None:
            return connected
        try:
            return _secured(connected, host, context, deadline)
        except BaseException:
            connected.close()
            raise

    def _connect(self, host: str, port: int, deadline: float) -> socket.socket:
        try:
            addresses = self._names.addresses(host, port, deadline)
        except OSError as exc:
            code = "timeout" if isinstance(exc, TimeoutError) else "dns"
            raise Unreached(code, f"looking up {host}: {exc}") from exc
        try:
            connected = _Race(deadline).run(_alternating(addresses))
        except OSError as exc:
            self._names.forget(host, port)
            code = "timeout" if isinstance(exc, TimeoutError) else "connect"
            raise Unreached(code, f"connecting to {host}, port {port}: {exc}") from exc
        connected.setblocking(True)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connected

    def _context(self, ca_file: str) -> ssl.SSLContext:
        """One per CA file, loaded by the first who needs it while the others wait."""
        with self._loading:
            context = self._contexts.get(ca_file)
            if context is None:
                files = [self._bundle, ca_file] if ca_file else [self._bundle]
                context = self._contexts[ca_file] = _loaded(files)
        return context


def _secured(
    connected: socket.socket, host: str, context: ssl.SSLContext, deadline: float
) -> ssl.SSLSocket:
    try:
        connected.settimeout(max(deadline - monotonic(), _LEAST_S))
        secure = context.wrap_socket(connected, server_hostname=host, suppress_ragged_eofs=False)
    except TimeoutError as exc:
        raise Unreached("timeout", f"the TLS handshake with {host} took too long") from exc
    except (OSError, ValueError) as exc:  # ValueError: a name that no certificate can have
        raise Unreached("tls", f"the TLS handshake with {host}: {exc}") from exc
    _wait_in_kernel(secure)
    return secure


def _wait_in_kernel(secure: ssl.SSLSocket) -> None:
    """Let reads and writes wait by SO_RCVTIMEO and SO_SNDTIMEO, as a plain blocking socket's do.

    Python is told that the socket never waits, so it neither polls before an operation nor repeats
    one that the kernel gave up: that ends as SSLWantReadError. The descriptor itself does wait.
    """
    secure.setblocking(False)
    os.set_blocking(secure.fileno(), True)


def client_context(ca_files: list[str]) -> ssl.SSLContext:
    """TLS 1.2 or later, the peer's certificate and name checked against the authorities in the files.

    Loading them takes tens of milliseconds. Raises OSError when a file cannot be read or holds none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for file in ca_files:
        context.load_verify_locations(file)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Python has OpenSSL take a cut connection for a proper end; an answer may be cut short so.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    return context


def _loaded(ca_files: list[str]) -> ssl.SSLContext:
    try:
        return client_context(ca_files)
    except OSError as exc:
        raise Unreached("tls", f"the CA file {ca_files[-1]} cannot be read: {exc}") from exc


class _Race:
    """Connects to several addresses at once, each a little after the one before."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._poll = select.poll()
        self._running: dict[int, socket.socket] = {}
        self._error: OSError = TimeoutError("no address answered in time")

    def run(self, addresses: list[Address]) -> socket.socket:
        """The first that stands; raises the last one's OSError, or TimeoutError."""
        try:
            for address in addresses:
                self._start(address)
                if winner := self._await(min(self._deadline, monotonic() + STAGGER_S)):
                    return winner
            if winner := self._await(self._deadline):
                return winner
            raise TimeoutError("no address answered in time") if self._running else self._error
        finally:
            for loser in self._running.values():
                loser.close()

    def _start(self, address: Address) -> None:
        runner = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._running[runner.fileno()] = runner
        number = runner.connect_ex(address.sockaddr)
        if number in _UNDER_WAY:
            self._poll.register(runner, select.POLLOUT)
        else:
            self._drop(runner.fileno(), number)

    def _await(self, until: float) -> socket.socket | None:
        """The winner; None when all have failed or the time is up."""
        while self._running and (wait_s := until - monotonic()) > 0:
            for descriptor, _ in self._poll.poll(wait_s * 1000):
                if winner := self._arrived(descriptor):
                    return winner
        return None

    def _arrived(self, descriptor: int) -> socket.socket | None:
        runner = self._running[descriptor]
        self._poll.unregister(descriptor)
        number = runner.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number == 0 and _met_itself(runner):
            number = errno.ECONNREFUSED
        if number == 0:
            return self._running.pop(descriptor)
        self._drop(descriptor, number)
        return None

    def _drop(self, descriptor: int, number: int) -> None:
        self._running.pop(descriptor).close()
        self._error = OSError(number, os.strerror(number))


def _met_itself(runner: socket.socket) -> bool:
    """TCP lets a connection to a free local port connect to itself, one time in thousands."""
    return bool(runner.getsockname() == runner.getpeername())


def _alternating(addresses: list[Address]) -> list[Address]:
    """The families take turns, beginning with the system's first choice (RFC 8305 §4)."""
    first = [one for one in addresses if one.family == addresses[0].family]
    others = [one for one in addresses if one.family != addresses[0].family]
    pairs = chain.from_iterable(zip_longest(first, others))
    return [one for one in pairs if one is not None]
