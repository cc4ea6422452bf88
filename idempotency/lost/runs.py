"""Runs of the Spark jobs (docs/spark.md): one row each, which alone makes valid what the run wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, text

from idempotency.transactions import LedgerPart

DUTY: Final = "spark"
"""The duty (idempotency/fleet/duties.py) that a process holds for as long as one of its runs is open."""
_COLUMNS: Final = (
    "id, job, holder, started_at, ended_at, state, error, positions, watermark, figures"
)
_ABANDON: Final = text("""
UPDATE spark_runs
   SET state = 'FAILED', ended_at = :now, error = CASE WHEN holder = :holder THEN :unwritten ELSE :left END
 WHERE state = 'RUNNING'""")
_BEGIN: Final = text("""
INSERT INTO spark_runs (job, holder, started_at, state) VALUES (:job, :holder, :now, 'RUNNING')
RETURNING id""")
KEPT_MS: Final = 60 * 86_400_000
"""Time for which runs stay on record."""
KEPT_POSITIONS: Final = 100
"""Newest runs that keep their positions: some 50 KB of JSON each."""
_PAGE: Final = 500
"""Runs that one begin looks at, of those that may go and of those whose positions may."""
_IS_NEEDED: Final = """
state = 'RUNNING' OR (state = 'DONE' AND NOT EXISTS (
    SELECT 1 FROM spark_runs AS later
     WHERE later.job = spark_runs.job AND later.id > spark_runs.id AND later.state = 'DONE'))"""
"""A job's newest run that was done: the next one goes on from it."""
_FORGET: Final = text(f"""
DELETE FROM spark_runs
 WHERE id IN (SELECT id FROM spark_runs ORDER BY id LIMIT :page)
   AND started_at < :before AND NOT ({_IS_NEEDED})""")  # noqa: S608 - ours
_SHORTEN: Final = text(f"""
UPDATE spark_runs SET positions = ''
 WHERE id > :upto - :page AND id <= :upto AND positions <> '' AND NOT ({_IS_NEEDED})""")  # noqa: S608
_POSITIONS: Final = text("UPDATE spark_runs SET positions = :positions WHERE id = :id")
_END: Final = text("""
UPDATE spark_runs
   SET state = :state, ended_at = :now, error = :error, watermark = :watermark, figures = :figures
 WHERE id = :id AND state = 'RUNNING'""")
_NEWEST: Final = text(f"""
SELECT {_COLUMNS} FROM spark_runs WHERE job = :job AND state = 'DONE'
 ORDER BY id DESC LIMIT 1""")  # noqa: S608 - ours
_LIST: Final = text(f"""
SELECT {_COLUMNS} FROM spark_runs WHERE id < :before ORDER BY id DESC LIMIT :limit""")  # noqa: S608
_NUMBERED: Final = text(f"SELECT {_COLUMNS} FROM spark_runs WHERE id = :id")  # noqa: S608
_LATEST: Final = 2**62
_HOLDER: Final = text("SELECT holder FROM duties WHERE name = :name AND until >= :now")
_LEFT: Final = "its process ended before the run did"
_UNWRITTEN: Final = "the ledger did not answer when the run ended; nothing of it was written"


class RunOvertaken(Exception):
    """The run was declared dead, and another process goes on: nothing of it was written."""


class SparkRun(NamedTuple):
    """One run. Times are epoch milliseconds by the database's clock."""

    id: int
    job: str
    """ingest | rebuild | lost | audit"""
    holder: str
    started_at: int
    ended_at: int | None
    state: str
    """RUNNING | DONE | FAILED"""
    error: str | None
    positions: str
    """JSON of `spark_jobs.positions.Positions`; empty for a run that took none, and for an old one."""
    watermark: int | None
    """The broker's time up to which everything was read."""
    figures: dict[str, Any]


class Runs(LedgerPart):
    """Every method is one transaction and raises LedgerError; the ends raise RunOvertaken, too."""

    def begin(self, job: str, holder: str) -> int:
        """Opens a run. Returns its number. The caller must hold the duty, and has one run at a time: all
        open runs are over. What nobody needs of old runs goes."""
        with self._begin() as (connection, now):
            named = {"job": job, "holder": holder, "now": now}
            connection.execute(_ABANDON, {**named, "left": _LEFT, "unwritten": _UNWRITTEN})
            run_id = int(connection.execute(_BEGIN, named).scalar_one())
            connection.execute(_FORGET, {"before": now - KEPT_MS, "page": _PAGE})
            connection.execute(_SHORTEN, {"upto": run_id - KEPT_POSITIONS, "page": _PAGE})
            return run_id

    def positions(self, run_id: int, json: str) -> None:
        """Notes Kafka's positions as they were before the run read anything."""
        with self._transaction() as connection:
            connection.execute(_POSITIONS, {"id": run_id, "positions": json})

    def done(
        self,
        run_id: int,
        watermark: int | None,
        figures: Mapping[str, Any],
        also: Callable[[Connection], None] | None = None,
    ) -> None:
        """Ends a run. `also` writes in the same transaction what the run makes valid."""
        with self._begin() as (connection, now):
            values = {"watermark": watermark, "figures": _json(figures), "error": None}
            _end(connection, {"id": run_id, "state": "DONE", "now": now, **values})
            if also is not None:
                also(connection)

    def failed(self, run_id: int, error: str) -> None:
        """Ends a run that reached nothing; `error` is one sentence."""
        with self._begin() as (connection, now):
            values = {"watermark": None, "figures": "", "error": error}
            _end(connection, {"id": run_id, "state": "FAILED", "now": now, **values})

    def newest(self, job: str) -> SparkRun | None:
        """Returns the job's last run that was done; None without one."""
        with self._reading() as connection:
            row = connection.execute(_NEWEST, {"job": job}).one_or_none()
        return None if row is None else _run(row)

    def numbered(self, run_id: int) -> SparkRun | None:
        """Returns a run; None for an unknown number."""
        with self._reading() as connection:
            row = connection.execute(_NUMBERED, {"id": run_id}).one_or_none()
        return None if row is None else _run(row)

    def list(self, limit: int, before: int = _LATEST) -> list[SparkRun]:
        """Returns the newest runs with a number below `before`, newest first."""
        asked = {"limit": limit, "before": before}
        with self._reading() as connection:
            return [_run(row) for row in connection.execute(_LIST, asked)]

    def holder(self) -> str:
        """Returns the process that holds the duty; empty for none."""
        with self._begin() as (connection, now):
            found = connection.execute(_HOLDER, {"name": DUTY, "now": now}).scalar_one_or_none()
        return str(found or "")


def _end(connection: Connection, values: Mapping[str, Any]) -> None:
    if not connection.execute(_END, dict(values)).rowcount:
        raise RunOvertaken(
            f"run {values['id']} was declared dead while it worked, and wrote nothing; the process that"
            " holds the duty goes on (`hongyan spark runs`)"
        )


def _json(figures: Mapping[str, Any]) -> str:
    return msgspec.json.encode(figures).decode()


def _run(row: Any) -> SparkRun:
    named = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    figures = named.pop("figures")
    return SparkRun(**named, figures=msgspec.json.decode(figures) if figures else {})
