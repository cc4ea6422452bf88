"""The lost job on generated days whose trace is whole: how much of the ledger it has to read.

The ledger is an empty SQLite file. Every delivery is settled in the trace, so the job must ask it for no
delivery: one that it asked for would come back as lost.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.spark_data import PARTITIONS, TOPIC, TOPIC_ID

if TYPE_CHECKING:
    from spark_jobs.config import JobConfig
    from spark_jobs.positions import Positions
    from spark_jobs.warehouse import Warehouse

_RUN: Final = 1_000
_DAY_MS: Final = 86_400_000
_DRIVER: Final = "org.sqlite.JDBC"


class LostStep(msgspec.Struct):
    """Figures of one run of the lost job."""

    seconds: float
    keys_asked: int
    ledger_rows: int
    found: int


def lost(warehouse: Warehouse, config: JobConfig, deliveries: int, folder: Path) -> LostStep:
    """Runs the job on the warehouse; `deliveries` is the number of records in it."""
    from spark_jobs.config import JdbcLogin
    from spark_jobs.lost import job
    from spark_jobs.lost.scope import RunScope

    book = JdbcLogin(f"jdbc:sqlite:{_ledger(folder)}", _DRIVER)
    config = dataclasses.replace(config, ledger=book)
    terms, scope = _terms(), RunScope(hours_from=None)
    positions = _positions(deliveries)
    began = time.monotonic()
    figures: Any = job.run(
        *(warehouse.spark, warehouse, config, _RUN, positions, terms), scope=scope, book=book
    )
    return LostStep(
        seconds=round(time.monotonic() - began, 2),
        keys_asked=figures.asked,
        ledger_rows=figures.ledger_rows - 1,  # without the run's own row
        found=sum(figures.findings.values()),
    )


def _ledger(folder: Path) -> Path:
    from backends.settings import DatabaseSettings, Settings
    from idempotency.sql_ledger import upgrade

    path = folder / "ledger.db"
    path.unlink(missing_ok=True)
    upgrade(Settings(database=DatabaseSettings(url=f"sqlite:///{path}")))
    with closing(sqlite3.connect(path)) as connection, connection:
        # The job waits for its run's positions, by which it knows that a replica has caught up.
        connection.execute(
            "INSERT INTO spark_runs (id, job, holder, started_at, state, positions)"
            " VALUES (?, 'lost', 'bench', 0, 'RUNNING', '[]')",
            (_RUN,),
        )
    return path


def _positions(deliveries: int) -> Positions:
    """Returns the positions of a group that has passed everything."""
    from spark_jobs.positions import PartitionPosition, Positions

    found = []
    for partition in range(PARTITIONS):
        end = len(range(partition, deliveries, PARTITIONS))
        found.append(PartitionPosition(TOPIC, TOPIC_ID, "sms.notice", partition, end, 0, end))
    return Positions(time.time_ns() // 1_000_000, found)


def _terms() -> list[Any]:
    from spark_jobs.lost.terms import LaneTerms

    return [
        LaneTerms(
            policy_version="file:3f9a1c52",
            lane="sms.notice",
            guarantee="at_least_once",
            trace="all",
            ttl_ms=_DAY_MS,
            max_ttl_ms=7 * _DAY_MS,
            horizon_ms=7 * _DAY_MS,
            receipt_lag_ms=_DAY_MS,
            lost="resend",
            current=True,
        )
    ]
