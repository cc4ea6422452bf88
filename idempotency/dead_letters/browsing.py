"""Dead letters for a person: pages, single letters, and decisions about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, TextClause, text

from idempotency.dead_letters.rows import (
    ANYWHERE,
    NEWEST,
    IndexedLetter,
    IndexLag,
    LetterFilter,
    LetterKey,
    LetterState,
)
from idempotency.transactions import LedgerPart

_COLUMNS: Final = (
    "origin, partition, place, at, reason, detail, lane, message_id, size, form, state, ended_at,"
    " ended_by, why"
)
_PAGE: Final = "SELECT {} FROM dead_letters WHERE {} ORDER BY {} LIMIT :limit"
_NEWEST_FIRST: Final = "at DESC, origin DESC"
_OLDEST_FIRST: Final = "at, origin"
_ONE: Final = text(f"SELECT {_COLUMNS} FROM dead_letters WHERE origin = :origin")  # noqa: S608 - ours
_REASONS: Final = text("""
WITH RECURSIVE steps (reason) AS (
    SELECT min(reason) FROM dead_letters
    UNION ALL
    SELECT (SELECT min(l.reason) FROM dead_letters AS l WHERE l.reason > steps.reason)
      FROM steps WHERE steps.reason IS NOT NULL)
SELECT reason FROM steps WHERE reason IS NOT NULL LIMIT 100""")
_LAG: Final = text("""
SELECT coalesce(sum(CASE WHEN end_offset > next_offset THEN end_offset - next_offset ELSE 0 END), 0),
       coalesce(min(seen_at), 0)
  FROM dead_letter_places""")
_END: Final = text("""
UPDATE dead_letters SET state = :state, ended_at = :now, ended_by = :by, why = :why
 WHERE origin = :origin AND (state = 'OPEN' OR (state = :state AND ended_by = ''))""")


class LetterBrowser(LedgerPart):
    """Reads raise LedgerError. `end` runs in the caller's transaction: it and its audit are one."""

    def page(
        self, wanted: LetterFilter, limit: int, after: LetterKey | None = None
    ) -> list[IndexedLetter]:
        """Returns letters, the newest first, those behind `after`."""
        return self._read(wanted, limit, _NEWEST_FIRST, after)

    def oldest(self, wanted: LetterFilter, limit: int) -> list[IndexedLetter]:
        """Returns letters in the order in which they are replayed."""
        return self._read(wanted, limit, _OLDEST_FIRST, None)

    def one(self, origin: str) -> IndexedLetter | None:
        """Returns the letter of an origin; None without one."""
        with self._reading() as connection:
            row = connection.execute(_ONE, {"origin": origin}).first()
        return IndexedLetter(*row) if row else None

    def reasons(self) -> list[str]:
        """Returns the reasons that occur, at most 100: one step in the index for each."""
        with self._reading() as connection:
            return [str(row[0]) for row in connection.execute(_REASONS)]

    def lag(self) -> IndexLag:
        """Returns how far the index is behind."""
        with self._reading() as connection:
            behind, seen_at = connection.execute(_LAG).one()
        return IndexLag(int(behind), int(seen_at))

    def end(
        self, connection: Connection, origins: Sequence[str], state: LetterState, by: str, why: str
    ) -> list[str]:
        """Records that a person ended these open letters. Returns the origins that were open."""
        now, ended = self.clock(connection), []
        for origin in sorted(origins):
            values = {"origin": origin, "state": str(state), "now": now, "by": by, "why": why}
            if connection.execute(_END, values).rowcount:
                ended.append(origin)
        return ended

    def _read(
        self, wanted: LetterFilter, limit: int, order: str, after: LetterKey | None
    ) -> list[IndexedLetter]:
        if wanted.lanes is not ANYWHERE and not wanted.lanes:
            return []
        statement, values = _selection(wanted, order, after)
        with self._reading() as connection:
            rows = connection.execute(statement, values | {"limit": limit}).all()
        return [IndexedLetter(*row) for row in rows]


def _selection(
    wanted: LetterFilter, order: str, after: LetterKey | None
) -> tuple[TextClause, dict[str, Any]]:
    conditions, values = ["at >= :since"], {"since": wanted.since}
    named: dict[str, Any] = dict(values)
    for name in ("state", "reason"):
        if value := getattr(wanted, name):
            conditions.append(f"{name} = :{name}")
            named[name] = value
    if wanted.until < NEWEST:
        conditions.append("at <= :until")
        named["until"] = wanted.until
    if wanted.lanes is not ANYWHERE:
        lanes = {f"lane{number}": lane for number, lane in enumerate(wanted.lanes)}
        conditions.append(f"lane IN ({', '.join(f':{name}' for name in lanes)})")
        named |= lanes
    if after is not None:
        conditions.append("(at, origin) < (:after_at, :after_origin)")
        named |= {"after_at": after.at, "after_origin": after.origin}
    return text(_PAGE.format(_COLUMNS, " AND ".join(conditions), order)), named
