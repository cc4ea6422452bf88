"""A mail's bytes (RFC 5322, RFC 2045–2047, RFC 2387): the same for the same call, on any machine.

    multipart/mixed                  with attachments
     ├─ multipart/alternative        with text and html
     │   ├─ text/plain
     │   └─ multipart/related        with images that the html shows
     │       ├─ text/html
     │       └─ image/…              Content-ID
     └─ application/…

Boundaries come from the call's key. All parts are base64 or quoted-printable: `=_` cannot occur in them
(RFC 2045 §6.7), so no content ends a part. They are 7 bit, so any server takes them.

The standard library's `email` is not used: its versions fold differently, and some lose addresses and
blanks (CVE-2025-1795).
"""

from __future__ import annotations

import re
from base64 import encodebytes
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Final, NamedTuple

import msgspec

from channels.providers._common.email_content import Attachment, Email, EmailContent, Mailbox
from channels.providers._common.email_headers import addresses, disposition, given, plain, subject

_CRLF: Final = b"\r\n"
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_NOT_PRINTABLE = re.compile(rb"[^\t\x20-\x3c\x3e-\x7e]")
_WIDTH: Final = 76
"""Characters of a line in quoted-printable, with the `=` of a soft break (RFC 2045 §6.7)."""


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the mail's header that do not come from the content."""

    sender: Mailbox
    to: Sequence[Mailbox]
    key: str
    """The call's key, 32 hex digits, for Message-ID and boundaries."""
    sent_at: int
    """Epoch milliseconds."""

    @property
    def message_id(self) -> str:
        """The Message-ID without angle brackets."""
        return f"{self.key}@{self.sender.address.rpartition('@')[2]}"


class _Part(NamedTuple):
    """One part of the message."""

    fields: Sequence[str]
    body: bytes
    kind: str
    """`type/subtype`."""


def message_bytes(email: Email, heading: Heading) -> bytes:
    """Returns the whole message, with CRLF line ends and without Bcc."""
    boundaries = (f"=_{heading.key}_{number}" for number in count())
    whole = _whole(email.content, boundaries)
    fields = [*_head(email, heading), *whole.fields, "MIME-Version: 1.0"]
    return _written(whole._replace(fields=fields))


def _head(email: Email, heading: Heading) -> Iterator[str]:
    content = email.content
    yield f"Message-ID: <{heading.message_id}>"
    yield f"Date: {_date(heading.sent_at)}"
    yield addresses("From", [heading.sender])
    yield addresses("To", heading.to)
    if email.cc:
        yield addresses("Cc", email.cc)
    if email.reply_to:
        yield addresses("Reply-To", email.reply_to)
    yield subject(content.subject)
    if not any(name.lower() == "auto-submitted" for name in content.headers):
        yield "Auto-Submitted: auto-generated"  # RFC 3834: keeps out-of-office replies away
    for name, value in content.headers.items():
        yield given(name, value)


def _date(at_ms: int) -> str:
    """Returns a Date as RFC 5322 §3.3 has it; `at_ms` is epoch milliseconds."""
    at = datetime.fromtimestamp(at_ms / 1_000, UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day}, {at.day:02} {month} {at.year:04} {at:%H:%M:%S} +0000"


# ---- parts -----------------------------------------------------------------------------------


def _whole(content: EmailContent, boundaries: Iterator[str]) -> _Part:
    files = [one for one in content.attachments if not one.cid]
    if not files:
        return _body(content, boundaries)
    boundary = next(boundaries)
    return _joined("mixed", boundary, [_body(content, boundaries), *map(_file, files)])


def _body(content: EmailContent, boundaries: Iterator[str]) -> _Part:
    if not content.html:
        return _text(content.text, "plain")
    if not content.text:
        return _html(content, boundaries)
    boundary, text = next(boundaries), _text(content.text, "plain")
    return _joined("alternative", boundary, [text, _html(content, boundaries)])


def _html(content: EmailContent, boundaries: Iterator[str]) -> _Part:
    html = _text(content.html, "html")
    images = [one for one in content.attachments if one.cid]
    return _joined("related", next(boundaries), [html, *map(_file, images)]) if images else html


def _joined(subtype: str, boundary: str, parts: Sequence[_Part]) -> _Part:
    words = [f"multipart/{subtype};", f'boundary="{boundary}"']
    if subtype == "related":
        words.insert(1, f'type="{parts[0].kind}";')  # RFC 2387 §3.1
    border = b"--" + boundary.encode()
    body = b"".join(border + _CRLF + _written(part) + _CRLF for part in parts)
    fields = [plain("Content-Type", words)]
    return _Part(fields, body + border + b"--" + _CRLF, f"multipart/{subtype}")


def _text(text: str, subtype: str) -> _Part:
    """Returns a text part, in base64 if mostly Chinese, which quoted-printable would triple."""
    data = _LINE_END.sub(_CRLF, text.encode())
    data += b"" if data.endswith(_CRLF) else _CRLF
    heavy = len(text.encode()) > 1.2 * len(text)
    coding, body = ("base64", _base64(data)) if heavy else ("quoted-printable", _quoted(data))
    fields = [
        f'Content-Type: text/{subtype}; charset="utf-8"',
        f"Content-Transfer-Encoding: {coding}",
    ]
    return _Part(fields, body, f"text/{subtype}")


def _file(one: Attachment) -> _Part:
    fields = [
        plain("Content-Type", (one.mime,)),
        "Content-Transfer-Encoding: base64",
        disposition("inline" if one.cid else "attachment", one.filename),
    ]
    if one.cid:
        fields.append(f"Content-ID: <{one.cid}>")
    return _Part(fields, _base64(one.content), one.mime)


def _written(part: _Part) -> bytes:
    head = "".join(f"{field}\r\n" for field in part.fields)
    return head.encode("ascii") + _CRLF + part.body


# ---- codings ---------------------------------------------------------------------------------


def _base64(data: bytes) -> bytes:
    return encodebytes(data).replace(b"\n", _CRLF)


def _quoted(data: bytes) -> bytes:
    """Returns quoted-printable (RFC 2045 §6.7) of lines that end in CRLF.

    `binascii.b2a_qp` is not used: it leaves a lone CR unchanged, which RFC 5321 §2.3.8 forbids, and takes
    the first line end for all. It also breaks lines of 76 characters, which RFC 2045 allows (Python 3.11).
    """
    lines = data.split(_CRLF)
    return _CRLF.join(piece for line in lines for piece in _quoted_line(line))


def _quoted_line(line: bytes) -> Iterator[bytes]:
    rest = _NOT_PRINTABLE.sub(lambda found: b"=%02X" % found[0][0], line)
    if rest.endswith((b" ", b"\t")):
        rest = rest[:-1] + b"=%02X" % rest[-1]
    start = 0
    while len(rest) - start > _WIDTH:
        end = start + _WIDTH - 1
        # A soft break must not split an escape.
        end -= next((back for back in (1, 2) if rest[end - back : end - back + 1] == b"="), 0)
        yield rest[start:end] + b"="
        start = end
    yield rest[start:]
