"""A mail as an httpx.Request, and the server's replies to it as an httpx.Response.

The request: method `MAIL`, URL `smtp://host:port` or `smtps://host:port`, the message's bytes as its
body, and in `extensions["smtp"]` the Envelope. It alone holds addresses and login: the URL and the header
may be logged.

The response: the status is the SMTP reply code that decided, the body the JSON of `SmtpReplySet`:

    {"stage": "final", "reply": {"code": 250, "text": "2.0.0 Ok: queued as 4F1"},
     "receivers": [{"code": 250, "text": "2.1.5 Ok"}, {"code": 550, "text": "5.1.1 No such user"}]}

The connection may be lost after the dot when some receivers had been refused: then `lost` is the cause, in
place of the missing reply. With no receiver refused it is a Failure, as over HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import httpx
import msgspec

from channels.http_client.failures import BadRequest
from channels.secret import Secret

SCHEMES: Final = ("smtp", "smtps")
DEFAULT_PORTS: Final = {"smtp": 587, "smtps": 465}
"""Submission: RFC 6409 §3.1, and RFC 8314 §3.3 over implicit TLS."""
_EXTENSION: Final = "smtp"
_ADDRESS = re.compile(r"[!-;=?-~]+")
"""Excludes the end of a path (`>`) and of a line."""


class Login(msgspec.Struct, frozen=True):
    """Credentials for AUTH (RFC 4954)."""

    user: str
    password: Secret
    by_token: bool = False
    """The password is an access token."""


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """Data for the server beside the message; addresses in ASCII."""

    sender: str
    receivers: tuple[str, ...]
    """One per delivery of the call, in their order."""
    copies: tuple[str, ...] = ()
    """Cc and bcc: a refused copy holds nobody else's mail back."""
    copies_go: Callable[[Sequence[SmtpReply]], bool] | None = None
    """Returns by the replies to all receivers' RCPTs whether this message has copies. None: it has them."""
    login: Login | None = None
    tls: Literal["starttls", "none"] = "starttls"
    """For `smtp`; `none` on loopback alone. `smtps` is TLS from the first byte."""
    hello: str = ""
    """The name given with EHLO; empty: this machine's."""


class SmtpStage(StrEnum):
    """The command whose reply decided."""

    GREETING = "greeting"
    HELLO = "hello"
    STARTTLS = "starttls"
    AUTH = "auth"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    FINAL = "final"
    """The dot that ends the message: before it nobody can have acted on anything."""


BEFORE_MAIL: Final = frozenset(
    {SmtpStage.GREETING, SmtpStage.HELLO, SmtpStage.STARTTLS, SmtpStage.AUTH}
)


NO_CODE: Final = -1


class SmtpReply(msgspec.Struct, frozen=True):
    """One reply of the server; NO_CODE is no code at all."""

    code: int
    text: str = ""

    @property
    def positive(self) -> bool:
        """Whether the reply is 2yz: done (RFC 5321 §4.2.1)."""
        return self.code // 100 == 2


class SmtpReplySet(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server's replies to one message."""

    stage: SmtpStage
    reply: SmtpReply
    """The deciding reply."""
    receivers: list[SmtpReply] = []
    """Replies to RCPT, in the envelope's order; fewer where the server broke off."""
    lost: str = ""
    """`reset`, `timeout`, …: the cause of a connection lost after the dot; empty: the server replied."""
    by_token: bool = False
    """AUTH was refused to an access token."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SmtpReplySet)


def mail_request(
    url: httpx.URL, envelope: Envelope, message: bytes, ca_file: str = ""
) -> httpx.Request:
    """Returns the request for one message with CRLF line ends."""
    extensions: dict[str, Any] = {_EXTENSION: envelope}
    if ca_file:
        extensions["ca_file"] = ca_file
    headers = [(b"Host", url.netloc), (b"Content-Length", b"%d" % len(message))]
    return httpx.Request(
        "MAIL", url, headers=headers, stream=httpx.ByteStream(message), extensions=extensions
    )


def envelope_of(request: httpx.Request) -> Envelope:
    """Returns the request's envelope. Raises BadRequest."""
    envelope = request.extensions.get(_EXTENSION)
    if request.url.scheme not in SCHEMES or not isinstance(envelope, Envelope):
        raise BadRequest(f"no mail for {request.url.scheme}: method and envelope are missing")
    if not envelope.receivers:
        raise BadRequest("a mail without receivers")
    addresses = (envelope.sender, *envelope.receivers, *envelope.copies)
    if not all(_ADDRESS.fullmatch(address) for address in addresses):
        raise BadRequest("an address that would break its command")
    return envelope


def written_told(replies: SmtpReplySet) -> bytes:
    """Returns the response's body."""
    return _encoder.encode(replies)


def read_told(answer: httpx.Response) -> SmtpReplySet:
    """Returns the replies in the response's body. Raises ValueError for any other body."""
    return _decoder.decode(answer.content)
