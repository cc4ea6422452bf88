"""A provider's list, as proof for an attempt in doubt: one rule for every adapter that asks a list.

    sent        a row that is provably this attempt's
    not sent    a whole list without it, which would have shown it: every page answered, as many rows as the
                list itself counts, none of them that might be this one, asked after the provider's lag
    ask later   everything else: a page refused or unreadable, rows missing from their count or met twice,
                a row whose marks are redacted, a clock minutes away, a call within the lag or out of reach

The lag counts from the last call of the attempt, the reach from its first. An adapter gives `Listing` the
rows it read, and returns its verdict. No other code under channels/ may conclude "not sent" from a list
(tests/channels/judging/test_listing.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from email.utils import parsedate_to_datetime
from typing import Final, TypeGuard

import httpx

from channels.channel import Answer, Attempt, Failure, Resolution, ResolveResult

SKEW_MS: Final = 10 * 60_000
"""A row dated up to this long before the first call may be the attempt's: clocks differ."""
_CLOCK_MS: Final = 5 * 60_000
"""An answer whose Date differs by more from the ledger's clock is not believed."""
_DAY_MS: Final = 86_400_000
_EDGE_MS: Final = 3_600_000
"""Margin before the edge of a list's reach."""
_MS: Final = 1_000


class Listing:
    """One attempt's evidence, gathered by one dialogue in one thread."""

    def __init__(self, attempt: Attempt, *, lag_s: float, reach_days: int | None = None) -> None:
        """`lag_s`: how long after a call the list may not show it yet. `reach_days`: how far back it goes;
        None: without end."""
        self._attempt = attempt
        self._lag_s = lag_s
        self._open = 0  # lists begun and not read to their end
        self._read = 0
        self._sent: ResolveResult | None = None
        self._later = ""
        self._final = False
        if reach_days is not None:
            age_ms = attempt.now - attempt.called_at
            if age_ms >= reach_days * _DAY_MS - _EDGE_MS:
                self.later(f"the query reaches back {reach_days} days")

    @property
    def since(self) -> int:
        """Epoch milliseconds; earlier rows are not the attempt's."""
        return self._attempt.called_at - SKEW_MS

    @property
    def decided(self) -> bool:
        """Whether further questions would change nothing."""
        return self._sent is not None or bool(self._later)

    def later(self, why: str, *, final: bool = False) -> None:
        """Notes why "not sent" cannot be concluded; the first reason is kept. `final`: it never can be."""
        if not self._later:
            self._later, self._final = why, final

    def sent(self, provider_id: str = "", detail: str = "") -> None:
        """Notes a row that is provably this attempt's."""
        self._sent = self._sent or ResolveResult(Resolution.SENT, provider_id, detail)

    def answered(self, answer: Answer) -> TypeGuard[httpx.Response]:
        """Returns whether the answer is a success whose clock agrees with ours; notes the fault if not."""
        if isinstance(answer, Failure):
            self.later(answer.code)
        elif not answer.is_success:
            self.later(f"http_{answer.status_code}")
        elif self._is_off(answer):
            self.later("the provider's clock and the ledger's are minutes apart")
        else:
            return True
        return False

    def pages(self) -> Pages:
        """Starts one list; each list that was started must be read to its end."""
        self._open += 1
        return Pages(self)

    def ended(self) -> None:
        """Notes that one list was read to its end."""
        self._open -= 1
        self._read += 1

    def verdict(self) -> ResolveResult:
        """Returns the conclusion from all lists."""
        if self._sent is not None:
            return self._sent
        if self._later:
            return ResolveResult(Resolution.ASK_LATER, detail=self._later, final=self._final)
        if self._open or not self._read:
            return ResolveResult(Resolution.ASK_LATER, detail="the list was not read to its end")
        return not_sent(self._attempt, self._lag_s, "not listed")

    def _is_off(self, answer: httpx.Response) -> bool:
        try:
            dated = parsedate_to_datetime(answer.headers.get("date", "")).timestamp() * _MS
        except (ValueError, TypeError, OverflowError, IndexError):
            return False
        return abs(dated - self._attempt.now) > _CLOCK_MS


class Pages:
    """One list, page by page."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._seen: set[Hashable] = set()
        self._rows = 0
        self._total: int | None = None

    def page(self, rows: Iterable[Hashable], total: int | None = None) -> None:
        """Takes one page's rows, each by its identity, and the list's own count if it has one.

        A row of an earlier page, or a changed count, shows that the list moved while it was read."""
        found = list(rows)
        if not self._seen.isdisjoint(found):
            self._listing.later("the list changed while it was read")
        self._seen.update(found)
        self._rows += len(found)
        if self._total is not None and total != self._total:
            self._listing.later("the list's count changed while it was read")
        self._total = total

    @property
    def missing(self) -> int:
        """Rows that the list counts and has not shown yet; 0 without a count."""
        return 0 if self._total is None else max(self._total - self._rows, 0)

    def end(self) -> None:
        """Ends the list: no further page follows."""
        if self._total is not None and self._total != self._rows:
            self._listing.later(f"{self._rows} of the {self._total} rows it counts are listed")
        self._listing.ended()


def not_sent(attempt: Attempt, lag_s: float, why: str) -> ResolveResult:
    """Returns "not sent", or "ask later" within the lag after the last call; `why` is the finding."""
    if attempt.now - attempt.last_call >= lag_s * _MS:
        return ResolveResult(Resolution.NOT_SENT)
    return ResolveResult(Resolution.ASK_LATER, detail=f"{why}, and less than {lag_s:g} s old")
