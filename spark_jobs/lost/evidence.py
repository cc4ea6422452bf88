"""Everything that a run learns before it asks the ledger about keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from message.vocabulary import dead_letter_topic
from spark_jobs.lost import causes, holes, places
from spark_jobs.lost.claimed import HOUR_MS, claimed, claims_by_hour, reporting, sent
from spark_jobs.lost.frames import empty, kept
from spark_jobs.lost.ledger import LedgerReader
from spark_jobs.lost.scope import RunScope
from spark_jobs.lost.terms import LaneTerms, in_force, lanes_frame, terms_frame, untraced
from spark_jobs.positions import Positions
from spark_jobs.warehouse import Warehouse

REPORTS_DAYS: Final = 7
"""An account reports if one of its receipts is no older."""
MOST_CARRIED: Final = 200_000
"""Most open findings that a run looks at again."""
_SKEW_MS: Final = 600_000
"""Most by which clocks of brokers and workers differ."""
_DAY: Final = timedelta(days=1)
_DAY_MS: Final = 86_400_000


class LossEvidence:
    """Of one run. `look` reads the warehouse; the frames are the questions to the ledger.

    records      envelopes that no earlier run decided about, with their place
    claimed      keys that the trace shows in the ledger
    left         deliveries with a cause by their place that nothing explains yet
    accepted     deliveries in holes that their producer recorded, and no dead letter or recall explains
    hole_ranges  candidates for offsets that nobody names
    claims       deliveries of hours whose counts differ
    overdue      sent ones without a receipt
    carried      open findings to be looked at again
    """

    def __init__(
        self,
        warehouse: Warehouse,
        ledger: LedgerReader,
        positions: Positions,
        terms: Sequence[LaneTerms],
        scope: RunScope,
        topic_prefix: str,
    ) -> None:
        self._warehouse, self._ledger, self._positions = warehouse, ledger, positions
        self._terms, self._scope, self._topic_prefix = terms, scope, topic_prefix
        self._spark = warehouse.spark
        self.versions = terms_frame(self._spark, terms)
        self.lanes = lanes_frame(self._spark, terms, positions.taken_at).persist()
        self.whole = True
        """Whether all open findings were looked at again."""

    def look(self) -> None:
        """Reads everything but the answers about keys. May raise WarehouseTrouble, LedgerAway."""
        self._place_records()
        self._propose()
        self._look_into_holes()
        self._compare_hours()
        self._find_overdue()
        self._carry()

    def _place_records(self) -> None:
        scope = self._scope
        records = self._warehouse.read("records", self._days(scope.since))
        if scope.decided is not None:
            records = places.undecided(records, *self.frontier(scope.decided))
        else:
            records = records.where(f.col("problem").isNull())
        positions = places.positions_frame(self._spark, self._positions)
        placed = places.placed(records, positions, self._positions.taken_at)
        self.records = placed.persist()
        waits = ~f.col("read") & ~f.col("below")
        facts = self.records.agg(
            f.count("*"), f.min("timestamp"), f.min(f.when(waits, f.col("day"))), f.min("day")
        ).collect()[0]
        self.undecided, first_at, self.oldest, self._first_day = facts
        self.first_at: int | None = first_at
        if not self.undecided:
            self.records = empty(self._spark, placed.schema)

    @property
    def restored_until(self) -> int:
        """Returns the time up to which the ledger may lack rows that it had, since it was restored; 0: it
        was not."""
        restored_at = self._scope.restored_at
        return restored_at + _SKEW_MS if restored_at else 0

    @property
    def doubtful_until(self) -> int:
        """Returns the broker's time up to which a record without a row is not surely lost: dead letters
        were removed unread, or the ledger was restored; 0: no such time."""
        return max(self._letters_lost_until or 0, self.restored_until)

    def frontier(self, decided: Positions) -> tuple[DataFrame, DataFrame]:
        """Returns the offsets that the last run had decided about, and those that were read by then."""
        frontier = places.frontier_frame(self._spark, decided.partitions)
        return frontier, places.read_by_then(self._warehouse.read("ranges"), self._scope.run)

    def _propose(self) -> None:
        events = self._events(self.first_at)
        self.claimed = claimed(events)
        first_day = self._first_day and self._first_day - _DAY  # a letter may seem older
        letters = self._warehouse.read("dead_letters", self._days(first_day))
        found = causes.proposed(
            places.deliveries_of(self.records), self.lanes, self._positions.taken_at
        )
        found, some = kept(found)
        if some:
            recalls = self._ledger.recalls()
            found = kept(causes.explained(found, self.claimed, letters, events, recalls)).frame
        self.left = found

    def _look_into_holes(self) -> None:
        all_holes = self._warehouse.read("holes")
        dead = all_holes.where(f.col("topic") == dead_letter_topic(self._topic_prefix))
        until = dead.agg(f.max(f.coalesce("before", "at"))).collect()[0][0]
        self._letters_lost_until: int | None = until
        new, some = kept(holes.of_lanes(all_holes, self.lanes, self._scope.run))
        found = new.select("topic", "partition", "first", "next", "after").collect()
        afters = [row["after"] for row in found]
        begin = 0 if None in afters else min(afters, default=None)
        events = self._events(begin)
        places_ = [
            (row["topic"], row["partition"], row["first"], row["next"])
            for row in found
            if row["next"] is not None
        ]
        letters = self._warehouse.read("dead_letters", None if some else [])
        accepted = holes.accepted(events, letters, new)
        if gone := sorted({row["topic"] for row in found if row["next"] is None}):
            there = self._warehouse.read("records").where(f.col("topic").isin(gone))
            accepted = accepted.unionByName(
                holes.accepted_by_gone(events, letters, new, there), allowMissingColumns=True
            )
        accepted, some = kept(accepted)
        if some:
            accepted = kept(causes.not_recalled(accepted, events, self._ledger.recalls())).frame
        self.accepted = accepted
        read = holes.read_places(events, letters, self._ledger.last_offsets(places_), new)
        self.hole_ranges = holes.hole_candidates(new, read, self.accepted)

    def _compare_hours(self) -> None:
        start = self._scope.hours_from
        claims = claims_by_hour(self._events(start), self.versions)
        self.compared = 0
        self.claims = claims
        if start is not None:
            claims, self.compared = kept(claims.where(f.col("hour") * HOUR_MS >= start))
            self.claims = kept(causes.differing(claims, self._ledger.counts(start))).frame

    def _find_overdue(self) -> None:
        now = self._positions.taken_at
        decided = self._scope.decided
        seen_until = decided.taken_at if decided is not None else 0
        lags = [one.receipt_lag_ms for one in in_force(self._terms).values()]
        begin = max(0, seen_until - max(lags, default=0) - _SKEW_MS)
        accounts, some = kept(reporting(self._events(now - REPORTS_DAYS * _DAY_MS)))
        events = self._events(begin if some else None)
        late = causes.overdue(sent(events), self.lanes, accounts, now, seen_until)
        lanes = untraced(self._terms) if some else []
        rows = self._ledger.sent(lanes, begin, now - min(lags, default=0))
        more = causes.overdue(rows, self.lanes, accounts, now, seen_until)
        self.overdue = kept(late.unionByName(more, allowMissingColumns=True)).frame

    def _carry(self) -> None:
        carried = self._ledger.findings(MOST_CARRIED)
        self.whole = carried.count() <= MOST_CARRIED
        self.carried = carried if self.whole else empty(self._spark, carried.schema)

    def _events(self, since: int | None) -> DataFrame:
        """Returns the events since that time (0: all; None: none), read by day."""
        if since is None:
            return self._warehouse.read("events", [])
        if not since:
            return self._warehouse.read("events")
        begin = since - _SKEW_MS
        return self._warehouse.read("events", self._days(_day(begin))).where(
            f.col("timestamp") >= begin
        )

    def _days(self, since: date | None) -> list[date] | None:
        if since is None:
            return None
        last = _day(self._positions.taken_at) + _DAY * 2
        return [since + _DAY * n for n in range(max(0, (last - since).days) + 1)]


def _day(at: int) -> date:
    return datetime.fromtimestamp(at / 1000, UTC).date()
