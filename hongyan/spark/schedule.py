"""Cycles at a fixed distance, in one session, until SIGTERM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic

import structlog

from hongyan.spark.cycle import VACUUM_S, Cycle
from idempotency.ledger import LedgerError
from spark_jobs.errors import SparkTrouble

log = structlog.get_logger(__name__)


def run_every(
    cycle: Cycle,
    jobs: Sequence[str],
    every_s: float,
    stop: threading.Event,
    now: Callable[[], float] = monotonic,
) -> None:
    """Begins a cycle every `every_s` seconds, or at once after a longer one, until `stop`. A cycle that
    failed is on record, and the next one goes on. Raises NotDone once another process may have the duty,
    and NoSpark once Spark ended by itself: each later job would fail."""
    vacuumed = now()
    while not stop.is_set():
        begun = now()
        _one(cycle, jobs, stop)
        if now() - vacuumed >= VACUUM_S and not stop.is_set():
            vacuumed = now()
            _vacuum(cycle)
        stop.wait(max(0.0, begun + every_s - now()))


def _one(cycle: Cycle, jobs: Sequence[str], stop: threading.Event) -> None:
    try:
        cycle.run(jobs, stop)
    except LedgerError as exc:
        log.warning("spark_cycle_failed", cause=str(exc))


def _vacuum(cycle: Cycle) -> None:
    try:
        cycle.vacuum()
    except SparkTrouble as exc:
        log.warning("warehouse_not_vacuumed", cause=str(exc))
