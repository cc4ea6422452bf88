"""What a mail server's reply means: the code's row, but for three things that only the text tells.

    pace         4yz whose text names a rate or too many connections: it only paces (docs/accounts.md)
    too many     552 to one of several RCPTs: RFC 5321 §4.5.3.1.10 calls it an old word for 452
    before MAIL  a refusal is never about the message

A 552 with an enhanced code (RFC 3463) says what it is: 5.5.3 too many receivers, 5.2.2 a full
mailbox, and that is refused. Without one it can mean too many only if another receiver was taken before it.

Sources, read 2026-11-22: https://www.rfc-editor.org/rfc/rfc5321 (§4.2.2, §4.2.3, §4.5.3.1.10),
https://www.rfc-editor.org/rfc/rfc3463, https://www.rfc-editor.org/rfc/rfc4954#section-6,
https://www.rfc-editor.org/rfc/rfc7504 (521, 556),
https://www.iana.org/assignments/smtp-enhanced-status-codes (525); of pace
https://support.google.com/a/answer/3726730,
https://learn.microsoft.com/en-us/exchange/troubleshoot/send-emails/smtp-submission-improvements,
https://docs.aws.amazon.com/ses/latest/dg/manage-sending-quotas-errors.html, Postfix's src/smtpd/smtpd.c and
Exim's src/daemon.c and src/smtp_in.c.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from channels.judging.error_table import HOUR, MINUTE, ErrorTable, Row, Source, documented, shut_out
from channels.smtp_client.mail_request import BEFORE_MAIL, Reply, Stage
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

_OF_SENDERS: Final = frozenset({"550", "551", "553", "554", "556"})
"""In reply to MAIL they refuse the account's sender, and so all its mails."""
_TOO_MANY: Final = "552"
_ENHANCED = re.compile(r"\s*([245])\.(\d{1,3})\.(\d{1,3})(?:\s|$)")


class Pace(NamedTuple):
    """A phrase by which a server says "slower", in lower case."""

    phrase: str
    limit: Limit
    delay_ms: int | None = None
    """How long to wait; None: the lane's own back-off."""
    account: bool = False
    """Another account may send the message at once."""


PACES: Final = (
    Pace("receiving mail too quickly", Limit.RECEIVER),  # Gmail, 450 4.2.1
    Pace("receiving mail at a rate", Limit.RECEIVER),  # Gmail, 450 4.2.1
    Pace("unusual rate of", Limit.ACCOUNT, MINUTE),  # Gmail, 421 4.7.0 and 4.7.28
    Pace("smtp relay limit exceeded", Limit.ACCOUNT, MINUTE),  # Gmail's relay, 450 4.2.1
    Pace("daily message quota exceeded", Limit.ACCOUNT, HOUR, account=True),  # SES, 454
    Pace("maximum sending rate exceeded", Limit.ACCOUNT),  # SES, 454
    Pace("concurrent connection", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    Pace("sender thread limit exceeded", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    Pace("message submission rate", Limit.ACCOUNT),  # Exchange, 421 4.4.2
    Pace("too much mail from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    Pace("too many recipients from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    Pace("too many connections", Limit.ACCOUNT),  # Postfix, 421 4.7.0
    Pace("too many concurrent smtp connections", Limit.ACCOUNT),  # Exim, 421
    Pace("rate limit", Limit.ACCOUNT),
    Pace("throttl", Limit.ACCOUNT),
    Pace("too many messages", Limit.ACCOUNT),
)
"""The first that stands in the text of a 4yz counts. The last three are no one server's: what else would
they say?"""


_SMTP: Final = Source("https://www.rfc-editor.org/rfc/rfc5321#section-4.2", "2026-11-22")
_AUTH: Final = Source("https://www.rfc-editor.org/rfc/rfc4954#section-6", "2026-11-22")
_NO_MAIL: Final = Source("https://www.rfc-editor.org/rfc/rfc7504", "2026-11-22")
_REGISTRY: Final = Source(
    "https://www.iana.org/assignments/smtp-enhanced-status-codes", "2026-11-22"
)

ERRORS: Final = ErrorTable(
    (
        *documented(
            _SMTP,
            Row("421", "not_sent", "the server is closing the session: too busy, or going down"),
            Row("450", "not_sent", "the mailbox is unavailable for now: busy, or greylisting"),
            Row("451", "not_sent", "a local error at the server"),
            Row("452", "not_sent", "the server lacks storage, or takes no more receivers at once"),
            Row("455", "not_sent", "the server cannot accommodate the parameters for now"),
            Row("500", "rejected", "a command or line that the server does not understand"),
            Row("501", "rejected", "a parameter that the server does not understand"),
            Row("502", "rejected", "a command that the server does not implement"),
            Row("503", "rejected", "a command out of turn, as the server sees it"),
            Row("504", "rejected", "a parameter that the server does not implement"),
            Row("550", "rejected", "no such mailbox, or refused for reasons of policy"),
            Row("551", "rejected", "the receiver is not local to the server"),
            Row("552", "rejected", "the mailbox is full, or the message is too large"),
            Row("553", "rejected", "the mailbox's name is not allowed"),
            Row("554", "rejected", "the transaction failed"),
            Row("555", "rejected", "the server does not know the parameters of MAIL or RCPT"),
        ),
        *documented(
            _AUTH,
            Row("432", "not_sent", "the account's password must be renewed first", MINUTE, True),
            Row("454", "not_sent", "TLS or login is not available for now", MINUTE, True),
            shut_out("530", "login or TLS is required first", MINUTE),
            shut_out("534", "the way of logging in is too weak for the account", MINUTE),
            shut_out("535", "user or password is wrong", MINUTE),
            shut_out("538", "login needs encryption", MINUTE),
        ),
        *documented(
            _NO_MAIL,
            Row("521", "not_sent", "this host takes no mail at all", MINUTE, True),
            Row("556", "rejected", "the receiver's domain takes no mail"),
        ),
        *documented(_REGISTRY, shut_out("525", "the account is disabled", MINUTE)),
    )
)


def refused(stage: Stage, reply: Reply, *, others_taken: bool = False) -> AnyOutcome:
    """What a reply that is no success means. `others_taken`: RCPT named a receiver before this one that
    the server took. A code without a row is judged by its first digit, as RFC 5321 §4.2.1 wants it."""
    code, detail = str(reply.code), reply.text
    if 400 <= reply.code < 500 and (pace := _pace(detail)) is not None:
        return NotSent(code, detail, pace.delay_ms, pace.account, pace.limit)
    if stage is Stage.RCPT and code == _TOO_MANY and _means_too_many(detail, others_taken):
        return NotSent(code, detail)
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
        limit = Limit.LOGIN if stage is Stage.AUTH else None
        return NotSent(code, detail, MINUTE, account=True, limit=limit)
    if isinstance(outcome, Rejected) and stage is Stage.MAIL and code in _OF_SENDERS:
        return Rejected(code, detail, account=True)
    return outcome


def _pace(text: str) -> Pace | None:
    said = text.lower()
    return next((pace for pace in PACES if pace.phrase in said), None)


def _means_too_many(text: str, others_taken: bool) -> bool:
    """Whether a 552 to RCPT says that the message has too many receivers."""
    enhanced = _ENHANCED.match(text)
    return others_taken if enhanced is None else enhanced.group(2, 3) == ("5", "3")
