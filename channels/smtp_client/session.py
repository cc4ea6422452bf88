"""One session with a mail server: opened, logged in, then one message after another.

A session is judged by the bytes written. Nobody can act on a message before the dot that ends it was taken
whole (RFC 5321 §4.1.1.4, §4.5.3.2.5). Every failure is a SessionLost; `written` is true after the dot.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from collections.abc import Callable
from time import monotonic
from typing import Final, NamedTuple, TypeVar

import structlog

from channels.http_client.failures import WITHDRAWN
from channels.smtp_client.client import SmtpClient, TakenBack
from channels.smtp_client.host_names import connected, own_name, readable
from channels.smtp_client.login import log_in
from channels.smtp_client.mail_request import Envelope, Login, SmtpReply, SmtpReplySet, SmtpStage
from channels.smtp_client.name_lookups import Address
from channels.smtp_client.timing import FINAL, Timing

log = structlog.get_logger(__name__)

_READY, _GO_AHEAD, _CLOSING = 220, 354, 421
_MAX_TEXT: Final = 500
_LEADING_DOT: Final = re.compile(rb"(?m)^\.")
MAX_MESSAGES: Final = 100
"""Messages in one session: some servers end longer ones in the middle of the next message."""
_RENEW_SHARE: Final = 4
_RENEW_S: Final = 10.0
"""A kept session that does not answer at once is dead: its check gets this part of the time left, and at
most so many seconds."""
_TOO_LATE: Final = "the deadline passed before the server had answered"
T = TypeVar("T")

Resolve = Callable[[str, int, float], list[Address]]
"""Host, port and seconds to the addresses to try; raises OSError."""


Withdrawn = Callable[[], str]
"""See `channels.channel.Call.withdrawn`."""


class SessionLost(Exception):
    """The session is of no more use; `code` is the cause in a word."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


class SmtpTarget(NamedTuple):
    """Messages that share a session agree in it."""

    scheme: str
    host: str
    port: int
    ca_file: str
    login: Login | None
    tls: str
    hello: str


class SmtpSession:
    """Belongs to one call at a time; the transport's pool hands it from thread to thread."""

    def __init__(self, route: SmtpTarget, context: ssl.SSLContext, resolve: Resolve) -> None:
        self.used_at = 0.0
        """Monotonic; `SmtpTransport._give_back` writes it, the transport's janitor reads it."""
        self.written = False
        """Whether the present message's dot was taken."""
        self.receivers: list[SmtpReply] = []
        """The replies to the present message's RCPTs so far."""
        self._route = route
        self._context = context
        self._resolve = resolve
        self._client: SmtpClient | None = None
        self._messages = 0

    @property
    def usable(self) -> bool:
        """Whether another message may follow."""
        client = self._client
        return client is not None and client.sock is not None and self._messages < MAX_MESSAGES

    def open(self, timing: Timing, withdrawn: Withdrawn | None = None) -> SmtpReplySet | None:
        """Connects, secures, logs in. Returns the refusal; None: it is open. Raises SessionLost."""
        sock = self._connect(timing.until("connect"))
        client = self._client = SmtpClient(sock, self._route.hello or own_name(), timing)
        client.ask = withdrawn
        return self._guarded(lambda: self._introduce(client))

    def renew(self, timing: Timing) -> bool:
        """Returns whether the kept session still lives; clears all state of the last message."""
        client = self._client
        if client is None or client.sock is None or readable(client.sock):
            return False
        now = monotonic()
        share_s = (timing.before_dot - now) / _RENEW_SHARE
        client.timing = Timing({"total": min(max(share_s, 0.001), _RENEW_S)}, now)
        client.ask = None
        try:
            return self._guarded(lambda: client.rset()[0] // 100 == 2)
        except SessionLost:
            return False

    def transact(
        self, envelope: Envelope, message: bytes, timing: Timing, withdrawn: Withdrawn | None
    ) -> SmtpReplySet:
        """Sends one message. Raises SessionLost."""
        assert self._client is not None
        client = self._client
        client.timing, client.ask = timing, withdrawn
        self.written, self.receivers = False, []
        self._messages += 1
        replies = self._guarded(lambda: self._send(client, envelope, message, withdrawn))
        if replies.reply.code == _CLOSING:
            self.close()
        return replies

    def close(self) -> None:
        """Says goodbye and hangs up. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.leave()

    def _guarded(self, step: Callable[[], T]) -> T:
        """Runs a step of the dialogue. Closes the connection after a failure, and raises SessionLost."""
        client = self._client
        try:
            return step()
        except SessionLost as exc:
            lost = exc
        except TakenBack as exc:
            lost = SessionLost(WITHDRAWN, str(exc))
        except ssl.SSLError as exc:
            lost = SessionLost("tls", str(exc))
        except smtplib.SMTPException as exc:  # an OSError, too: caught first
            gone = isinstance(exc, smtplib.SMTPServerDisconnected)
            late = client is not None and client.late
            code = ("timeout" if late else "reset") if gone else "protocol"
            lost = SessionLost(code, _too_late(client) if late else str(exc))
        except OSError as exc:
            late = isinstance(exc, TimeoutError)
            lost = (
                SessionLost("timeout", _too_late(client))
                if late
                else SessionLost("reset", str(exc))
            )
        if client is not None:
            client.close()
        raise lost

    def _connect(self, deadline: float) -> socket.socket:
        route = self._route
        try:
            found = self._resolve(route.host, route.port, deadline - monotonic())
        except OSError as exc:
            raise SessionLost("dns", f"{route.host}: {exc}") from exc
        failed: OSError = OSError("no address")
        for place, (family, address) in enumerate(found):
            share_s = (deadline - monotonic()) / (len(found) - place)
            try:
                return connected(family, address, share_s)
            except OSError as exc:
                failed = exc
        code = "timeout" if isinstance(failed, TimeoutError) else "connect"
        raise SessionLost(code, f"{route.host}:{route.port}: {failed}") from failed

    def _introduce(self, client: SmtpClient) -> SmtpReplySet | None:
        if self._route.scheme == "smtps":
            client.secure(self._context, self._route.host)
        client.begin("greeting")
        for stage, ask, wanted in (
            (SmtpStage.GREETING, client.getreply, _READY),
            (SmtpStage.HELLO, client.ehlo, 250),
        ):
            reply = _reply(ask())
            if reply.code != wanted:
                return SmtpReplySet(stage, reply)
        if self._route.scheme == "smtp" and self._route.tls == "starttls":
            refused = self._start_tls(client)
            if refused is not None:
                return refused
        return self._log_in(client)

    def _start_tls(self, client: SmtpClient) -> SmtpReplySet | None:
        if not client.has_extn("starttls"):
            raise SessionLost(
                "tls", "the server offers no STARTTLS, and nothing is sent in the clear"
            )
        reply = _reply(client.docmd("STARTTLS"))
        if reply.code != _READY:
            return SmtpReplySet(SmtpStage.STARTTLS, reply)
        client.secure(self._context, self._route.host)
        reply = _reply(client.ehlo())
        return None if reply.positive else SmtpReplySet(SmtpStage.HELLO, reply)

    def _log_in(self, client: SmtpClient) -> SmtpReplySet | None:
        login = self._route.login
        if login is None:
            return None
        reply = _reply(log_in(client, login))
        return (
            None if reply.positive else SmtpReplySet(SmtpStage.AUTH, reply, by_token=login.by_token)
        )

    def _send(
        self, client: SmtpClient, envelope: Envelope, message: bytes, withdrawn: Withdrawn | None
    ) -> SmtpReplySet:
        size = [f"SIZE={len(message)}"] if client.has_extn("size") else []
        reply = _reply(client.mail(envelope.sender, size))
        if not reply.positive:
            return SmtpReplySet(SmtpStage.MAIL, reply)
        receivers = self.receivers
        for address in envelope.receivers:
            receivers.append(_reply(client.rcpt(address)))
            if receivers[-1].code == _CLOSING:
                break
        if receivers[-1].code == _CLOSING or not any(one.positive for one in receivers):
            return SmtpReplySet(SmtpStage.RCPT, receivers[-1], receivers)
        if envelope.copies_go is None or envelope.copies_go(receivers):
            closing = self._add_copies(client, envelope.copies)
            if closing is not None:
                return SmtpReplySet(SmtpStage.RCPT, closing, receivers)
        reply = _reply(client.docmd("DATA"))
        if reply.code != _GO_AHEAD:
            return SmtpReplySet(SmtpStage.DATA, reply, receivers)
        client.begin("data")
        client.send(_stuffed(message))
        if withdrawn is not None and (why := withdrawn()):
            raise TakenBack(why)
        client.ask = None
        client.send(b".\r\n")
        self.written = True
        client.begin(FINAL)
        return SmtpReplySet(SmtpStage.FINAL, _reply(client.getreply()), receivers)

    def _add_copies(self, client: SmtpClient, copies: tuple[str, ...]) -> SmtpReply | None:
        """Adds the copies. Returns the reply that ended the session; None if none did."""
        for address in copies:
            reply = _reply(client.rcpt(address))
            if reply.code == _CLOSING:
                return reply
            if not reply.positive:
                log.warning("copy_refused", server=self._route.host, code=reply.code)
        return None


def _too_late(client: SmtpClient | None) -> str:
    return f"{_TOO_LATE} ({client.step})" if client is not None else _TOO_LATE


def _stuffed(message: bytes) -> bytes:
    """Returns the message with its leading dots doubled (RFC 5321 §4.5.2) and its last line ended."""
    data = _LEADING_DOT.sub(b"..", message)
    return data if data.endswith(b"\r\n") else data + b"\r\n"


def _reply(answer: tuple[int, bytes | str]) -> SmtpReply:
    code, text = answer
    words = text if isinstance(text, str) else text.decode("utf-8", "replace")
    return SmtpReply(code, words.replace("\n", " ")[:_MAX_TEXT])
