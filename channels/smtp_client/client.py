"""smtplib's client under the deadline of each step, on a socket that was opened for it.

smtplib's own timeout begins anew with every piece that comes, so a server that drips could hold a thread
for ever. Here every read and write has the rest of the step's deadline.
"""

from __future__ import annotations

import select
import smtplib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from channels.smtp_client.timing import Timing

_CHUNK: Final = 16 << 10
_MS: Final = 1_000
_ASK_S: Final = 0.25
"""Interval between two questions whether a call is still wanted."""
_MAX_REPLY: Final = 64 << 10
"""Bytes of one reply, all its lines together."""


class TakenBack(Exception):
    """The caller does not want the call any more; the text says why."""


class SmtpClient(smtplib.SMTP):
    """Commands and replies, no decisions. `timing` is the present call's."""

    def __init__(self, sock: socket.socket, hello: str, timing: Timing) -> None:
        super().__init__(local_hostname=hello)  # without a host it opens nothing
        self.sock: socket.socket | None = sock
        self.timing = timing
        self.step = ""
        """The present step of the dialogue."""
        self.ask: Callable[[], str] | None = None
        """Returns why the call is not wanted any more; empty: it is. Called while the server is silent.
        None: it is too late, or there is no call."""
        self.late = False
        """Whether a deadline ended the connection."""
        self._deadline = timing.before_dot

    def begin(self, step: str) -> None:
        """Starts the step's time."""
        self.step, self._deadline = step, self.timing.until(step)

    def putcmd(self, cmd: str, args: str = "") -> None:
        """Writes a command; its reply has the time of the command's kind."""
        self.begin("data" if cmd.upper() == "DATA" else "command")
        super().putcmd(cmd, args)

    def getreply(self) -> tuple[int, bytes]:
        """Returns one whole reply. Raises SMTPServerDisconnected and TakenBack."""
        if self.file is None:
            self.file = _Lines(self._recv)
        self.file.budget = _MAX_REPLY
        return super().getreply()

    def send(self, s: bytes | str) -> None:  # type: ignore[override]
        """Writes all of it. Raises SMTPServerDisconnected if a part was not taken."""
        if self.sock is None:
            raise smtplib.SMTPServerDisconnected("the connection is closed")
        rest = memoryview(s.encode(self.command_encoding) if isinstance(s, str) else s)
        try:
            while rest:
                self._arm(self.sock)
                rest = rest[self.sock.send(rest) :]
        except OSError as exc:
            self.late = self.late or isinstance(exc, TimeoutError)
            self.close()
            raise smtplib.SMTPServerDisconnected(f"{len(rest)} bytes not sent: {exc}") from exc

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Starts TLS, and forgets the dialogue so far (RFC 3207 §4.2). Raises OSError."""
        assert self.sock is not None
        self.begin("command")
        self._arm(self.sock)
        self.sock = context.wrap_socket(self.sock, server_hostname=host)
        self.file = None
        self.ehlo_resp = self.helo_resp = None
        self.esmtp_features = {}
        self.does_esmtp = False

    def leave(self) -> None:
        """Sends QUIT without waiting for the answer, and closes."""
        if self.sock is not None:
            self.timing = Timing({"total": 0.1}, monotonic())
            with suppress(smtplib.SMTPException, OSError):
                self.putcmd("quit")
        self.close()

    def _recv(self) -> bytes:
        if self.sock is None:
            return b""
        try:
            if self.ask is not None:
                self._listen(self.sock, self.ask)
            self._arm(self.sock)
            return self.sock.recv(_CHUNK)
        except TimeoutError:
            self.late = True
            raise

    def _listen(self, sock: socket.socket, ask: Callable[[], str]) -> None:
        """Waits until the server says something, or its time is over. Raises TakenBack."""
        if isinstance(sock, ssl.SSLSocket) and sock.pending():
            return
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while not poll.poll(max(0.0, min(self._deadline - monotonic(), _ASK_S)) * _MS):
            if monotonic() >= self._deadline:
                return
            if why := ask():
                raise TakenBack(why)

    def _arm(self, sock: socket.socket) -> None:
        left_s = self._deadline - monotonic()
        if left_s <= 0:
            self.late = True
            raise TimeoutError("the deadline has passed")
        sock.settimeout(left_s)


class _Lines:
    """smtplib's source of replies, in place of a buffered file."""

    def __init__(self, recv: Callable[[], bytes]) -> None:
        self._recv = recv
        self._held = b""
        self.budget = _MAX_REPLY

    def readline(self, limit: int) -> bytes:
        """Returns one line with its end, the first `limit` bytes of a longer one, nothing at the end."""
        while (end := self._held.find(b"\n")) < 0 and len(self._held) < limit:
            piece = self._recv()
            if not piece:
                return b""  # half a line is no reply
            self._held += piece
        size = min(end + 1 if end >= 0 else limit, limit)
        self.budget -= size
        if self.budget < 0:
            raise OSError(f"a reply of more than {_MAX_REPLY} bytes")
        line, self._held = self._held[:size], self._held[size:]
        return line

    def close(self) -> None:
        """Does nothing: the socket is not ours."""
