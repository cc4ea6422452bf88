"""One readable table per adapter: every documented error code and what it means for a delivery.

A code that is in no table is Unknown: the request was written, and its fate is not known. A 4xx is the
exception, where the provider answers errors by HTTP status: it refuses for sure (RFC 9110 §15.5), whatever
code its body holds. Feishu's 400 refuses nothing for sure (channels/providers/feishu/wire.py). 401, 402,
403 and 407 are about the sender's login, payment or rights (RFC 9110 §15.5.2 to §15.5.4, §15.5.8), and so
refuse the account. An adapter names a code that they give to one message in a row.

Each row of an adapter names the document that has its code, with the date of reading (`documented`). Else
it gives the reason why none has (`unproved`). The meaning for a delivery is our reading of the document's
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Literal, NamedTuple

from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

_LATER: Final = frozenset({408, 425})
_TOO_MANY: Final = 429
_UNAUTHENTICATED: Final = 401
_OF_ACCOUNT: Final = frozenset({402, 403, 407})
_CONFLICT: Final = 409
"""Another request with this key may be under way: neither sent nor refused."""
Kind = Literal["rejected", "not_sent", "unknown"]
_SECOND: Final = 1_000
MINUTE: Final = 60 * _SECOND
HOUR: Final = 60 * MINUTE


class RowSource(NamedTuple):
    """A document that lists codes of a provider."""

    url: str
    read: str
    """The day of reading, as `2026-11-22`."""
    copy: str = ""
    """The text read in place of the page: a copy, or code that has the list. Empty: the page itself."""


class ErrorRow(NamedTuple):
    """One code of the provider."""

    code: str
    """Exact, or a prefix when it ends in `*`."""
    kind: Kind
    meaning: str
    delay_ms: int | None = None
    """For not_sent: the pause before a retry; None: the lane's own back-off."""
    account: bool = False
    """The code is about the account, not the message: its breaker opens at once. With a `limit` the breaker
    stays closed, and another account may send the message at once."""
    limit: Limit | None = None
    """For not_sent: the limit that was met, if the code only paces."""
    source: RowSource | None = None
    unproved: str = ""
    """The reason why no document proves the row; empty where one does."""


def documented(source: RowSource, *rows: ErrorRow) -> tuple[ErrorRow, ...]:
    """Returns the rows with the document that has their codes."""
    return tuple(row._replace(source=source) for row in rows)


def unproved(reason: str, *rows: ErrorRow) -> tuple[ErrorRow, ...]:
    """Returns the rows with the reason why no document proves them."""
    return tuple(row._replace(unproved=reason) for row in rows)


def rejected(code: str, meaning: str) -> ErrorRow:
    """Returns the row of a code that refuses the message for good."""
    return ErrorRow(code, "rejected", meaning)


def unknown(code: str, meaning: str) -> ErrorRow:
    """Returns the row of a code that may stand for a sent message."""
    return ErrorRow(code, "unknown", meaning)


def not_sent(code: str, meaning: str, delay_ms: int | None = None) -> ErrorRow:
    """Returns the row of a code that proves that nothing was sent, and passes."""
    return ErrorRow(code, "not_sent", meaning, delay_ms)


def account_fault(code: str, meaning: str, delay_ms: int | None = None) -> ErrorRow:
    """Returns the row of a code about the account, whatever the message."""
    return ErrorRow(code, "not_sent", meaning, delay_ms, account=True)


def paced(
    code: str, limit: Limit, meaning: str, delay_ms: int | None = None, *, account: bool = False
) -> ErrorRow:
    """Returns the row of a code that only paces."""
    return ErrorRow(code, "not_sent", meaning, delay_ms, account, limit)


def used_up(code: str, meaning: str, delay_ms: int) -> ErrorRow:
    """Returns the row of a share of the account that is used up: another account may send at once."""
    return paced(code, Limit.ACCOUNT, meaning, delay_ms, account=True)


def shut_out(code: str, meaning: str, delay_ms: int) -> ErrorRow:
    """Returns the row of a code that refuses the account's login, whatever the message: its id, secret or
    signature, our address, or an application that is switched off."""
    return ErrorRow(code, "not_sent", meaning, delay_ms, account=True, limit=Limit.LOGIN)


class ErrorTable:
    """Looks codes up; the most exact row wins."""

    def __init__(self, *groups: Iterable[ErrorRow]) -> None:
        self.rows = tuple(chain.from_iterable(groups))
        self._exact = {row.code: row for row in self.rows if not row.code.endswith("*")}
        prefixes = (row for row in self.rows if row.code.endswith("*"))
        self._prefixes = sorted(prefixes, key=lambda row: -len(row.code))
        if len({row.code for row in self.rows}) != len(self.rows):
            raise ValueError("a code occurs twice in an error table")

    def __iter__(self) -> Iterator[ErrorRow]:
        return iter(self.rows)

    def row(self, code: str) -> ErrorRow | None:
        """Returns the row of a code; None if it is not documented."""
        if code in self._exact:
            return self._exact[code]
        return next((row for row in self._prefixes if code.startswith(row.code[:-1])), None)

    def outcome(
        self, code: str, detail: str = "", retry_after_ms: int | None = None, *, status: int = 0
    ) -> AnyOutcome:
        """Returns the outcome of the code; the provider's own delay goes before the table's.

        `status` is the answer's, where the provider answers errors by HTTP status. It decides about a code
        without a row."""
        row = self.row(code)
        if row is None:
            detail = detail or "a code that the provider does not document"
            return (
                _account_refused(status, code, detail, retry_after_ms)
                or refused_by_status(status, code, detail, retry_after_ms)
                or Unknown(code, detail)
            )
        detail = detail or row.meaning
        if row.kind == "rejected":
            return Rejected(code, detail, row.account)
        if row.kind == "not_sent":
            delay_ms = row.delay_ms if retry_after_ms is None else retry_after_ms
            return NotSent(code, detail, delay_ms, row.account, row.limit)
        return Unknown(code, detail)


def _account_refused(
    status: int, code: str, detail: str, retry_after_ms: int | None
) -> NotSent | None:
    """Returns the outcome of a status that refuses the account; None for any other. Only 401 is surely
    about the login. So the others spend attempts: a message that alone causes one cannot hold the account
    for ever."""
    wait_ms = HOUR if retry_after_ms is None else retry_after_ms
    if status == _UNAUTHENTICATED:
        return NotSent(code, detail, wait_ms, account=True, limit=Limit.LOGIN)
    if status in _OF_ACCOUNT:
        return NotSent(code, detail, wait_ms, account=True)
    return None


def refused_by_status(
    status: int, code: str, detail: str, retry_after_ms: int | None
) -> NotSent | Rejected | None:
    """Returns the outcome of a status that refuses for sure; None for any other, such as 2xx, 409, 5xx."""
    if status == _TOO_MANY:
        return NotSent(code, detail, retry_after_ms, limit=Limit.ACCOUNT)
    if status in _LATER:
        return NotSent(code, detail, retry_after_ms)
    if 400 <= status < 500 and status != _CONFLICT:
        return Rejected(code, detail)
    return None
