"""The `content` of an e-mail, the same for every e-mail provider.

    subject       one line, required
    text, html    at least one of them
    cc, bcc       addresses that get a copy, such as `a@example.com` or `Ann <a@example.com>`
    reply_to      addresses that answers go to
    headers       further header fields by name, for example List-Unsubscribe
    attachments   [{filename, content, type, cid}]: `content` is base64; `type` is guessed from the name
                  where it is missing, and application/octet-stream where the name gives none, as for
                  a mail (`.eml`); `cid` makes it an image that the html shows by `src="cid:…"`
    to            `each` (the default): every receiver has a message of their own, and sees nobody else;
                  copies are sent of each. `together`: To lists all receivers of the notification,
                  who see one another; copies go once, with the first one's. If that receiver is
                  refused for good, they go with the others of the same message, if it has any. If the
                  first one's is never sent for another reason, no copies are sent

Only the syntax of addresses is checked: no name is looked up while a message waits to be sent. A local part
outside ASCII is refused: it needs SMTPUTF8 (RFC 6531) of every server on the way.

`internal` also allows addresses that mean something in the account's own network alone: names below
`.local`, `.localhost`, `.test` and `.home.arpa`, and an IP address in brackets. A host without a dot stays
refused: `ann@example` is more often a slip than a machine.
"""

from __future__ import annotations

import re
from mimetypes import MimeTypes
from typing import Any, Final, Literal, NamedTuple

import msgspec
from email_validator import EmailNotValidError, validate_email

from channels.bad_content import BadContent, no_form
from message.delivery import Delivery
from message.foreign_text import broken_rule, rule_in

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED = re.compile(r"\\(.)")
_FIELD_NAME = re.compile(r"[!-9;-~]{1,76}")
_TYPE = re.compile(r"(?!multipart/|message/)[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_CID = re.compile(r"[A-Za-z0-9._@-]{1,128}")
_MAX_LINE: Final = 900
"""Characters of a subject, header value or name, to fit into one line of 998 octets (RFC 5322 §2.1.1)."""
_MAX_ADDRESS: Final = 254
"""Characters of an address: RFC 5321 §4.5.3.1.3, less the angle brackets."""
_MAX_MAILBOX: Final = 2 * _MAX_LINE + _MAX_ADDRESS
"""Characters of an address with its name; every character of the name may be escaped."""
_MAX_FILENAME: Final = 255
_MAX_COPIES: Final = 50
_MAX_REPLY_TO: Final = 50
_MAX_HEADERS: Final = 100
_MAX_ATTACHMENTS: Final = 100
_OURS: Final = frozenset(
    {
        *("bcc", "cc", "from", "reply-to", "sender", "subject", "to"),
        *("date", "message-id", "mime-version"),
        *("dkim-signature", "received", "return-path"),
    }
)
"""Header fields that the adapter or a mail server writes."""
_MAX_HALF: Final = 127
"""Characters of a type before and after its slash (RFC 6838 §4.2)."""
_INTERNAL: Final = (".local", ".localhost", ".test", ".home.arpa")
"""Special-use names (RFC 6761, RFC 6762, RFC 8375) that a network's own mail server may serve."""
_STAND_IN: Final = ".lan"
"""Added to an internal domain while it is checked. The library refuses special-use names by a list of the
whole process, which others use too."""
_TYPES: Final = MimeTypes(filenames=())
"""Python's own table: with a machine's mime.types the same notification could get other bytes."""
DEFAULT_TYPE: Final = "application/octet-stream"
_PACKED: Final = {"gzip": "application/gzip"}
"""Types of packed files by their packing, whatever is packed; of any other, the default."""


class Mailbox(NamedTuple):
    """An address with its name, as a header field has it."""

    name: str
    address: str
    """In ASCII: an international domain in its `xn--` form."""

    def __str__(self) -> str:
        return f"{_quoted(self.name)} <{self.address}>" if self.name else self.address


class Attachment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file; `content` is base64 in the envelope."""

    filename: str
    content: bytes
    type: str = ""
    cid: str = ""

    @property
    def mime(self) -> str:
        """`type/subtype`: the given one, else guessed from the filename."""
        return self.type.lower() or _guessed(self.filename)


def _guessed(filename: str) -> str:
    """Returns the type of a file with this name. A mail in a file is not sent as message/rfc822: that
    forbids base64 (RFC 2046 §5.2.1)."""
    found, packing = _TYPES.guess_type(filename)
    if packing:
        return _PACKED.get(packing, DEFAULT_TYPE)
    return found if found and _is_type(found) else DEFAULT_TYPE


def _is_type(text: str) -> bool:
    return _TYPE.fullmatch(text) is not None and not _has_long_half(text)


def _has_long_half(text: str) -> bool:
    return any(len(half) > _MAX_HALF for half in text.split("/"))


class EmailContent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content as the notification has it."""

    subject: str
    text: str = ""
    html: str = ""
    cc: list[str] = []
    bcc: list[str] = []
    reply_to: list[str] = []
    headers: dict[str, str] = {}
    attachments: list[Attachment] = []
    to: Literal["each", "together"] = "each"


class Email(msgspec.Struct, frozen=True):
    """The content, checked."""

    content: EmailContent
    cc: tuple[Mailbox, ...]
    bcc: tuple[Mailbox, ...]
    reply_to: tuple[Mailbox, ...]


def read_content(written: dict[str, Any] | None, *, internal: bool = False) -> Email:
    """Returns the checked content. Raises BadContent with the first mistake."""
    if written is None:
        raise BadContent("no_content: this provider has no templates of its own; give a content")
    try:
        content = msgspec.convert(written, EmailContent)
    except msgspec.ValidationError as exc:
        raise BadContent(f"bad_content: {broken_rule(exc)}") from exc
    _check_texts(content)
    _check_headers(content.headers)
    _check_attachments(content)
    copies = len(content.cc) + len(content.bcc)
    if copies > _MAX_COPIES:
        raise BadContent(f"bad_content: {copies} copies; at most {_MAX_COPIES} are sent")
    if len(content.reply_to) > _MAX_REPLY_TO:
        raise BadContent(f"bad_content: reply_to has more than {_MAX_REPLY_TO} addresses")
    cc, bcc, reply_to = (
        tuple(mailbox(text, internal=internal) for text in texts)
        for texts in (content.cc, content.bcc, content.reply_to)
    )
    return Email(content, cc, bcc, reply_to)


def read(delivery: Delivery, provider: str, *, internal: bool = False) -> Email:
    """Returns the checked content for this provider. Raises BadContent."""
    written = delivery.content_for(provider)
    if written is None and (refused := no_form(delivery, provider)):
        raise BadContent(refused)
    return read_content(written, internal=internal)


def mailbox(text: str, *, internal: bool = False) -> Mailbox:
    """Parses `a@example.com` or `Ann <a@example.com>`. Raises BadContent."""
    if len(text) > _MAX_MAILBOX:
        raise BadContent(f"bad_address: longer than {_MAX_MAILBOX:,} characters with its name")
    name, address = _parts(text.strip())
    if name.startswith('"') and name.endswith('"') and len(name) > 1:
        name = _ESCAPED.sub(r"\1", name[1:-1])
    _check_line("the name of an address", name)
    return Mailbox(name, _ascii(address, "bad_address", internal=internal))


def _parts(text: str) -> tuple[str, str]:
    """Returns name and address; a text without brackets is an address. Only a quoted name may hold more
    brackets."""
    head, bracket, address = text[:-1].rpartition("<")
    head = head.rstrip()
    if not text.endswith(">") or not bracket or not address or ">" in address:
        return "", text
    if set("<>") & set(head) and not (head.startswith('"') and head.endswith('"')):
        return "", text
    return head, address


def receiver(text: str, *, internal: bool = False) -> Mailbox:
    """Returns a delivery's receiver, without a name. Raises BadContent."""
    return Mailbox("", _ascii(text, "bad_receiver", internal=internal))


def _ascii(address: str, code: str, *, internal: bool) -> str:
    if len(address) > _MAX_ADDRESS:
        raise BadContent(f"{code}: an address has at most {_MAX_ADDRESS} characters")
    stand_in = _STAND_IN if internal and _is_internal(address) else ""
    try:
        found = validate_email(
            address + stand_in,
            allow_smtputf8=False,
            allow_domain_literal=internal,
            check_deliverability=False,
        )
    except EmailNotValidError as exc:
        raise BadContent(f"{code}: {rule_in(str(exc))}") from exc
    assert found.ascii_email is not None  # allow_smtputf8 is off
    return found.ascii_email.removesuffix(stand_in)


def _is_internal(address: str) -> bool:
    domain = address.rpartition("@")[2].lower()
    return f".{domain}".endswith(_INTERNAL)


def _check_texts(content: EmailContent) -> None:
    if not content.subject.strip():
        raise BadContent("bad_content: the subject is empty")
    _check_line("the subject", content.subject)
    if not (content.text or content.html):
        raise BadContent("bad_content: text or html must be given")
    if _SURROGATE.search(content.text) or _SURROGATE.search(content.html):
        raise BadContent("bad_content: half a surrogate pair cannot be sent")


def _check_headers(headers: dict[str, str]) -> None:
    if len(headers) > _MAX_HEADERS:
        raise BadContent(f"bad_header: more than {_MAX_HEADERS} header fields")
    if len({name.lower() for name in headers}) != len(headers):
        raise BadContent("bad_header: a header field is given twice")
    for name, value in headers.items():
        if not _FIELD_NAME.fullmatch(name):
            raise BadContent("bad_header: a key of headers is no name of a header field")
        if name.lower() in _OURS or name.lower().startswith(("content-", "resent-")):
            raise BadContent(f"bad_header: {name} cannot be given here")
        _check_line(f"header field {name}", value)


def _check_attachments(content: EmailContent) -> None:
    if len(content.attachments) > _MAX_ATTACHMENTS:
        raise BadContent(f"bad_attachment: more than {_MAX_ATTACHMENTS} attachments")
    cids = [one.cid for one in content.attachments if one.cid]
    if len(set(cids)) != len(cids):
        raise BadContent("bad_attachment: two attachments have the same cid")
    if cids and not content.html:
        raise BadContent("bad_attachment: a cid needs an html that shows it")
    for place, one in enumerate(content.attachments):
        if not 0 < len(one.filename) <= _MAX_FILENAME or _CONTROL.search(one.filename):
            raise BadContent("bad_attachment: a filename is 1 to 255 characters of one line")
        if _has_long_half(one.mime):
            raise BadContent(
                f"bad_attachment: attachments[{place}].type has more than {_MAX_HALF} characters before"
                " or after its slash"
            )
        if not _is_type(one.mime):
            raise BadContent(f"bad_attachment: attachments[{place}].type is no type of a file")
        if one.cid and not _CID.fullmatch(one.cid):
            raise BadContent(f"bad_attachment: attachments[{place}].cid is no cid")


def _check_line(what: str, text: str) -> None:
    if len(text) > _MAX_LINE:
        raise BadContent(f"bad_content: {what} is longer than {_MAX_LINE} characters")
    if _CONTROL.search(text):
        raise BadContent(f"bad_content: {what} holds a line break or a control character")


def _quoted(name: str) -> str:
    """Returns a display name, as a quoted string (RFC 5322) if it holds more than words."""
    if all(char.isalnum() or char == " " for char in name):
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
