"""Enters dead letters as they come; letters and the place up to which the topic was read go together.

A letter is entered under its origin: a worker that died may have written two of them. A second letter of
one origin with another value is another record, of a topic that was made anew: it is open again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, text

from idempotency.dead_letters.rows import LetterEntry, TopicPlace
from idempotency.transactions import LedgerPart

_FORGET: Final = 1_000
"""Rows of one transaction that leave with the topic's retention."""
_PLACES: Final = text(
    "SELECT partition, topic_id, next_offset, end_offset, seen_at FROM dead_letter_places"
)
_ENTER: Final = text("""
INSERT INTO dead_letters (origin, partition, place, at, reason, detail, lane, message_id, size, form,
                          digest, state, ended_at, ended_by, why)
SELECT :origin, :partition, :place, :at, :reason, :detail, :lane, :message_id, :size, :form, :digest,
       CASE WHEN r.sent_at IS NULL THEN 'OPEN' ELSE 'REPLAYED' END, r.sent_at,
       CASE WHEN r.sent_at IS NULL THEN NULL ELSE '' END, NULL
  FROM (SELECT 1 AS one) AS letter LEFT JOIN dead_replays AS r ON r.origin = :origin
 WHERE TRUE
ON CONFLICT (origin) DO UPDATE
   SET partition = excluded.partition, place = excluded.place, at = excluded.at,
       reason = excluded.reason, detail = excluded.detail, lane = excluded.lane,
       message_id = excluded.message_id, size = excluded.size, form = excluded.form,
       digest = excluded.digest,
       state = CASE WHEN dead_letters.digest = excluded.digest THEN dead_letters.state ELSE 'OPEN' END,
       ended_at = CASE WHEN dead_letters.digest = excluded.digest THEN dead_letters.ended_at END,
       ended_by = CASE WHEN dead_letters.digest = excluded.digest THEN dead_letters.ended_by END,
       why = CASE WHEN dead_letters.digest = excluded.digest THEN dead_letters.why END""")
_MOVE: Final = text("""
UPDATE dead_letter_places SET next_offset = :next
 WHERE partition = :partition AND topic_id = :topic_id AND next_offset = :before""")
_SEEN: Final = text("""
INSERT INTO dead_letter_places (partition, topic_id, next_offset, end_offset, seen_at)
VALUES (:partition, :topic_id, :low, :end, :now)
ON CONFLICT (partition) DO UPDATE
   SET end_offset = excluded.end_offset, seen_at = excluded.seen_at,
       next_offset = CASE WHEN dead_letter_places.next_offset < excluded.next_offset
                          THEN excluded.next_offset
                          WHEN dead_letter_places.next_offset > excluded.end_offset
                          THEN excluded.end_offset
                          ELSE dead_letter_places.next_offset END""")
_ALL: Final = text("""
DELETE FROM dead_letters WHERE origin IN (SELECT origin FROM dead_letters LIMIT :limit)""")
_NO_PLACES: Final = text("DELETE FROM dead_letter_places")
_GONE: Final = text("""
DELETE FROM dead_letters WHERE origin IN (
    SELECT origin FROM dead_letters WHERE partition = :partition AND place < :low
     ORDER BY place LIMIT :limit)""")


class PlaceMoved(Exception):
    """Another recovery has read on: this one's positions are old."""


class LetterIndex(LedgerPart):
    """Every method raises LedgerError; `enter` raises PlaceMoved, too."""

    def places(self) -> dict[int, TopicPlace]:
        """Returns how far each partition is read."""
        with self._transaction() as connection:
            rows = connection.execute(_PLACES).all()
        return {row.partition: TopicPlace(*row) for row in rows}

    def look(self, topic_id: str, bounds: Mapping[int, tuple[int, int]]) -> dict[int, TopicPlace]:
        """Records the first offset and the end of each partition. Forgets everything of an earlier topic of
        the same name: its letters are gone. Returns how far each partition is read."""
        if _is_other(self.places(), topic_id, bounds):
            self._forget_all()
        with self._begin() as (connection, now):
            for partition, (low, end) in sorted(bounds.items()):
                values = {"partition": partition, "topic_id": topic_id}
                connection.execute(_SEEN, values | {"low": low, "end": end, "now": now})
        return self.places()

    def enter(
        self,
        topic_id: str,
        letters: Sequence[LetterEntry],
        moves: Mapping[int, tuple[int, int]],
    ) -> None:
        """Enters letters, and moves each partition from the offset that was read first to the next one."""
        with self._transaction() as connection:
            for partition, (before, after) in sorted(moves.items()):
                values = {
                    "partition": partition,
                    "topic_id": topic_id,
                    "before": before,
                    "next": after,
                }
                if not connection.execute(_MOVE, values).rowcount:
                    raise PlaceMoved(f"partition {partition} is no longer at {before}")
            _enter(connection, letters)

    def forget(self, bounds: Mapping[int, tuple[int, int]]) -> int:
        """Removes rows of letters that Kafka no longer keeps, a bounded number. Returns it."""
        gone = 0
        for partition, (low, _end) in sorted(bounds.items()):
            with self._transaction() as connection:
                values = {"partition": partition, "low": low, "limit": _FORGET}
                gone += connection.execute(_GONE, values).rowcount
        return gone

    def _forget_all(self) -> None:
        """Removes all rows, a bounded number in each transaction, and the places last."""
        gone = _FORGET
        while gone == _FORGET:
            with self._transaction() as connection:
                gone = connection.execute(_ALL, {"limit": _FORGET}).rowcount
        with self._transaction() as connection:
            connection.execute(_NO_PLACES)


def _enter(connection: Connection, letters: Sequence[LetterEntry]) -> None:
    last = {letter.origin: letter for letter in letters}
    if last:
        rows = [last[origin]._asdict() for origin in sorted(last)]  # one order of locks
        connection.execute(_ENTER, rows)


def _is_other(
    known: Mapping[int, TopicPlace], topic_id: str, bounds: Mapping[int, tuple[int, int]]
) -> bool:
    """Whether this is not the topic that was read. Without ids, a topic that ends before what was read is
    another one; with them, a broker lost its end."""
    return any(
        place.topic_id != topic_id
        or (not topic_id and p in bounds and bounds[p][1] < place.next_offset)
        for p, place in known.items()
    )
