"""Lines whose head holds other rows back (idempotency/lines.py), for a person and for a gauge.

A walk goes from key to key by the index, 500 lines a statement, each one short transaction. Rows behind a
head are counted for the few lines that are shown, and up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import text

from idempotency.lines import ASLEEP_AT, PAGE, WALK, head
from idempotency.transactions import LedgerPart
from message.states import State, state_of

MOST_LINES: Final = 10_000
"""Lines of a lane that one walk looks at."""
MOST_BEHIND: Final = 1_000
"""Rows behind a head that are counted."""

# A head that was woken and never called is the head since it became due.
_SINCE: Final = """CASE WHEN h.state = 'RETRY' AND h.attempt = 0 AND h.next_at <= :now
                         THEN h.next_at ELSE h.updated_at END"""
_OF_LINE: Final = """d.lane = :lane AND d.ordering_key = {key} AND d.ordering_key IS NOT NULL
               AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')
             ORDER BY d.created_at, coalesce(d.kafka_offset, -1), d.message_id"""
HELD: Final = f"""{WALK.format(lane=":lane", start=":start")}
SELECT marked.ordering_key, marked.since,
       CASE WHEN marked.since <= :before THEN EXISTS (
           SELECT 1 FROM (
               SELECT d.next_at, d.state FROM deliveries AS d
                WHERE {_OF_LINE.format(key="marked.ordering_key")} LIMIT {MOST_BEHIND + 1}) AS waiting
            WHERE waiting.state = 'RETRY' AND waiting.next_at = {ASLEEP_AT})
       ELSE 1 = 0 END AS holds
  FROM (SELECT line.ordering_key, ({head(_SINCE, ":lane", "line.ordering_key")}) AS since
          FROM line WHERE line.ordering_key IS NOT NULL LIMIT {PAGE}) AS marked"""  # noqa: S608 - ours
HEAD: Final = head(
    "h.delivery_key, h.message_id, h.state, h.reason, h.account, h.attempt, h.owner, h.next_at,"
    f" h.expires_at, {_SINCE} AS since",
    ":lane",
    ":key",
)
BEHIND: Final = f"""
SELECT count(*) FROM (
    SELECT d.message_id FROM deliveries AS d
     WHERE d.message_id <> :head AND {_OF_LINE.format(key=":key")} LIMIT {MOST_BEHIND + 1}) AS line"""  # noqa: S608 - ours


class HeldLine(NamedTuple):
    """One ordering key whose head holds others back. Times are epoch milliseconds."""

    lane: str
    ordering_key: str
    """As it came: it may be personal."""
    delivery_key: str
    """The head's, as are all fields but the last."""
    message_id: str
    state: State
    since: int
    """Start of its state; for a head never called, the time at which it became due."""
    reason: str | None
    account: str | None
    attempt: int
    owner: str
    next_at: int | None
    expires_at: int
    behind: int
    """Open rows of other messages of the key; counted up to 1,001."""


class LinesOfLane(NamedTuple):
    """The result of one walk over a lane."""

    lane: str
    lines: list[HeldLine]
    """The lines held for longest, the oldest first."""
    held: int
    """Number of all held lines."""
    complete: bool
    """Whether the walk came to the lane's end; else more lines may be held."""


class HeldLines(LedgerPart):
    """Nothing here writes. Every method raises LedgerError alone."""

    def lines_waiting(self, lane: str, limit: int) -> LinesOfLane:
        """Returns the lane's held lines, `limit` of them in full."""
        found, complete = self._walk(lane, age_ms=0)
        found.sort()
        shown = (self._line(lane, key) for _, key in found[:limit])
        return LinesOfLane(lane, [line for line in shown if line], len(found), complete)

    def count(self, lane: str, age_ms: int) -> int:
        """Returns how many heads have held others for at least `age_ms`, among the lane's first 10,000."""
        return len(self._walk(lane, age_ms)[0])

    def _walk(self, lane: str, age_ms: int) -> tuple[list[tuple[int, str]], bool]:
        """Returns (since, key) of each held line, and True if these are all."""
        found: list[tuple[int, str]] = []
        looked = 0
        for page in self._pages(lane, age_ms):
            found += [(row.since, row.ordering_key) for row in page if row.holds]
            looked += len(page)
            if looked >= MOST_LINES:
                return found, False
        return found, True

    def _pages(self, lane: str, age_ms: int) -> Iterator[list[Any]]:
        last: str | None = None  # of the page before: the next one begins with it
        while True:
            with self._begin() as (connection, now):
                asked = {"lane": lane, "start": last or "", "now": now, "before": now - age_ms}
                page = list(connection.execute(text(HELD), asked))
            yield [row for row in page if row.ordering_key != last]
            if len(page) < PAGE:
                return
            last = page[-1].ordering_key

    def _line(self, lane: str, key: str) -> HeldLine | None:
        """Returns the line; None if it has ended meanwhile."""
        asked = {"lane": lane, "key": key}
        with self._begin() as (connection, now):
            row = connection.execute(text(HEAD), {**asked, "now": now}).one_or_none()
            if row is None:
                return None
            of_head = {"lane": lane, "key": key, "head": row.message_id}
            behind = connection.execute(text(BEHIND), of_head).scalar_one()
        fields = row._asdict() | {"state": state_of(row.state, row.delivery_key)}
        return HeldLine(lane=lane, ordering_key=key, behind=behind, **fields)
