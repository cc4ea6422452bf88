"""The meaning of a mail server's reply: the code's row, with five exceptions.

    pace         4yz whose text names a rate or too many connections: it only paces (docs/accounts.md)
    too many     552 to one of several RCPTs: RFC 5321 §4.5.3.1.10 calls it an old word for 452
    before MAIL  a refusal is never about the message
    account      5yz whose text names a quota of the account, its sender or its permission: not sent, and
                 about the account
    at MAIL      a refusal of the sender is about the account, which has one sender for all its mails

The enhanced code (RFC 3463) of a 552 decides: 5.5.3 means too many receivers. Any other is a refusal, such
as 5.2.2 for a full mailbox. Without it, a 552 means too many only if the server took an earlier receiver.

Sources, read 2026-11-22: https://www.rfc-editor.org/rfc/rfc5321 (§4.2.2, §4.2.3, §4.5.3.1.10),
https://www.rfc-editor.org/rfc/rfc3463, https://www.rfc-editor.org/rfc/rfc4954#section-6,
https://www.rfc-editor.org/rfc/rfc7504 (521, 556),
https://www.iana.org/assignments/smtp-enhanced-status-codes (525); of pace and account
https://support.google.com/a/answer/3726730,
https://learn.microsoft.com/en-us/exchange/troubleshoot/send-emails/smtp-submission-improvements,
https://docs.aws.amazon.com/ses/latest/dg/manage-sending-quotas-errors.html, Postfix's src/smtpd/smtpd.c and
Exim's src/daemon.c and src/smtp_in.c; of account, read in excerpts 2026-11-29:
https://learn.microsoft.com/en-us/exchange/troubleshoot/email-delivery/ndr/non-delivery-reports-in-exchange-online,
https://docs.aws.amazon.com/ses/latest/dg/troubleshoot-error-messages.html,
https://repost.aws/knowledge-center/ses-554-400-message-rejected-error, https://smtp.codes/qq and, for
Postfix, reports of its users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from channels.judging import error_table as codes
from channels.judging.error_table import HOUR, MINUTE, ErrorTable, RowSource
from channels.smtp_client.mail_request import BEFORE_MAIL, SmtpReply, SmtpStage
from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

_OF_SENDERS: Final = frozenset({"550", "551", "553", "554", "556"})
"""Codes that, in reply to MAIL, refuse the account's sender and so all its mails."""
_SYNTAX: Final = "501"
_SENDER = re.compile(r"\b(sender|from address)\b", re.IGNORECASE)
"""Words of a 501 to MAIL that refuses the sender."""
_TOO_MANY: Final = "552"
_TOO_LARGE: Final = frozenset({"2.3", "3.4"})
"""Enhanced codes about the message's size, which MAIL names (RFC 1870)."""
_BETWEEN_WORDS = re.compile(r"[\s<>\"'`,;:()]+")
_ENHANCED = re.compile(r"\s*([245])\.(\d{1,3})\.(\d{1,3})(?:\s|$)")


class ReplyPhrase(NamedTuple):
    """A phrase, in lower case, and the meaning of a reply whose text has it."""

    phrase: str
    limit: Limit | None = None
    delay_ms: int | None = None
    """Milliseconds to wait; None: the lane's own back-off."""
    account: bool = False
    """Another account may send the message at once. Without a `limit` the account's breaker opens."""
    enhanced: str = ""
    """The enhanced code without its class, if the phrase counts only beside it."""
    names_sender: bool = False
    """The phrase counts only in a text with an address of the account: it is about others, too."""


def _used_up(phrase: str, delay_ms: int = HOUR, enhanced: str = "") -> ReplyPhrase:
    """Returns a phrase about a share of the account that is used up."""
    return ReplyPhrase(phrase, Limit.ACCOUNT, delay_ms, account=True, enhanced=enhanced)


def _fault(phrase: str, enhanced: str = "", *, names_sender: bool = False) -> ReplyPhrase:
    """Returns a phrase about the account's sender or its permission."""
    return ReplyPhrase(phrase, None, MINUTE, True, enhanced, names_sender)


def _shut_out(phrase: str) -> ReplyPhrase:
    """Returns a phrase about an account that may send nothing at all."""
    return ReplyPhrase(phrase, Limit.LOGIN, MINUTE, account=True)


PACES: Final = (
    ReplyPhrase("receiving mail too quickly", Limit.RECEIVER),  # Gmail, 450 4.2.1
    ReplyPhrase("receiving mail at a rate", Limit.RECEIVER),  # Gmail, 450 4.2.1
    ReplyPhrase("unusual rate of", Limit.ACCOUNT, MINUTE),  # Gmail, 421 4.7.0 and 4.7.28
    ReplyPhrase("smtp relay limit exceeded", Limit.ACCOUNT, MINUTE),  # Gmail's relay, 450 4.2.1
    _used_up("daily message quota exceeded"),  # SES, 454
    ReplyPhrase("maximum sending rate exceeded", Limit.ACCOUNT),  # SES, 454
    ReplyPhrase("concurrent connection", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    ReplyPhrase("sender thread limit exceeded", Limit.ACCOUNT),  # Exchange Online, 432 4.3.2
    ReplyPhrase("message submission rate", Limit.ACCOUNT),  # Exchange, 421 4.4.2
    ReplyPhrase("too much mail from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    ReplyPhrase("too many recipients from", Limit.ACCOUNT),  # Postfix, 450 4.7.1
    ReplyPhrase("too many connections", Limit.ACCOUNT),  # Postfix, 421 4.7.0
    ReplyPhrase("too many concurrent smtp connections", Limit.ACCOUNT),  # Exim, 421
    ReplyPhrase("rate limit", Limit.ACCOUNT),
    ReplyPhrase("throttl", Limit.ACCOUNT),
    ReplyPhrase("too many messages", Limit.ACCOUNT),
)
"""The first phrase found in the text of a 4yz counts. The last three come from no single server."""

ACCOUNT_REFUSALS: Final = (
    _used_up("daily user sending limit exceeded"),  # Gmail, 550 5.4.5
    _used_up("daily user sending quota exceeded"),  # Gmail, 550 5.4.5
    _used_up("daily sending quota exceeded"),  # Gmail, 550 5.4.5
    _used_up("daily smtp relay limit exceeded"),  # Gmail's relay, 550 5.4.5 and 5.7.1
    _used_up("email quota exceeded", enhanced="7.1"),  # Gmail, 550 5.7.1; 5.2.2 is a receiver's
    _used_up("reached your daily limit for message recipients"),  # Exchange Online, 550 5.1.90
    _used_up("sender frequency limited", MINUTE),  # QQ, 550; of a minute, an hour or a day
    _shut_out("sending paused for this account"),  # SES, 554
    _shut_out("sending suspended for this account"),  # SES, 554
    _shut_out("tenant has exceeded threshold"),  # Exchange Online, 550 5.7.705
    # SES, 554. In its sandbox the list of addresses may hold the receiver alone.
    _fault("email address is not verified", names_sender=True),
    _fault("not authorized to perform ses:send"),  # SES, 554
    _fault("not authorized to perform `ses:send"),  # SES, 554
    _fault("exception:sendasdenied"),  # Exchange Online, 554 5.2.0 and 5.2.252
    _fault("permissions to send as this sender"),  # Exchange, 550 5.7.60
    # Postfix refuses senders at RCPT (smtpd_delay_reject).
    _fault("sender address rejected: not owned by user"),  # Postfix, 553 5.7.1
    _fault("sender address rejected: not logged in"),  # Postfix, 553 5.7.1
    _fault("", "1.7"),  # the sender's address is bad (RFC 3463)
    _fault(
        "", "1.8"
    ),  # the sender's domain is bad (RFC 3463); Exchange Online: the sender is blocked
)
"""The same of a 5yz at MAIL or later. None of them occurs in a refusal of one receiver. A phrase has a
character that no unquoted address has, since a text may repeat the receiver's."""


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


def refused(
    stage: SmtpStage, reply: SmtpReply, *, others_taken: bool = False, senders: Sequence[str] = ()
) -> AnyOutcome:
    """Returns the outcome of a reply that is no success. `others_taken`: the server took an earlier RCPT.
    `senders`: the account's own addresses. The first digit decides for a code without a row (RFC 5321
    §4.2.1)."""
    code, detail = str(reply.code), reply.text
    if 400 <= reply.code < 500 and (pace := _found(PACES, detail)) is not None:
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
    if isinstance(outcome, Rejected):
        return _of_account(stage, code, detail, senders) or outcome
    return outcome


def _of_account(stage: SmtpStage, code: str, text: str, senders: Sequence[str]) -> NotSent | None:
    """Returns the outcome of a 5yz about the account; None if it is about the message or a receiver."""
    if stage in BEFORE_MAIL:
        limit = Limit.LOGIN if stage is SmtpStage.AUTH else None
        return NotSent(code, text, MINUTE, account=True, limit=limit)
    if (found := _found(ACCOUNT_REFUSALS, text, senders)) is not None:
        return NotSent(code, text, found.delay_ms, found.account, found.limit)
    if stage is SmtpStage.MAIL and _refuses_sender(code, text):
        return NotSent(code, text, MINUTE, account=True)
    return None


def _refuses_sender(code: str, text: str) -> bool:
    """Returns whether a reply to MAIL refuses the sender, and not the message for its size."""
    if code == _SYNTAX:
        return _SENDER.search(text) is not None
    return code in _OF_SENDERS and _enhanced(text) not in _TOO_LARGE


def _found(
    phrases: Iterable[ReplyPhrase], text: str, senders: Sequence[str] = ()
) -> ReplyPhrase | None:
    """Returns the first phrase that the text has."""
    lowered, enhanced = text.lower(), _enhanced(text)
    words = {word.strip(".") for word in _BETWEEN_WORDS.split(lowered)}
    named = any(sender.lower() in words for sender in senders)
    return next(
        (
            one
            for one in phrases
            if one.phrase in lowered
            and one.enhanced in ("", enhanced)
            and (named or not one.names_sender)
        ),
        None,
    )


def _enhanced(text: str) -> str:
    """Returns the enhanced code without its class, such as `5.3`; empty if the text has none."""
    found = _ENHANCED.match(text)
    return f"{int(found[2])}.{int(found[3])}" if found else ""


def _means_too_many(text: str, others_taken: bool) -> bool:
    """Returns whether a 552 to RCPT means that the message has too many receivers."""
    enhanced = _enhanced(text)
    return enhanced == "5.3" if enhanced else others_taken
