"""A mail server made of a socket: keeps what it was sent whole, and misbehaves where it is told to."""

import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

PATIENCE_S = 10.0
RESET = struct.pack("ii", 1, 0)

Act = Callable[["MailServer", socket.socket], bool]
"""Does something in place of a reply; whether the session goes on."""


def close(server: "MailServer", connection: socket.socket) -> bool:
    """FIN without a word."""
    return False


def reset(server: "MailServer", connection: socket.socket) -> bool:
    """RST without a word."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    return False


def stall(server: "MailServer", connection: socket.socket) -> bool:
    """No word until the client or the test has gone."""
    server.stalled.set()
    select.select([connection, server.over], [], [], PATIENCE_S)
    return False


def drip(server: "MailServer", connection: socket.socket) -> bool:
    """A reply a byte at a time, that never ends."""
    while not select.select([server.over], [], [], 0.01)[0]:
        connection.sendall(b"250-still here\r\n"[:1])
    return False


def say(data: bytes, *, on: bool = True) -> Act:
    """These bytes; then the session goes on, or is closed."""

    def act(server: "MailServer", connection: socket.socket) -> bool:
        connection.sendall(data)
        return on

    return act


class MailServer:
    """`at` names what is done in place of the usual reply: `greeting`, a command, or `.`."""

    def __init__(
        self,
        at: Mapping[str, str | Act] | None = None,
        *,
        features: tuple[str, ...] = ("SIZE 1000000", "AUTH PLAIN"),
        starttls: ssl.SSLContext | None = None,
        implicit: ssl.SSLContext | None = None,
    ) -> None:
        self.at = dict(at or {})
        self.connections = 0
        self.stalled = threading.Event()
        """Set by `stall`."""
        self.commands: list[str] = []
        self.messages: list[bytes] = []
        """Each up to its dot, as it came."""
        self.hung_up = threading.Event()
        """Set when a connection has ended, on either side."""
        self.over, self._ending = socket.socketpair()
        self._features = features
        self._starttls = starttls
        self._implicit = implicit
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.close()
        self._listener.close()
        with self._lock:
            for connection in self._open:
                connection.close()
        self.over.close()

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
            self._open.add(connection)
        try:
            if self._implicit:
                connection = self._hold(self._implicit, connection)
            self._talk(connection)
        except (OSError, ValueError):
            pass
        finally:
            connection.close()
            self.hung_up.set()

    def _hold(self, context: ssl.SSLContext, connection: socket.socket) -> ssl.SSLSocket:
        secure = context.wrap_socket(connection, server_side=True)
        with self._lock:
            self._open.add(secure)
        return secure

    def _talk(self, connection: socket.socket) -> None:
        secured = self._implicit is not None
        if not self._answer(connection, "greeting", "220 ready"):
            return
        while line := self._line(connection):
            verb = line.split(" ")[0].upper()
            self.commands.append(verb + line[len(verb) :])
            if verb == "DATA":
                going = self._content(connection)
            elif verb == "STARTTLS" and self._starttls and "STARTTLS" not in self.at:
                connection.sendall(b"220 go\r\n")
                connection = self._hold(self._starttls, connection)
                going = secured = True
            else:
                going = self._answer(connection, verb, self._usual(verb, secured=secured))
            if not going or verb == "QUIT":
                return

    def _usual(self, verb: str, *, secured: bool) -> str:
        if verb == "EHLO":
            offered = ("STARTTLS",) if self._starttls and not secured else ()
            lines = ["here", *self._features, *offered]
            return "\r\n".join([f"250-{line}" for line in lines[:-1]] + [f"250 {lines[-1]}"])
        return {"AUTH": "235 welcome", "QUIT": "221 bye"}.get(verb, "250 fine")

    def _content(self, connection: socket.socket) -> bool:
        # Asked before the answer: a test may change it after the answer.
        refused = isinstance(self.at.get("DATA"), str)
        if not self._answer(connection, "DATA", "354 go on"):
            return False
        if refused:
            return True
        data = b""
        while not data.endswith(b"\r\n.\r\n"):
            piece = connection.recv(65_536)
            if not piece:
                return False
            data += piece
        with self._lock:
            self.messages.append(data[:-3])
        return self._answer(connection, ".", "250 queued")

    def _answer(self, connection: socket.socket, what: str, usual: str) -> bool:
        wanted = self.at.get(what, usual)
        if isinstance(wanted, str):
            connection.sendall(wanted.encode() + b"\r\n")
            return True
        return wanted(self, connection)

    def _line(self, connection: socket.socket) -> str:
        line = b""
        while not line.endswith(b"\r\n"):
            piece = connection.recv(1)
            if not piece:
                return ""
            line += piece
        return line.decode().rstrip("\r\n")
