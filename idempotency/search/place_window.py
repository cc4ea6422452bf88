"""The time in which a record was read, found by the offsets of its neighbours.

Within a partition, offsets grow with the time of the claim, but for records read late or anew. So a few
rows tell the minute in which an offset was read. It is a guess: a search that finds nothing there reads the
rest, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from idempotency.search.language import DAY_MS
from idempotency.search.statements import SearchSpan, neighbour
from message.delivery import Origin

MINUTE_MS: Final = 60_000
_SLACK_MS: Final = MINUTE_MS
"""Added on either side: the lanes of a worker claim side by side."""
_HALF_MS: Final = MINUTE_MS // 2
"""Distance from a guess at which a neighbour is looked for."""
_FIRST_MS: Final = 64_000
"""Length of the first piece of time in which a neighbour is looked for."""
_GROWTH: Final = 8
_LONGEST_MS: Final = 3_600_000
"""Length of the longest one: a statement over more could take too long."""
MOST_PROBES: Final = 60


class Neighbour(NamedTuple):
    """A row of the same partition."""

    at: int
    """Time of its claim, epoch milliseconds."""
    offset: int


Probe = Callable[[int, int], "Neighbour | None"]
"""Returns any row of the partition that was claimed since then and before then; None without one."""


def window_of(offset: int, since: int, until: int, probe: Probe) -> tuple[int, int]:
    """Returns a begin and an end, epoch milliseconds, between which the record with that offset was most
    likely claimed. Calls `probe` some MOST_PROBES times at most. Where rows are far apart, the time between
    two neighbours is returned: it holds few rows."""
    bracket, asked = _Bracket(since, until), 0
    bisects = False
    while bracket.high - bracket.low > MINUTE_MS and asked < MOST_PROBES:
        before = bracket
        at = bracket.middle if bisects else bracket.guess(offset)
        found, more = _first(at, bracket.high, probe)
        asked += more
        bracket = bracket.narrowed(at, found, offset)
        if bracket == before and bisects:
            break
        bisects = 2 * (bracket.high - bracket.low) > before.high - before.low
    return max(since, bracket.low - _SLACK_MS), min(until, bracket.high + _SLACK_MS)


class _Bracket(NamedTuple):
    """Times between which the record was claimed, and the offsets there as far as they are known."""

    low: int
    high: int
    low_offset: int | None = None
    high_offset: int | None = None

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    def guess(self, offset: int) -> int:
        """Returns a time near the record's, as if offsets grew evenly: on the side of it that leaves the
        longer end out. The middle, while an offset is missing."""
        if self.low_offset is None or self.high_offset is None:
            return self.middle
        share = (offset - self.low_offset) / max(self.high_offset - self.low_offset, 1)
        at = self.low + int(min(max(share, 0.0), 1.0) * (self.high - self.low))
        at += _HALF_MS if at < self.middle else -_HALF_MS
        return min(max(at, self.low + 1), self.high - 1)

    def narrowed(self, asked: int, found: Neighbour | None, offset: int) -> _Bracket:
        """Returns the bracket after the first row from `asked` on is known."""
        if found is None:
            return self._replace(high=asked)
        if found.offset < offset:
            return self._replace(low=max(self.low, found.at), low_offset=found.offset)
        high = min(self.high, found.at + 1)
        return self._replace(high=high, high_offset=found.offset)


def _first(since: int, until: int, probe: Probe) -> tuple[Neighbour | None, int]:
    """Looks for a neighbour from there on, in growing pieces of time. Returns it, and the number of
    questions."""
    length, asked = _FIRST_MS, 0
    while since < until:
        end = min(until, since + length)
        asked += 1
        if (found := probe(since, end)) is not None:
            return found, asked
        since, length = end, min(_LONGEST_MS, length * _GROWTH)
    return None, asked


class PlaceProbe:
    """Asks one database for neighbours of one record, as long as there is time. For one thread."""

    def __init__(
        self, connection: Connection, place: Origin, partitioned: bool, spent: Callable[[], bool]
    ) -> None:
        """`partitioned`: the table has a partition a day. `spent` returns True once the time is up."""
        self._connection = connection
        self._place = place
        self._partitioned = partitioned
        self._spent = spent

    def window(self, since: int, until: int) -> tuple[int, int] | None:
        """Returns the window; None if the time was up before it was found."""
        try:
            return window_of(self._place.offset, since, until, self._neighbour)
        except _TimeUp:
            return None

    def _neighbour(self, since: int, until: int) -> Neighbour | None:
        # One statement a day: its partition stands in the text.
        while since < until:
            if self._spent():
                raise _TimeUp
            day = since // DAY_MS
            end = min(until, (day + 1) * DAY_MS) if self._partitioned else until
            span = SearchSpan(since, end, (day, day) if self._partitioned else None)
            asked = {"topic": self._place.topic, "partition": self._place.partition}
            asked |= {"since": since, "until": end}
            row = self._connection.execute(text(neighbour(span)), asked).first()
            if row is not None:
                return Neighbour(*row)
            since = end
        return None


class _TimeUp(Exception):
    """The search for the window took too long."""
