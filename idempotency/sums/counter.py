"""The sums of one process, in memory, until they are written.

The caller appends one tuple of times a delivery, and nothing else: they are counted a thousand at a time.
A minute is kept until it is over and written. Sums only rise, so that a writer may replace what it wrote.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import sub
from typing import Final, NamedTuple

from idempotency.sums.sketch import LatencySketch
from message.states import State

MINUTE_MS: Final = 60_000
MOST_MINUTES: Final = 60
"""Minutes that are kept while the database is away; older ones are lost."""
STAGES: Final = ("total", "intake", "queue", "call")
"""Created to sent; received to claimed; claimed to started; started to answered."""
_FULL: Final = 1_000
_SENT: Final = State.SENT.value
FENCED: Final = ""
"""Outcome of a delivery that another process has now. It is not counted."""

Series = tuple[str, str, str]
"""Lane, account, outcome."""
CallMoments = tuple[int, int, int, int, int]
"""Created, received, claimed, started, answered: epoch milliseconds, 0 where there is none. Without an
answer there are no times."""


class SumRow(NamedTuple):
    """Deliveries of one minute, or of a longer span that begins there. Sketches are encoded."""

    minute: int
    lane: str
    account: str
    outcome: str
    deliveries: int
    total: str = ""
    intake: str = ""
    queue: str = ""
    call: str = ""


class MinuteSums:
    """Any thread may call `add`; one thread calls `unwritten` and `not_written`."""

    def __init__(self) -> None:
        self.lost = 0
        """Deliveries of minutes that were given up; `unwritten` writes it."""
        self._lock = threading.Lock()
        self._minutes: dict[int, dict[Series, _SeriesSum]] = {}  # under the lock
        self._newest = 0  # under the lock; it never goes back, since older minutes may be gone

    def add(
        self, now_ms: int, ended: Sequence[Series], moments: Iterable[CallMoments] = ()
    ) -> None:
        """Counts ended deliveries; `moments` are theirs, in the same order, or empty."""
        if not ended:
            return
        with self._lock:
            minute = self._minute(now_ms)
            for series, number in Counter(ended).items():
                if series[2] == FENCED:
                    continue
                _counted(minute, series, number)
            _note(minute, ended, moments)

    def add_one(self, now_ms: int, series: Series, moments: CallMoments) -> None:
        """Counts one delivery that its own process ended. A lane without a ledger ends each by itself."""
        with self._lock:
            found = _counted(self._minute(now_ms), series, 1)
            if moments[4]:
                found.to_append().append(moments)

    def unwritten(self) -> list[SumRow]:
        """Returns the sums that changed since the last call. Forgets minutes that are over and written."""
        with self._lock:
            self._forget()
            return [
                found.row(minute, series)
                for minute, of_minute in self._minutes.items()
                for series, found in of_minute.items()
                if found.fresh
            ]

    def not_written(self, rows: Iterable[SumRow]) -> None:
        """Lets the next `unwritten` return these again."""
        with self._lock:
            for row in rows:
                found = self._minutes.get(row.minute, {}).get(row[1:4])
                if found is not None:
                    found.fresh = True

    def _minute(self, now_ms: int) -> dict[Series, _SeriesSum]:
        self._newest = max(self._newest, now_ms // MINUTE_MS * MINUTE_MS)
        return self._minutes.setdefault(self._newest, {})

    def _forget(self) -> None:
        for minute in sorted(self._minutes)[:-1]:
            of_minute = self._minutes[minute].values()
            unwritten = sum(found.deliveries for found in of_minute if found.fresh)
            if unwritten and minute > self._newest - MOST_MINUTES * MINUTE_MS:
                continue
            self.lost += unwritten
            del self._minutes[minute]


def _counted(minute: dict[Series, _SeriesSum], series: Series, number: int) -> _SeriesSum:
    """Adds deliveries to the sum of a series, and returns it."""
    found = minute.get(series)
    if found is None:
        found = minute[series] = _SeriesSum(series[2] == _SENT)
    found.deliveries += number
    found.fresh = True
    return found


def _note(
    minute: dict[Series, _SeriesSum], ended: Sequence[Series], moments: Iterable[CallMoments]
) -> None:
    known: Series | None = None
    pending: list[CallMoments] = []
    for series, times in zip(ended, moments, strict=False):
        if series != known:
            known = series
            found = minute.get(series)  # a fenced one has none
            pending = found.to_append() if found is not None else []
        if times[4]:
            pending.append(times)


class _SeriesSum:
    """One series in one minute."""

    __slots__ = ("deliveries", "fresh", "pending", "sent", "sketches")

    def __init__(self, sent: bool) -> None:
        self.deliveries = 0
        self.fresh = True
        """Whether it changed since it was written."""
        self.pending: list[CallMoments] = []
        """Not counted yet."""
        self.sent = sent
        self.sketches = tuple(LatencySketch() for _ in STAGES)

    def to_append(self) -> list[CallMoments]:
        """Returns the list for further times; it is asked for at least once a batch."""
        if len(self.pending) >= _FULL:
            self._count()
        return self.pending

    def row(self, minute: int, series: Series) -> SumRow:
        self._count()
        self.fresh = False
        return SumRow(minute, *series, self.deliveries, *(one.encoded() for one in self.sketches))

    def _count(self) -> None:
        pending, self.pending = self.pending, []
        if not pending:
            return
        total, intake, queue, call = self.sketches
        created, received, claimed, started, answered = zip(*pending, strict=True)
        if self.sent:
            total.add(_lengths(created, answered))
        intake.add(_lengths(received, claimed))
        queue.add(_lengths(claimed, started))
        call.add(_lengths(started, answered))


def _lengths(begins: Sequence[int], ends: Sequence[int]) -> Iterable[int]:
    """Returns the times between two columns, of deliveries that have the begin; all of it runs in C."""
    if 0 not in begins:
        return map(sub, ends, begins)
    return [end - begin for begin, end in zip(begins, ends, strict=True) if begin]
