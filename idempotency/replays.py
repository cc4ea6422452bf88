"""Which dead letters were sent again: each once, unless somebody insists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import text

from backends.sql import Database
from idempotency.edge import errors
from idempotency.workers import Clock

_BEGIN = text("""
INSERT INTO dead_replays (origin, target, begun_at, sent_at) VALUES (:origin, :target, :now, NULL)
ON CONFLICT (origin) DO UPDATE
   SET target = excluded.target, begun_at = excluded.begun_at, sent_at = NULL
 WHERE :again""")
_SENT = text("UPDATE dead_replays SET sent_at = :now WHERE origin = :origin")
_TAKE_BACK = text("DELETE FROM dead_replays WHERE origin = :origin AND sent_at IS NULL")
_KNOWN = text("SELECT origin, target, begun_at, sent_at FROM dead_replays WHERE origin = :origin")


class Replay(NamedTuple):
    """One that was begun; times are epoch milliseconds by the database's clock."""

    origin: str
    target: str
    begun_at: int
    sent_at: int | None
    """None: the broker's word never came, so it may stand there or not."""


class Replays:
    """Every method is one transaction and raises LedgerError alone."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def begin(self, origin: str, target: str, *, again: bool) -> bool:
        """Put on record, before it is produced, that it will be; False where it is on record already."""
        with errors(), self._database.begin() as connection:
            values = {"origin": origin, "target": target, "again": again}
            done = connection.execute(_BEGIN, values | {"now": self._clock(connection)})
        return bool(done.rowcount)

    def end(self, origin: str, *, sent: bool) -> None:
        """The broker has it, or surely has not."""
        with errors(), self._database.begin() as connection:
            now = self._clock(connection)
            if sent:
                connection.execute(_SENT, {"origin": origin, "now": now})
            else:
                connection.execute(_TAKE_BACK, {"origin": origin})

    def known(self, origins: Sequence[str]) -> dict[str, Replay]:
        """Those of them that were begun."""
        with errors(), self._database.begin() as connection:
            rows = [connection.execute(_KNOWN, {"origin": one}).one_or_none() for one in origins]
        return {row.origin: Replay(*row) for row in rows if row is not None}
