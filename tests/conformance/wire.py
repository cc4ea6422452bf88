"""A provider made of a socket: counts the requests it has read whole, and misbehaves by script."""

import select
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

RESET = struct.pack("ii", 1, 0)
PATIENCE_S = 10.0
TOO_MUCH = 3 << 20

Script = Callable[["Wire", socket.socket], bool]
"""Does something to a connection after one request; whether the connection is served on."""


class Wire:
    """Each request takes the next act of the script; past its end every request is answered 200."""

    def __init__(self, *script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.requests = 0
        """Read whole, headers and body."""
        self.connections = 0
        self.resumed = 0
        """Of these, how many resumed a TLS session."""
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.done = threading.Event()
        """Set when an act ended its connection: whatever it sent, FIN and RST too, is under way."""
        self.stalled = threading.Event()
        """Set when an act leaves a request without an answer."""
        self.over = threading.Event()
        self._script = deque(script)
        self._tls = tls
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self._tls else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}/hook"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._listener.close()
        with self._lock:
            for connection in self._open:
                try:  # not closed: its thread may be about to read from what has its number next
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)
                except OSError:
                    pass

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.connections += 1
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._tls:
                connection = self._secured(connection, self._tls)
            with self._lock:
                self._open.add(connection)
            while self._read(connection) and self._act()(self, connection):
                pass
        except OSError:
            pass
        finally:
            connection.close()
            self.done.set()

    def _secured(self, connection: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        secured = tls.wrap_socket(connection, server_side=True)
        with self._lock:
            self.resumed += bool(secured.session_reused)
        return secured

    def _act(self) -> Script:
        with self._lock:
            return self._script.popleft() if self._script else ok

    def _read(self, connection: socket.socket) -> bool:
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := connection.recv(65_536)):
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        while len(body) < _length(head):
            if not (more := connection.recv(65_536)):
                return False
            body += more
        with self._lock:
            self.requests += 1
            self.heads.append(head)
            self.bodies.append(body)
        return True


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def answer(status: str, body: bytes = b'{"id":"7"}', *fields: str) -> Script:
    """An ordinary answer; the connection is kept."""
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields, "", ""])
    return say(head.encode() + body)


def say(data: bytes, *, on: bool = True) -> Script:
    """These bytes; then the connection is kept, or closed."""

    def act(wire: Wire, connection: socket.socket) -> bool:
        connection.sendall(data)
        return on

    return act


ok = answer("200 OK")


def close(wire: Wire, connection: socket.socket) -> bool:
    """FIN without a word."""
    return False


def goodbye(wire: "Wire", connection: socket.socket) -> bool:
    """FIN, over TLS with its own end before it."""
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(PATIENCE_S)
        try:
            connection.unwrap()
        except OSError:
            pass  # the client says no goodbye to a connection that has ended
    return False


def reset(wire: Wire, connection: socket.socket) -> bool:
    """RST without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return False


def then(first: Script, second: Script) -> Script:
    """Both, one after the other."""
    return lambda wire, connection: first(wire, connection) and second(wire, connection)


def stall(wire: Wire, connection: socket.socket) -> bool:
    """No answer until the test is over."""
    wire.stalled.set()
    wire.over.wait(PATIENCE_S)
    return False


def drip(wire: Wire, connection: socket.socket) -> bool:
    """An answer a byte at a time, each well within any timeout for reading one."""
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1_000
    for byte in data:
        connection.sendall(bytes([byte]))
        if wire.over.wait(0.02):
            return False
        if select.select([connection], [], [], 0)[0]:  # the client has gone
            return False
    return True


def chunks(parts: Iterable[bytes], trailer: bytes = b"") -> Script:
    """A chunked answer."""

    def act(wire: Wire, connection: socket.socket) -> bool:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in parts:
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n" + trailer + b"\r\n")
        return True

    return act


def descriptors() -> int:
    """Returns the number of files and sockets that this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
