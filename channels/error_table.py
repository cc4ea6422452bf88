"""One readable table per adapter: every documented error code and what it means for a delivery.

Anything that is not in the table is Unknown: the request was written, and nobody said what became
of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

from message.outcomes import AnyOutcome, Limit, NotSent, Rejected, Unknown

Kind = Literal["rejected", "not_sent", "unknown"]
_SECOND: Final = 1_000
MINUTE: Final = 60 * _SECOND
HOUR: Final = 60 * MINUTE


class Row(NamedTuple):
    """One code of the provider."""

    code: str
    """Exact, or a prefix when it ends in `*`."""
    kind: Kind
    meaning: str
    delay_ms: int | None = None
    """For not_sent: how long to leave it; None: the lane's own back-off."""
    account: bool = False
    """It is about the account, not the message: its breaker opens at once. With a `limit` the breaker stays
    shut, and another account may send the message at once."""
    limit: Limit | None = None
    """For not_sent: the limit that was met, where the code only paces."""


def paced(
    code: str, limit: Limit, meaning: str, delay_ms: int | None = None, *, account: bool = False
) -> Row:
    """The row of a code that only paces."""
    return Row(code, "not_sent", meaning, delay_ms, account, limit)


class ErrorTable:
    """Looks codes up; the most exact row wins."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(rows)
        self._exact = {row.code: row for row in self.rows if not row.code.endswith("*")}
        prefixes = (row for row in self.rows if row.code.endswith("*"))
        self._prefixes = sorted(prefixes, key=lambda row: -len(row.code))
        if len({row.code for row in self.rows}) != len(self.rows):
            raise ValueError("a code stands twice in an error table")

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def row(self, code: str) -> Row | None:
        """The row of a code; None for one that is not documented."""
        if code in self._exact:
            return self._exact[code]
        return next((row for row in self._prefixes if code.startswith(row.code[:-1])), None)

    def outcome(self, code: str, detail: str = "", retry_after_ms: int | None = None) -> AnyOutcome:
        """What the code means; the provider's own wish for a delay goes before the table's."""
        row = self.row(code)
        if row is None:
            return Unknown(code, detail or "a code that the provider does not document")
        detail = detail or row.meaning
        if row.kind == "rejected":
            return Rejected(code, detail, row.account)
        if row.kind == "not_sent":
            delay_ms = row.delay_ms if retry_after_ms is None else retry_after_ms
            return NotSent(code, detail, delay_ms, row.account, row.limit)
        return Unknown(code, detail)
