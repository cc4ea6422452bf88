"""The record of dead letters that were sent again: each once, unless somebody insists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import text

from idempotency.error_mapping import errors
from idempotency.transactions import LedgerPart

_BEGIN = text("""
INSERT INTO dead_replays (origin, target, begun_at, sent_at) VALUES (:origin, :target, :now, NULL)
ON CONFLICT (origin) DO UPDATE
   SET target = excluded.target, begun_at = excluded.begun_at, sent_at = NULL
 WHERE :again""")
_SENT = text("UPDATE dead_replays SET sent_at = :now WHERE origin = :origin")
_INDEXED = text("""
UPDATE dead_letters SET state = 'REPLAYED', ended_at = :now, ended_by = '', why = NULL
 WHERE origin = :origin AND state <> 'REPLAYED'""")
_TAKE_BACK = text("DELETE FROM dead_replays WHERE origin = :origin AND sent_at IS NULL")
_KNOWN: Final = "SELECT origin, target, begun_at, sent_at FROM dead_replays WHERE origin IN ({})"


class Replay(NamedTuple):
    """One replay that was begun; times are epoch milliseconds by the database's clock."""

    origin: str
    target: str
    begun_at: int
    sent_at: int | None
    """None: the broker never acknowledged it, so the topic may hold it or not."""


class Replays(LedgerPart):
    """Every method is one transaction and raises LedgerError alone."""

    def begin(self, batch: Sequence[tuple[str, str]], *, again: bool) -> list[bool]:
        """Puts these (origin, target) on record before they are produced. Returns False where one was on
        record already, unless `again`."""
        begun: dict[str, bool] = {}
        with self._begin() as (connection, now):
            for origin, target in sorted(batch):  # concurrent calls then lock in one order
                values = {"origin": origin, "target": target, "again": again, "now": now}
                begun[origin] = bool(connection.execute(_BEGIN, values).rowcount)
        return [begun[origin] for origin, _ in batch]

    def end(self, sent: Sequence[str], not_sent: Sequence[str]) -> None:
        """Records that the broker has `sent` and surely lacks `not_sent`; all others stay begun."""
        with self._begin() as (connection, now):
            for origin in sorted(sent):
                connection.execute(_SENT, {"origin": origin, "now": now})
                connection.execute(_INDEXED, {"origin": origin, "now": now})
            for origin in sorted(not_sent):
                connection.execute(_TAKE_BACK, {"origin": origin})

    def known(self, origins: Sequence[str]) -> dict[str, Replay]:
        """Returns the replays that were begun, by origin."""
        named = {f"o{number}": origin for number, origin in enumerate(origins)}
        if not named:
            return {}
        statement = text(_KNOWN.format(", ".join(f":{name}" for name in named)))
        with errors(), self._database.begin() as connection:
            rows = connection.execute(statement, named).all()
        return {row.origin: Replay(*row) for row in rows}
