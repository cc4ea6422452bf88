"""Audits of the trace per lane and hour (docs/spark.md), and double sends, as people read them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, text

from idempotency.transactions import LedgerPart

_REPLACE: Final = text("""
INSERT INTO trace_audits (hour, lane, counts, unexplained, run_id)
VALUES (:hour, :lane, :counts, :unexplained, :run_id)
ON CONFLICT (hour, lane) DO UPDATE
   SET counts = excluded.counts, unexplained = excluded.unexplained, run_id = excluded.run_id""")
_SINCE: Final = text("""
SELECT hour, lane, counts, unexplained, run_id FROM trace_audits
 WHERE hour >= :since ORDER BY hour, lane""")
_BETWEEN: Final = text("""
SELECT hour, lane, counts, unexplained, run_id FROM trace_audits
 WHERE hour >= :since AND hour < :until ORDER BY hour DESC, lane""")
_DOUBLES: Final = """
SELECT delivery_key, lane, at, attempts FROM trace_doubles
 WHERE at >= :since AND at < :until {more} ORDER BY at DESC, delivery_key LIMIT :limit"""
_DOUBLES_OF_ALL: Final = text(_DOUBLES.format(more=""))
_DOUBLES_OF_LANES: Final = text(_DOUBLES.format(more="AND lane IN :lanes")).bindparams(
    bindparam("lanes", expanding=True)
)
_EVER: Final = 2**63 - 1


class Audit(NamedTuple):
    """One lane and hour. `hour` is its start, epoch milliseconds."""

    hour: int
    lane: str
    counts: dict[str, Any]
    """Counts by source, and their explained differences (spark_jobs/audit/balance.py)."""
    unexplained: int
    run_id: int = 0


class StoredDouble(NamedTuple):
    """One delivery that a provider accepted twice."""

    delivery_key: str
    lane: str
    at: int
    attempts: list[dict[str, Any]]


class Audits(LedgerPart):
    """Every method is one transaction and raises LedgerError."""

    def since(self, hour: int) -> list[Audit]:
        """Returns the audits from that hour on, in order."""
        with self._reading() as connection:
            rows = connection.execute(_SINCE, {"since": hour}).all()
        return [_audit(row) for row in rows]

    def between(self, since: int, until: int) -> list[Audit]:
        """Returns the audits of hours from `since` on and before `until`, the newest hour first."""
        with self._reading() as connection:
            rows = connection.execute(_BETWEEN, {"since": since, "until": until}).all()
        return [_audit(row) for row in rows]

    def doubles(
        self,
        since: int,
        limit: int,
        *,
        until: int = _EVER,
        lanes: Collection[str] | None = None,
    ) -> list[StoredDouble]:
        """Returns the newest double sends from `since` on and before `until` (epoch milliseconds), of these
        lanes; None: of all."""
        asked: dict[str, Any] = {"since": since, "until": until, "limit": limit}
        statement = _DOUBLES_OF_ALL
        if lanes is not None:
            statement, asked["lanes"] = _DOUBLES_OF_LANES, list(lanes)
        with self._reading() as connection:
            rows = connection.execute(statement, asked).all()
        return [
            StoredDouble(row.delivery_key, row.lane, row.at, _decoded(row.attempts)) for row in rows
        ]


def put_audits(connection: Connection, run_id: int, audits: Sequence[Audit]) -> None:
    """Writes audits in the caller's transaction; a lane's hour replaces its earlier one."""
    rows = [
        {
            "hour": one.hour,
            "lane": one.lane,
            "counts": msgspec.json.encode(one.counts).decode(),
            "unexplained": one.unexplained,
            "run_id": run_id,
        }
        for one in audits
    ]
    if rows:
        connection.execute(_REPLACE, rows)


def _audit(row: Any) -> Audit:
    return Audit(row.hour, row.lane, _decoded(row.counts), row.unexplained, row.run_id)


def _decoded(stored: str) -> Any:
    return msgspec.json.decode(stored)
