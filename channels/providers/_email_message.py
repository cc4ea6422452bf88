"""A mail's bytes (RFC 5322, RFC 2045–2047, RFC 2387): the same ones for the same call, on any machine.

    multipart/mixed                  with attachments
     ├─ multipart/alternative        with text and html
     │   ├─ text/plain
     │   └─ multipart/related        with images that the html shows
     │       ├─ text/html
     │       └─ image/…              Content-ID
     └─ application/…

Boundaries come from the call's key. All parts are base64 or quoted-printable, in which `=_` cannot
occur (RFC 2045 §6.7), so that no content ends a part; and 7 bit, so that any server takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, EmailPolicy
from email.utils import format_datetime
from typing import Any, Final

import msgspec

from channels.providers._email_content import Attachment, Email, Mailbox

_FOLD_AT: Final = 76


class _Policy(EmailPolicy):
    """As the library's SMTP policy, but for words too long to fold.

    It would write those (links of List-Unsubscribe, long ids) as encoded words, which RFC 2047 §5
    forbids in them and mail programs do not read. They are written whole; content of up to 900
    characters keeps below the 998 octets of a line.
    """

    def fold_binary(self, name: str, value: Any) -> bytes:
        text = str(value)
        if text.isascii() and any(len(word) > _FOLD_AT for word in text.split()):
            return f"{name}: {text}{self.linesep}".encode("ascii")
        return super().fold_binary(name, value)


_POLICY: Final = _Policy(linesep=SMTP.linesep)


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """What stands above the content."""

    sender: Mailbox
    to: Sequence[Mailbox]
    key: str
    """Of the call: 32 hex digits, for Message-ID and boundaries."""
    sent_at: int
    """Epoch milliseconds."""

    @property
    def message_id(self) -> str:
        """Without its angle brackets."""
        return f"{self.key}@{self.sender.address.rpartition('@')[2]}"


def message_bytes(email: Email, heading: Heading) -> bytes:
    """The whole message, with CRLF line ends; Bcc is not in it."""
    message = EmailMessage(_POLICY)
    _head(message, email, heading)
    _body(message, email)
    for one in email.content.attachments:
        if not one.cid:
            _attach(message, one)
    multiparts = [part for part in message.walk() if part.is_multipart()]
    for number, part in enumerate(multiparts):
        part.set_boundary(f"=_{heading.key}_{number}")
    return message.as_bytes()


def _head(message: EmailMessage, email: Email, heading: Heading) -> None:
    content = email.content
    message["Message-ID"] = f"<{heading.message_id}>"
    message["Date"] = format_datetime(datetime.fromtimestamp(heading.sent_at / 1_000, UTC))
    message["From"] = _addresses([heading.sender])
    message["To"] = _addresses(heading.to)
    if email.cc:
        message["Cc"] = _addresses(email.cc)
    if email.reply_to:
        message["Reply-To"] = _addresses(email.reply_to)
    message["Subject"] = content.subject
    if not any(name.lower() == "auto-submitted" for name in content.headers):
        message["Auto-Submitted"] = "auto-generated"  # RFC 3834: keeps out-of-office replies away
    for name, value in content.headers.items():
        message[name] = value


def _body(message: EmailMessage, email: Email) -> None:
    content = email.content
    shown = [one for one in content.attachments if one.cid]
    if not content.html:
        _write(message, content.text, "plain")
        return
    if not content.text:
        _write(message, content.html, "html")
        _relate(message, shown)
        return
    _write(message, content.text, "plain")
    message.add_alternative(content.html, subtype="html", cte=_coding(content.html))
    *_, html = message.iter_parts()
    assert isinstance(html, EmailMessage)
    _relate(html, shown)


def _write(message: EmailMessage, text: str, subtype: str) -> None:
    message.set_content(text, subtype=subtype, cte=_coding(text))


def _relate(html: EmailMessage, shown: Sequence[Attachment]) -> None:
    for one in shown:
        main, _, sub = one.mime.partition("/")
        html.add_related(
            one.content,
            main,
            sub,
            disposition="inline",
            filename=one.filename,
            cid=f"<{one.cid}>",
        )


def _attach(message: EmailMessage, one: Attachment) -> None:
    main, _, sub = one.mime.partition("/")
    message.add_attachment(one.content, main, sub, filename=one.filename)


def _coding(text: str) -> str:
    """Base64 for Chinese, which quoted-printable makes three times as long; the other for the rest."""
    return "base64" if len(text.encode()) > 1.2 * len(text) else "quoted-printable"


def _addresses(boxes: Sequence[Mailbox]) -> list[Address]:
    return [Address(box.name, addr_spec=box.address) for box in boxes]
