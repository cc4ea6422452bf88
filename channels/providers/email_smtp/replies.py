"""The meaning of a mail server's reply: the code's row, with three exceptions.

    pace         4yz whose text names a rate or too many connections: it only paces (docs/accounts.md)
    too many     552 to one of several RCPTs: RFC 5321 §4.5.3.1.10 calls it an old word for 452
    before MAIL  a refusal is never about the message

The enhanced code (RFC 3463) of a 552 decides: 5.5.3 means too many receivers. Any other is a refusal, such
as 5.2.2 for a full mailbox. Without it, a 552 means too many only if the server took an earlier receiver.

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

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.smtp_client.mail_request import BEFORE_MAIL, SmtpReply, SmtpStage
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

_OF_SENDERS: Final = frozenset({"550", "551", "553", "554", "556"})
"""Codes that, in reply to MAIL, refuse the account's sender and so all its mails."""
_TOO_MANY: Final = "552"
_ENHANCED = re.compile(r"\s*([245])\.(\d{1,3})\.(\d{1,3})(?:\s|$)")


class ReplyPace(NamedTuple):
    """A phrase, in lower case, that asks for a slower rate."""

    phrase: str
    limit: Limit
    delay_ms: int | None = None
    """Milliseconds to wait; None: the lane's own back-off."""
    account: bool = False
    """Another account may send the message at once."""


PACES: Final = (
    ReplyPace("receiving mail too quickly", Limit.RECEIVER),  # Gmail, 450 4.2.1
    ReplyPace("receiving mail at a rate", Limit.RECEIVER),  # Gmail, 450 4.2.1
    ReplyPace("unusual rate of", Limit.ACCOUNT, MINUTE),  # Gmail, 421 4.7.0 and 4.7.28
    ReplyPace("smtp relay limit exceeded", Limit.ACCOUNT, MINUTE),  # Gmail's relay, 450 4.2.1
    ReplyPace("daily message quota exceeded", Limit.ACCOUNT, HOUR, account=True),  # SES, 454
    ReplyPace("maximum sending rate exceeded", Limit.ACCOUNT),  # SES, 454
    ReplyPace("concurrent connection", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    ReplyPace("sender thread limit exceeded", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    ReplyPace("message submission rate", Limit.ACCOUNT),  # Exchange, 421 4.4.2
    ReplyPace("too much mail from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    ReplyPace("too many recipients from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    ReplyPace("too many connections", Limit.ACCOUNT),  # Postfix, 421 4.7.0
    ReplyPace("too many concurrent smtp connections", Limit.ACCOUNT),  # Exim, 421
    ReplyPace("rate limit", Limit.ACCOUNT),
    ReplyPace("throttl", Limit.ACCOUNT),
    ReplyPace("too many messages", Limit.ACCOUNT),
)
"""The first phrase found in the text of a 4yz counts. The last three come from no single server."""


_SMTP: Final = RowSource("https://www.rfc-editor.org/rfc/rfc5321#section-4.2", "2026-11-22")
_AUTH: Final = RowSource("https://www.rfc-editor.org/rfc/rfc4954#section-6", "2026-11-22")
_NO_MAIL: Final = RowSource("https://www.rfc-editor.org/rfc/rfc7504", "2026-11-22")
_REGISTRY: Final = RowSource(
    "https://www.iana.org/assignments/smtp-enhanced-status-codes", "2026-11-22"
)

ERRORS: Final = ErrorTable(
    codes.documented(
        _SMTP,
        codes.not_sent("421", "the server is closing the session: too busy, or going down"),
        codes.not_sent("450", "the mailbox is unavailable for now: busy, or greylisting"),
        codes.not_sent("451", "a local error at the server"),
        codes.not_sent("452", "the server lacks storage, or takes no more receivers at once"),
        codes.not_sent("455", "the server cannot accommodate the parameters for now"),
        codes.rejected("500", "a command or line that the server does not understand"),
        codes.rejected("501", "a parameter that the server does not understand"),
        codes.rejected("502", "a command that the server does not implement"),
        codes.rejected("503", "a command out of turn, as the server sees it"),
        codes.rejected("504", "a parameter that the server does not implement"),
        codes.rejected("550", "no such mailbox, or refused for reasons of policy"),
        codes.rejected("551", "the receiver is not local to the server"),
        codes.rejected("552", "the mailbox is full, or the message is too large"),
        codes.rejected("553", "the mailbox's name is not allowed"),
        codes.rejected("554", "the transaction failed"),
        codes.rejected("555", "the server does not know the parameters of MAIL or RCPT"),
    ),
    codes.documented(
        _AUTH,
        codes.account_fault("432", "the account's password must be renewed first", MINUTE),
        codes.account_fault("454", "TLS or login is not available for now", MINUTE),
        codes.shut_out("530", "login or TLS is required first", MINUTE),
        codes.shut_out("534", "the way of logging in is too weak for the account", MINUTE),
        codes.shut_out("535", "user or password is wrong", MINUTE),
        codes.shut_out("538", "login needs encryption", MINUTE),
    ),
    codes.documented(
        _NO_MAIL,
        codes.account_fault("521", "this host takes no mail at all", MINUTE),
        codes.rejected("556", "the receiver's domain takes no mail"),
    ),
    codes.documented(_REGISTRY, codes.shut_out("525", "the account is disabled", MINUTE)),
)


def refused(stage: SmtpStage, reply: SmtpReply, *, others_taken: bool = False) -> AnyOutcome:
    """Returns the outcome of a reply that is no success. `others_taken`: the server took an earlier RCPT.
    The first digit decides for a code without a row (RFC 5321 §4.2.1)."""
    code, detail = str(reply.code), reply.text
    if 400 <= reply.code < 500 and (pace := _pace(detail)) is not None:
        return NotSent(code, detail, pace.delay_ms, pace.account, pace.limit)
    if stage is SmtpStage.RCPT and code == _TOO_MANY and _means_too_many(detail, others_taken):
        return NotSent(code, detail)
    if ERRORS.row(code) is not None:
        outcome = ERRORS.outcome(code, detail)
    elif 400 <= reply.code < 500:
        outcome = NotSent(code, detail)
    elif 500 <= reply.code < 600:
        outcome = Rejected(code, detail)
    elif stage is SmtpStage.FINAL:
        return Unknown("protocol", f"{code} is no answer to a message: {detail}")
    else:
        return NotSent("protocol", f"{code} is no answer to {stage}: {detail}")
    if isinstance(outcome, Rejected) and stage in BEFORE_MAIL:
        limit = Limit.LOGIN if stage is SmtpStage.AUTH else None
        return NotSent(code, detail, MINUTE, account=True, limit=limit)
    if isinstance(outcome, Rejected) and stage is SmtpStage.MAIL and code in _OF_SENDERS:
        return Rejected(code, detail, account=True)
    return outcome


def _pace(text: str) -> ReplyPace | None:
    lowered = text.lower()
    return next((pace for pace in PACES if pace.phrase in lowered), None)


def _means_too_many(text: str, others_taken: bool) -> bool:
    """Returns whether a 552 to RCPT means that the message has too many receivers."""
    enhanced = _ENHANCED.match(text)
    return others_taken if enhanced is None else enhanced.group(2, 3) == ("5", "3")
