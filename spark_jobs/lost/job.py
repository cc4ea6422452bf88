"""The lost job: what the group has passed, Kafka has removed or nobody works on, and no ledger knows.

The order makes every finding true: positions, the ingest, the dead letters and the trace, and the ledger
last. The job proposes only: it calls no provider and writes nothing but its candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from message.loss import LossCause
from spark_jobs.config import JdbcLogin, JobConfig
from spark_jobs.lost import causes, holes, places
from spark_jobs.lost.candidates import union_of, write
from spark_jobs.lost.claimed import KEY
from spark_jobs.lost.day_filters import DayFilters
from spark_jobs.lost.evidence import LossEvidence
from spark_jobs.lost.frames import kept
from spark_jobs.lost.ledger import LedgerReader, ledger_errors
from spark_jobs.lost.receivers import without_rows
from spark_jobs.lost.scope import LossFigures, RunScope
from spark_jobs.lost.terms import LaneTerms, in_force
from spark_jobs.positions import Positions
from spark_jobs.rebuild.unkeyed import KeysOf
from spark_jobs.warehouse import Warehouse

GRACE_MS: Final = 120_000
"""Time for which an open row may be overdue: the alert `overdue` waits as long by default."""
PATIENCE_S: Final = 30.0
"""Longest wait for a replica."""
FILTERS: Final = "key_filters"
"""Folder of the filters of archived days, in a warehouse on this machine."""
OWNED: Final = ("day", *places.PLACE, "offset")
_KEYED: Final = (LossCause.PASSED, LossCause.REMOVED, LossCause.HOLE, LossCause.FORGOTTEN)
_DAY_MS: Final = 86_400_000


def run(
    spark: SparkSession,
    warehouse: Warehouse,
    config: JobConfig,
    run_id: int,
    positions: Positions,
    terms: Sequence[LaneTerms],
    *,
    scope: RunScope,
    book: JdbcLogin,
    archive: str = "",
    patience_s: float | None = None,
    on_owned: Callable[[DataFrame], object] | None = None,
    keys_of: KeysOf | None = None,
) -> LossFigures:
    """Writes the run's candidates to `book`. Raises LedgerAway, WarehouseTrouble.

    `on_owned` is given the records (columns OWNED) whose deliveries the ledger has: their bodies may go.
    `keys_of` names the receivers of a record by its body.
    """
    filters = DayFilters(Path(warehouse.root) / FILTERS) if "://" not in warehouse.root else None
    ledger = LedgerReader(spark, config.ledger, config.connections, archive, filters)
    evidence = LossEvidence(warehouse, ledger, positions, terms, scope, config.topic_prefix)
    job = _Judgement(warehouse, ledger, positions, terms, scope, evidence, keys_of)
    try:
        lag_ms = ledger.wait_for(run_id, PATIENCE_S if patience_s is None else patience_s)
        job.step("lag")
        evidence.look()
        job.step("evidence")
        found = job.candidates().persist()
        by_cause = {row["cause"]: row["count"] for row in found.groupBy("cause").count().collect()}
        job.step("candidates")
        with ledger_errors():
            write(found, run_id, book, config.connections)
        job.step("write")
        if on_owned is not None:
            on_owned(job.owned())
            job.step("bodies")
        found.unpersist()
        return job.figures(by_cause, lag_ms)
    finally:
        ledger.release()


class _Judgement:
    """Asks the ledger about the evidence of one run."""

    def __init__(
        self,
        warehouse: Warehouse,
        ledger: LedgerReader,
        positions: Positions,
        terms: Sequence[LaneTerms],
        scope: RunScope,
        evidence: LossEvidence,
        keys_of: KeysOf | None,
    ) -> None:
        self._warehouse, self._ledger, self._positions = warehouse, ledger, positions
        self._terms, self._scope, self._evidence = terms, scope, evidence
        self._keys_of = keys_of
        self._spark = warehouse.spark
        self._ms: dict[str, int] = {}
        self._at = time.monotonic()
        self._asked = 0

    def step(self, name: str) -> None:
        """Notes the milliseconds since the step before."""
        now = time.monotonic()
        self._ms[name] = int((now - self._at) * 1000)
        self._at = now

    def candidates(self) -> DataFrame:
        """Asks the ledger once about all keys. Returns what is lost."""
        answers = self._ask()
        self.step("ledger")
        has_row = answers.select("delivery_key")
        named = self._evidence.left.where(f.col("delivery_key").isNotNull())
        lost = named.join(has_row, "delivery_key", "left_anti")
        is_sent = answers.where(f.col("state") == "SENT").select("delivery_key")
        return union_of(
            self._spark,
            [
                causes.record_candidates(
                    lost, self._evidence.records, self._evidence.doubtful_until
                ),
                self._unnamed(),
                holes.named_candidates(
                    self._evidence.accepted.join(has_row, "delivery_key", "left_anti")
                ),
                self._evidence.hole_ranges,
                causes.forgotten_candidates(
                    self._evidence.claims.join(has_row, "delivery_key", "left_anti")
                ),
                causes.silent_candidates(
                    self._evidence.overdue.join(is_sent, "delivery_key", "left_semi"),
                    self._evidence.lanes,
                ),
                *self._of_the_ledger(),
                causes.still(
                    self._evidence.carried, has_row, is_sent, self._evidence.restored_until
                ),
            ],
        )

    def owned(self) -> DataFrame:
        """Returns the records with a body that nobody needs: every delivery has a row, or an earlier run
        decided about it and left no open finding."""
        found = self._owned_now()
        if self._scope.decided is None or not self._evidence.whole:
            return found
        records = self._warehouse.read("records").where(f.col("body").isNotNull())
        old = places.decided(records, *self._evidence.frontier(self._scope.decided))
        subjects = self._evidence.carried.select(f.col("subject").alias("delivery_key"))
        wanted = old.select(*OWNED, f.explode("deliveries.delivery_key").alias("delivery_key"))
        wanted = wanted.join(subjects, "delivery_key", "left_semi")
        return found.union(old.select(*OWNED).join(wanted.select(*OWNED), list(OWNED), "left_anti"))

    def _owned_now(self) -> DataFrame:
        kept = self._evidence.records.where(f.col("body").isNotNull())
        known = self._evidence.claimed.union(self._answers.select("delivery_key")).distinct()
        known = known.withColumn("owned", f.lit(True))
        place = [*places.PLACE, "offset"]
        each = causes.exploded(kept).join(known, "delivery_key", "left")
        whole = each.groupBy("day", "lane", *place).agg(
            f.every(f.coalesce("owned", f.lit(False))).alias("owned"),
            f.first("read").alias("read"),
        )
        kept_lanes = f.broadcast(self._evidence.lanes.select("lane", "best_effort_until"))
        without = f.col("best_effort_until") >= self._positions.taken_at
        found = whole.join(kept_lanes, "lane", "left")
        return found.where(f.col("owned") | (without & f.col("read"))).select(*OWNED)

    def figures(self, by_cause: Mapping[str, int], lag_ms: int) -> LossFigures:
        """Returns the run's figures."""
        lanes = sorted(in_force(self._terms))
        looked = {LossCause.UNREAD.value: lanes, LossCause.OPEN.value: lanes}
        if self._evidence.whole:
            looked |= {cause.value: lanes for cause in (*_KEYED, LossCause.SILENT)}
        return LossFigures(
            findings=dict(sorted(by_cause.items())),
            undecided=self._evidence.undecided,
            asked=self._asked,
            ledger_rows=self._ledger.rows_read,
            spared=self._ledger.spared,
            lag_ms=lag_ms,
            oldest_day=self._evidence.oldest.isoformat() if self._evidence.oldest else None,
            hours_from=self._scope.hours_from,
            compared=self._evidence.compared,
            looked=looked,
            milliseconds=self._ms,
            restored_at=self._scope.restored_at,
        )

    def _ask(self) -> DataFrame:
        keys = causes.subjects(
            [
                self._evidence.left,
                self._evidence.accepted,
                self._evidence.claims,
                self._evidence.overdue,
                self._evidence.carried.select(f.col("subject").alias("delivery_key")),
            ]
        ).where(f.col("delivery_key").rlike(KEY))
        found, self._asked = kept(keys)
        self._answers = self._ledger.rows(found, self._since())
        found.unpersist()
        return self._answers

    def _of_the_ledger(self) -> list[DataFrame]:
        now, lanes = self._ledger.now(), sorted(in_force(self._terms))
        positions = places.positions_frame(self._spark, self._positions)
        rows = self._ledger.open_rows(lanes, now, GRACE_MS)
        return [
            causes.open_candidates(
                rows, self._evidence.versions, self._evidence.lanes, now, GRACE_MS
            ),
            causes.given_back_candidates(self._ledger.given_back(lanes, now - GRACE_MS), positions),
        ]

    def _unnamed(self) -> DataFrame:
        """Returns a candidate for each record that has fewer rows than deliveries, and whose missing
        receivers Spark cannot normalise. A receiver that the body names and the ledger has is not missing:
        it may be listed in two forms."""
        records = self._evidence.left.where(f.col("delivery_key").isNull())
        rows = self._ledger.messages(records.select("message_id"))
        found = causes.unnamed(records, self._evidence.records, rows)
        if self._keys_of is not None:
            found = without_rows(found, rows, self._keys_of)
        return causes.unnamed_candidates(found)

    def _since(self) -> date | None:
        """Returns the earliest day on which an asked key can have been claimed; None: unknown."""
        if self._scope.since is None or self._scope.hours_from == 0:
            return None
        oldest = self._evidence.carried.agg(f.min("created_at")).collect()[0][0]
        times = [self._evidence.first_at, self._scope.hours_from, oldest]
        lags = [one.receipt_lag_ms for one in in_force(self._terms).values()]
        times.append(self._positions.taken_at - max(lags, default=0) - _DAY_MS)
        earliest = min(at for at in times if at is not None)
        return datetime.fromtimestamp(earliest / 1000, UTC).date() - timedelta(days=1)
