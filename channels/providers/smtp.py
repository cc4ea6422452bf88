"""E-mail by SMTP (RFC 5321) to the account's own mail server, as submission (RFC 6409, RFC 8314).

    endpoint   smtp://host[:587]     STARTTLS (RFC 3207), required
               smtps://host[:465]    TLS from the first byte
    options    sender      `Name <address>`: From, and where its domain makes the Message-ID
               bounce_to   address for bounces (MAIL FROM); the sender's where it is missing
               user, password   for AUTH (RFC 4954)
               hello       name for EHLO; this machine's where it is missing
               tls         "starttls", or "none" for a server on loopback

The certificate is always verified, with the account's `ca_file` beside the public authorities.

Message-ID is `<call key@sender's domain>`, Date the notification's creation, boundaries are made from the
call key: the same call is the same bytes, and a mail program that sees it twice can tell. No server is
bound to drop a repeat, and none can be asked: an attempt in doubt is for the lane's policy.

A server answers for each receiver (RCPT) and then for the message (the final dot). Who was refused at
RCPT has that reply; the others share the last one. 4yz is not sent, 5yz rejected (RFC 5321 §4.2.1), and
before MAIL it is never about the message. A copy (cc, bcc) that is refused holds nobody back.

Sources: https://www.rfc-editor.org/rfc/rfc5321 (§4.2.2, §4.2.3: replies; §4.5.3.1.8: 100 receivers),
https://www.rfc-editor.org/rfc/rfc4954#section-6, https://www.rfc-editor.org/rfc/rfc3207#section-4,
https://www.rfc-editor.org/rfc/rfc7504 (521, 556),
https://www.iana.org/assignments/smtp-enhanced-status-codes (525).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import ClassVar, Final, Literal

import httpx
import msgspec

from channels.base import BaseChannel
from channels.channel import Account, Answer, Call, Failure
from channels.endpoints import endpoint_url
from channels.error_table import MINUTE, ErrorTable, Row
from channels.outcomes import for_all, of_failure
from channels.promises import Promises
from channels.providers._email_content import (
    BadContent,
    Email,
    Mailbox,
    mailbox,
    read,
    receiver,
)
from channels.providers._email_message import Heading, message_bytes
from channels.secret import Secret
from channels.smtp_net import is_loopback
from channels.smtp_wire import (
    BEFORE_MAIL,
    SCHEMES,
    Envelope,
    Login,
    Reply,
    Stage,
    Told,
    mail_request,
    read_told,
)
from message.delivery import Delivery
from message.envelope import Notification
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown

_PROVIDER: Final = "smtp"
_TOGETHER: Final = "together"
_OF_SENDERS: Final = frozenset({"550", "551", "553", "554", "556"})
"""In reply to MAIL they refuse the account's sender, and so all its mails."""


class SmtpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an account may say."""

    sender: str
    bounce_to: str = ""
    user: str = ""
    password: Secret | None = None
    tls: Literal["starttls", "none"] = "starttls"
    hello: str = ""

    def __post_init__(self) -> None:
        mailbox(self.sender)
        if self.bounce_to:
            receiver(self.bounce_to)
        if bool(self.user) != (self.password is not None):
            raise ValueError("user and password must be given together")
        if not (self.user + self.hello).isascii() or not (self.user + self.hello).isprintable():
            raise ValueError("user and hello must be printable ASCII")


ERRORS: Final = ErrorTable(
    (
        Row("421", "not_sent", "the server is closing the session: too busy, or going down"),
        Row("432", "not_sent", "the account's password must be renewed first", MINUTE, True),
        Row("450", "not_sent", "the mailbox is unavailable for now: busy, or greylisting"),
        Row("451", "not_sent", "a local error at the server"),
        Row("452", "not_sent", "the server lacks storage, or takes no more receivers at once"),
        Row("454", "not_sent", "TLS or login is not available for now", MINUTE, True),
        Row("455", "not_sent", "the server cannot accommodate the parameters for now"),
        Row("500", "rejected", "a command or line that the server does not understand"),
        Row("501", "rejected", "a parameter that the server does not understand"),
        Row("502", "rejected", "a command that the server does not implement"),
        Row("503", "rejected", "a command out of turn, as the server sees it"),
        Row("504", "rejected", "a parameter that the server does not implement"),
        Row("521", "not_sent", "this host takes no mail at all", MINUTE, True),
        Row("525", "not_sent", "the account is disabled", MINUTE, True),
        Row("530", "not_sent", "login or TLS is required first", MINUTE, True),
        Row("534", "not_sent", "the way of logging in is too weak for the account", MINUTE, True),
        Row("535", "not_sent", "user or password is wrong", MINUTE, True),
        Row("538", "not_sent", "login needs encryption", MINUTE, True),
        Row("550", "rejected", "no such mailbox, or refused for reasons of policy"),
        Row("551", "rejected", "the receiver is not local to the server"),
        Row("552", "rejected", "the mailbox is full, or the message is too large"),
        Row("553", "rejected", "the mailbox's name is not allowed"),
        Row("554", "rejected", "the transaction failed"),
        Row("555", "rejected", "the server does not know the parameters of MAIL or RCPT"),
        Row("556", "rejected", "the receiver's domain takes no mail"),
    )
)


class SmtpChannel(BaseChannel):
    """Stateless; safe from many threads."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "email"
    max_batch: ClassVar[int] = 100
    options: ClassVar[type[msgspec.Struct]] = SmtpOptions
    schemes: ClassVar[Sequence[str]] = SCHEMES
    errors: ClassVar[ErrorTable] = ERRORS
    promises: ClassVar[Promises] = Promises(
        title="E-mail by SMTP",
        idempotency="none; the Message-ID is the same for the same call",
        limits="100 receivers of one notification in one message, where its content says `together`;"
        " otherwise one; the server's own rates and sizes; no SMTPUTF8",
        source=(
            "https://www.rfc-editor.org/rfc/rfc5321",
            "https://www.rfc-editor.org/rfc/rfc4954",
            "https://www.rfc-editor.org/rfc/rfc8314",
        ),
    )

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Receivers that see one another join; everyone else has a message of their own."""
        if (delivery.content_for(_PROVIDER) or {}).get("to") == _TOGETHER:
            return (_TOGETHER, delivery.notification.id, delivery.payload)
        return delivery.key

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """As `code: sentence`; empty: it can be sent."""
        options: SmtpOptions = account.options
        url = endpoint_url(account.endpoint, SCHEMES)
        if url.scheme == "smtp" and options.tls == "none" and not is_loopback(url.host):
            return "tls_required: tls may be none only for a server on this machine"
        try:
            read(delivery, _PROVIDER)
            receiver(delivery.receiver)
        except BadContent as exc:
            return str(exc)
        return ""

    def request(self, call: Call) -> httpx.Request:
        """One message; its To is all the notification's receivers where they see one another."""
        account, first = call.account, call.deliveries[0]
        options: SmtpOptions = account.options
        email = read(first, _PROVIDER)
        heading = _heading(call, options, email)
        envelope = Envelope(
            sender=options.bounce_to or heading.sender.address,
            receivers=tuple(receiver(d.receiver).address for d in call.deliveries),
            copies=_copies(call, email),
            login=Login(options.user, options.password) if options.password else None,
            tls=options.tls,
            hello=options.hello,
        )
        url = endpoint_url(account.endpoint, SCHEMES)
        return mail_request(url, envelope, message_bytes(email, heading), account.ca_file)

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """By each receiver's own reply, else by the one to the message."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        try:
            told = read_told(answer)
        except ValueError as exc:
            return for_all(call, Unknown("bad_answer", str(exc)))
        name = f"{call.key}@{_domain(call.account.options)}"
        return [_outcome(told, place, name) for place in range(len(call.deliveries))]


def _heading(call: Call, options: SmtpOptions, email: Email) -> Heading:
    first = call.deliveries[0]
    together = email.content.to == _TOGETHER
    return Heading(
        sender=mailbox(options.sender),
        to=_visible(first.notification) if together else [receiver(first.receiver)],
        key=call.key,
        sent_at=first.notification.created_at,
    )


def _visible(notification: Notification) -> list[Mailbox]:
    """The receivers who see one another, but for those that cannot exist: they are refused alone."""
    found: dict[Mailbox, None] = {}
    for one in notification.receivers:
        with suppress(BadContent):
            found[receiver(one)] = None
    return list(found)


def _copies(call: Call, email: Email) -> tuple[str, ...]:
    """Addresses of cc and bcc. Receivers who see one another may still go out in several calls: the
    copies then go with the first receiver's, so that nobody has several."""
    receivers = {receiver(d.receiver).address for d in call.deliveries}
    together = email.content.to == _TOGETHER
    if together and _visible(call.deliveries[0].notification)[0].address not in receivers:
        return ()
    found = dict.fromkeys(one.address for one in (*email.cc, *email.bcc))
    return tuple(address for address in found if address not in receivers)


def _domain(options: SmtpOptions) -> str:
    return mailbox(options.sender).address.rpartition("@")[2]


def _outcome(told: Told, place: int, name: str) -> AnyOutcome:
    """Of the receiver at this place."""
    own = told.receivers[place] if place < len(told.receivers) else None
    if own is not None and not own.positive:
        return _refused(Stage.RCPT, own)
    if told.stage is Stage.FINAL and told.reply.positive:
        return Accepted(name)
    if told.lost:
        return Unknown(told.lost, told.reply.text)
    return _refused(told.stage, told.reply)


def _refused(stage: Stage, reply: Reply) -> AnyOutcome:
    """A code without a row of its own is judged by its first digit, as RFC 5321 §4.2.1 wants it."""
    code, detail = str(reply.code), reply.text
    if ERRORS.row(code) is not None:
        outcome = ERRORS.outcome(code, detail)
    elif 400 <= reply.code < 500:
        outcome = NotSent(code, detail)
    elif 500 <= reply.code < 600:
        outcome = Rejected(code, detail)
    elif stage is Stage.FINAL:
        return Unknown("protocol", f"{code} is no answer to a message: {detail}")
    else:
        return NotSent("protocol", f"{code} is no answer to {stage}: {detail}")
    if isinstance(outcome, Rejected) and stage in BEFORE_MAIL:
        return NotSent(code, detail, MINUTE, account=True)
    if isinstance(outcome, Rejected) and stage is Stage.MAIL and code in _OF_SENDERS:
        return Rejected(code, detail, account=True)
    return outcome


CHANNELS = (SmtpChannel(),)
