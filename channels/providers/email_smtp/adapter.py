"""E-mail by SMTP (RFC 5321) to the account's own mail server, as submission (RFC 6409, RFC 8314).

    endpoint   smtp://host[:587]     STARTTLS (RFC 3207), required
               smtps://host[:465]    TLS from the first byte
    options    sender      `Name <address>`: From; its domain is that of the Message-ID
               bounce_to   address for bounces (MAIL FROM); by default the sender's
               user, password   for AUTH (RFC 4954), by one method once a connection
               user, token_url, client_id, client_secret, refresh_token, scope
                           instead of a password: AUTH XOAUTH2 (email_smtp/token_source.py)
               hello       name for EHLO; by default this machine's
               tls         "starttls", or "none" for a server on loopback

The certificate is always verified, with the account's `ca_file` beside the public authorities.

Message-ID is `<call key@sender's domain>`, Date the notification's creation; boundaries come from the call
key. So the same call has the same bytes, and a mail program can recognise a repeat. Servers need not drop a
repeat and have no query: the lane's policy decides on an attempt in doubt.

A server answers for each receiver (RCPT) and then for the message (the final dot). A receiver refused at
RCPT has that reply; the others share the last one. 4yz is not sent, 5yz rejected (RFC 5321 §4.2.1),
unless it is about the account; email_smtp/replies.py has the rest. A refused copy (cc, bcc) holds no
receiver back.

Copies of a message to receivers who see one another go once: with the first of them. If that receiver is
refused for now, its retry has the copies. If it is refused for good, the others of its message have them. A
first receiver who is alone in its message and refused for good, or who is never sent it (TTL, a policy's
drop), leaves no copies.

Sources: https://www.rfc-editor.org/rfc/rfc5321 (§4.5.3.1.8: 100 receivers; §4.5.3.2: time limits),
https://www.rfc-editor.org/rfc/rfc3207#section-4.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Final, Literal

import httpx
import msgspec

from channels.bad_content import BadContent
from channels.base import BaseChannel
from channels.capabilities import Capabilities
from channels.channel import Account, Answer, Call, Failure, OptionalTokens
from channels.endpoints import endpoint_url
from channels.judging.error_table import ErrorTable
from channels.judging.outcomes import for_all, of_failure
from channels.providers._common.email_content import Email, Mailbox, mailbox, read, receiver
from channels.providers.email_smtp.mime import Heading, message_bytes
from channels.providers.email_smtp.replies import ERRORS, refused
from channels.providers.email_smtp.token_source import SmtpTokens
from channels.secret import Secret
from channels.smtp_client.host_names import is_loopback
from channels.smtp_client.mail_request import (
    SCHEMES,
    Envelope,
    Login,
    SmtpReply,
    SmtpReplySet,
    SmtpStage,
    mail_request,
    read_told,
)
from message.delivery import Delivery
from message.envelope import Notification
from message.outcomes import Accepted, AnyOutcome, Rejected, Unknown

_PROVIDER: Final = "smtp"
_mailbox = partial(mailbox, internal=True)
_receiver = partial(receiver, internal=True)
_read = partial(read, internal=True)
_TOGETHER: Final = "together"
_FOR_GOOD: Final = 5
"""First digit of 5yz: the server would refuse the same command again (RFC 5321 §4.2.1)."""


class SmtpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of an account."""

    sender: str
    bounce_to: str = ""
    user: str = ""
    password: Secret | None = None
    tls: Literal["starttls", "none"] = "starttls"
    hello: str = ""
    token_url: str = ""
    """Where access tokens come from (OAuth 2.0): then AUTH is XOAUTH2, without a password."""
    client_id: str = ""
    client_secret: Secret | None = None
    refresh_token: Secret | None = None
    """Of a person's consent; without it the application's own credentials are used."""
    scope: str = ""

    def __post_init__(self) -> None:
        _mailbox(self.sender)
        if self.bounce_to:
            _receiver(self.bounce_to)
        if self.token_url:
            self._check_token()
        elif self.client_id or self.client_secret or self.refresh_token or self.scope:
            raise ValueError("client_id, client_secret, refresh_token and scope go with token_url")
        elif bool(self.user) != (self.password is not None):
            raise ValueError("user and password must be given together")
        if not (self.user + self.hello).isascii() or not (self.user + self.hello).isprintable():
            raise ValueError("user and hello must be printable ASCII")

    def _check_token(self) -> None:
        endpoint_url(self.token_url)
        if self.password is not None:
            raise ValueError("password and token_url exclude each other")
        if not self.user or not self.client_id:
            raise ValueError("token_url needs user and client_id")
        if not self.client_secret and not self.refresh_token:
            raise ValueError("token_url needs client_secret, refresh_token, or both")


class SmtpChannel(BaseChannel):
    """Stateless; safe from many threads."""

    provider: ClassVar[str] = _PROVIDER
    channel: ClassVar[str] = "email"
    max_batch: ClassVar[int] = 100
    options: ClassVar[type[msgspec.Struct]] = SmtpOptions
    schemes: ClassVar[Sequence[str]] = SCHEMES
    optional_tokens: ClassVar[OptionalTokens | None] = SmtpTokens()
    errors: ClassVar[ErrorTable] = ERRORS
    promises: ClassVar[Capabilities] = Capabilities(
        title="E-mail by SMTP",
        idempotency="none; the Message-ID is the same for the same call",
        limits="100 receivers of one notification in one message, where its content says `together`;"
        " otherwise one; the server's own rates and sizes, and a 4yz whose text names a rate only paces;"
        " a 5yz is about the account where it refuses the sender at MAIL, or its text names a quota of the"
        " account, its sender or its permission;"
        " copies (cc, bcc) of a mail to receivers who see one another go once, with its first receiver;"
        " time limits of RFC 5321 for each step (policy table `smtp`); no SMTPUTF8;"
        " addresses below `.local`, `.localhost`, `.test` and `.home.arpa`, or with an IP address in"
        " brackets, are sent; a host without a dot is refused (`bad_receiver`): give it a domain",
        source=(
            "https://www.rfc-editor.org/rfc/rfc5321",
            "https://www.rfc-editor.org/rfc/rfc4954",
            "https://www.rfc-editor.org/rfc/rfc8314",
        ),
    )

    def batch_key(self, delivery: Delivery) -> Hashable:
        """Joins receivers who see one another; every other receiver has a message of their own."""
        if (delivery.content_for(_PROVIDER) or {}).get("to") == _TOGETHER:
            return (_TOGETHER, delivery.notification.id, delivery.payload)
        return delivery.key

    def refusal(self, account: Account, delivery: Delivery) -> str:
        """Returns the reason as `code: sentence`; empty if it can be sent."""
        options: SmtpOptions = account.options
        url = endpoint_url(account.endpoint, SCHEMES)
        if url.scheme == "smtp" and options.tls == "none" and not is_loopback(url.host):
            return "tls_required: tls may be none only for a server on this machine"
        try:
            _read(delivery, _PROVIDER)
            _receiver(delivery.receiver)
        except BadContent as exc:
            return str(exc)
        return ""

    def request(self, call: Call) -> httpx.Request:
        """Returns one message. With `together`, To names all receivers of the notification."""
        account, first = call.account, call.deliveries[0]
        options: SmtpOptions = account.options
        email = _read(first, _PROVIDER)
        heading = _heading(call, options, email)
        receivers = tuple(_receiver(d.receiver).address for d in call.deliveries)
        seeing = [one.address for one in heading.to]
        copies = _copies(seeing, email, receivers)
        envelope = Envelope(
            sender=options.bounce_to or heading.sender.address,
            receivers=receivers,
            copies=copies,
            copies_go=(
                partial(_copies_go, receivers.index(seeing[0]), _senders(options))
                if copies
                else None
            ),
            login=_login(options, call.token),
            tls=options.tls,
            hello=options.hello,
        )
        url = endpoint_url(account.endpoint, SCHEMES)
        return mail_request(url, envelope, message_bytes(email, heading), account.ca_file)

    def token_refused(self, answer: httpx.Response) -> bool:
        """Returns whether AUTH refused an access token for good (5yz); nothing was sent then."""
        if b'"by_token"' not in answer.content:
            return False
        try:
            replies = read_told(answer)
        except ValueError:
            return False
        at_auth = replies.by_token and replies.stage is SmtpStage.AUTH
        return at_auth and replies.reply.code // 100 == _FOR_GOOD

    def outcomes(self, call: Call, answer: Answer) -> list[AnyOutcome]:
        """Returns outcomes by each receiver's own reply, else by the reply to the message."""
        if isinstance(answer, Failure):
            return for_all(call, of_failure(answer))
        try:
            replies = read_told(answer)
        except ValueError as exc:
            return for_all(call, Unknown("bad_answer", str(exc)))
        senders = _senders(call.account.options)
        name = f"{call.key}@{senders[0].rpartition('@')[2]}"
        return [_outcome(replies, place, name, senders) for place in range(len(call.deliveries))]


def _login(options: SmtpOptions, token: str) -> Login | None:
    if token:
        return Login(options.user, Secret(token), by_token=True)
    return Login(options.user, options.password) if options.password else None


def _heading(call: Call, options: SmtpOptions, email: Email) -> Heading:
    first = call.deliveries[0]
    together = email.content.to == _TOGETHER
    return Heading(
        sender=_mailbox(options.sender),
        to=_visible(first.notification) if together else [_receiver(first.receiver)],
        key=call.key,
        sent_at=first.notification.created_at,
    )


def _visible(notification: Notification) -> list[Mailbox]:
    """Returns the receivers who see one another, without impossible ones, which are refused alone."""
    found: dict[Mailbox, None] = {}
    for one in notification.receivers:
        with suppress(BadContent):
            found[_receiver(one)] = None
    return list(found)


def _copies(seeing: Sequence[str], email: Email, receivers: Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses of cc and bcc; none if the receiver that they go with is in another call.
    `seeing`: receivers who see one another, that one first."""
    if seeing[0] not in receivers:
        return ()
    found = dict.fromkeys(one.address for one in (*email.cc, *email.bcc))
    return tuple(address for address in found if address not in seeing)


def _copies_go(place: int, senders: Sequence[str], replies: Sequence[SmtpReply]) -> bool:
    """Returns whether the message has copies: the receiver at this place gets it now, or never will."""
    refusal = _refused_at_rcpt(replies, place, senders)
    return refusal is None or isinstance(refusal, Rejected)


def _senders(options: SmtpOptions) -> tuple[str, ...]:
    """Returns the account's own addresses: the one of From first."""
    sender = _mailbox(options.sender).address
    return (sender, options.bounce_to) if options.bounce_to else (sender,)


def _refused_at_rcpt(
    replies: Sequence[SmtpReply], place: int, senders: Sequence[str]
) -> AnyOutcome | None:
    """Returns the outcome of the receiver at this place by its own reply; None if it was not refused."""
    if place >= len(replies) or replies[place].positive:
        return None
    others_taken = any(one.positive for one in replies[:place])
    return refused(SmtpStage.RCPT, replies[place], others_taken=others_taken, senders=senders)


def _outcome(replies: SmtpReplySet, place: int, name: str, senders: Sequence[str]) -> AnyOutcome:
    """Returns the outcome of the receiver at this place."""
    own = _refused_at_rcpt(replies.receivers, place, senders)
    if own is not None:
        return own
    if replies.stage is SmtpStage.FINAL and replies.reply.positive:
        return Accepted(name)
    if replies.lost:
        return Unknown(replies.lost, replies.reply.text)
    return refused(replies.stage, replies.reply, senders=senders)


CHANNELS = (SmtpChannel(),)
