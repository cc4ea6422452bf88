"""One rebuild: what came in since the last one is folded into the rows that it touches.

    marks      versions of all tables, before anything is read
    parts      of new events, records and dead letters
    days       in which a row of theirs may be; only these are read and replaced
    fold       their parts, and those of the rows that they touch, in one shuffle
    write      one commit
    figures    hours, gaps and double sends of what was touched; the program writes them with the run's end

Killed anywhere, the next run begins at the same marks and comes to the same tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.config import JobConfig
from spark_jobs.rebuild import doubles, funnels, gaps, increment, letters, parts, touched, unkeyed
from spark_jobs.rebuild.fold import fold, one_pass
from spark_jobs.rebuild.missing import TraceLevels
from spark_jobs.warehouse import Warehouse

APP: Final = "rebuild"
_TABLE: Final = increment.RESULT


@dataclass(frozen=True)
class Surroundings:
    """Facts of the program that the warehouse does not have."""

    earlier: Mapping[str, Any] | None = None
    """Figures of the last rebuild that was done."""
    levels: TraceLevels = TraceLevels()  # noqa: RUF009 - immutable
    keys_of: unkeyed.KeysOf | None = None


@dataclass(frozen=True)
class RebuildFigures:
    """Figures of one rebuild, and the rows of the small tables."""

    marks: increment.Marks
    whole: bool
    """True: everything was read."""
    days: list[date]
    rows: int
    """Rows of `deliveries` written."""
    keys_by_events: int
    keys_by_body: int
    keys_unknown: int
    double_sends: int
    hours: list[funnels.HourFigures] = field(repr=False)
    gaps: list[gaps.LifeGap] = field(repr=False)
    doubles: list[doubles.DoubleSend] = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Returns the figures for `spark_runs`. The next rebuild reads `marks` and `keys_unknown`."""
        return {
            "marks": {table: list(mark) for table, mark in self.marks.items()},
            "whole": self.whole,
            "days": [day.isoformat() for day in self.days],
            "rows": {"deliveries": self.rows},
            "keys_by_events": self.keys_by_events,
            "keys_by_body": self.keys_by_body,
            "keys_unknown": self.keys_unknown,
            "double_sends": self.double_sends,
            "hours": len(self.hours),
            "lives": len(self.gaps),
            "missing_events": sum(gap.missing for gap in self.gaps),
            "dropped_events": sum(gap.dropped for gap in self.gaps),
        }


def run(
    spark: SparkSession,
    warehouse: Warehouse,
    config: JobConfig,
    around: Surroundings = Surroundings(),
) -> RebuildFigures:
    """Rebuilds `deliveries`. Returns the figures; writes no SQL."""
    warehouse.make_all()
    now = increment.marks(warehouse)
    new = increment.new_rows(warehouse, increment.marks_of(around.earlier), now)
    with one_pass(spark):
        if new is None:
            return _whole(warehouse, now, around)
        return _increment(warehouse, config, now, new, around)


def _whole(warehouse: Warehouse, now: increment.Marks, around: Surroundings) -> RebuildFigures:
    all_ = {table: warehouse.read(table) for table in increment.SOURCES}
    have = warehouse.days(_TABLE, "events", "records", "dead_letters")
    named = unkeyed.keyed(all_["records"], all_["events"], around.keys_of)
    frames = _parts(all_, named)
    # Old days may be deleted table by table: rows then are the only place of what was in the sources.
    left = have[_TABLE] - (have["events"] & have["records"])
    if left:
        frames.append(parts.row_parts(warehouse.read(_TABLE, left)))
    if have["dead_letters"]:
        frames.append(parts.letter_parts(letters.keyed(all_["dead_letters"], all_["records"])))
    days = set().union(*have.values())
    rows = fold(parts.union(frames), around.levels)
    _replace(warehouse, rows, days)
    return _figures(warehouse, now, days, named, None, whole=True)


def _increment(
    warehouse: Warehouse,
    config: JobConfig,
    now: increment.Marks,
    new: increment.NewRows,
    around: Surroundings,
) -> RebuildFigures:
    named = _keyed(warehouse, config, new.frames, around)
    later = _letters(warehouse, new)
    came = parts.union([*_parts(new.frames, named), *later])
    rows = warehouse.read(_TABLE)
    days = new.days["events"] | new.days["records"]
    # Records that got their keys now, and deliveries of letters, may be of days before.
    for frame in later if named.records is None else [*later, named.records]:
        days.update(_days(frame))
    if days:
        have = warehouse.days(_TABLE)[_TABLE]
        with touched.keys_of(came, have, config.open_days) as keys:
            days.update(touched.days(rows, keys))
            # A day of new parts is replaced even if they touch none of its rows: all of it is read.
            found = rows.where(F.col("day").isin(sorted(days)))
            all_ = parts.union([came, parts.row_parts(touched.of(found, keys.all_))])
            result = fold(all_, around.levels).unionByName(touched.others(found, keys.all_))
            _replace(warehouse, result, days)
    lives = gaps.lives_of(new.frames["trace_records"])
    return _figures(warehouse, now, days, named, lives, whole=False)


def _replace(warehouse: Warehouse, rows: DataFrame, days: Collection[date]) -> None:
    """Writes the days in one commit. Its version follows the warehouse's own, as the ingest's does: Delta
    passes over the commit of an older number, and runs count anew after a restore of the ledger."""
    warehouse.replace_days(_TABLE, rows, days, APP, warehouse.version(_TABLE, APP) + 1)


def _parts(frames: Mapping[str, DataFrame], named: unkeyed.Keyed) -> list[DataFrame]:
    found = [parts.event_parts(frames["events"]), parts.record_parts(frames["records"])]
    return found if named.records is None else [*found, parts.record_parts(named.records)]


def _keyed(
    warehouse: Warehouse, config: JobConfig, new: Mapping[str, DataFrame], around: Surroundings
) -> unkeyed.Keyed:
    """Names receivers of new records, and of open days' records if some had no name before."""
    records = new["records"]
    if (around.earlier or {}).get("keys_unknown"):
        open_days = sorted(warehouse.days("records")["records"])[-config.open_days :]
        records = records.unionByName(warehouse.read("records", open_days)).dropDuplicates(
            ["topic", "topic_id", "partition", "offset"]
        )
    return unkeyed.keyed(records, warehouse.read("events"), around.keys_of)


def _letters(warehouse: Warehouse, new: increment.NewRows) -> list[DataFrame]:
    """Returns the parts of new letters of any record, and of any letter of new records."""
    found = []
    if new.days["dead_letters"]:
        every = warehouse.read("records")
        found.append(parts.letter_parts(letters.keyed(new.frames["dead_letters"], every)))
    if new.days["records"] and warehouse.days("dead_letters")["dead_letters"]:
        every = warehouse.read("dead_letters")
        found.append(parts.letter_parts(letters.keyed(every, new.frames["records"])))
    return found


def _figures(
    warehouse: Warehouse,
    now: increment.Marks,
    days: Collection[date],
    named: unkeyed.Keyed,
    lives: list[str] | None,
    *,
    whole: bool,
) -> RebuildFigures:
    rows = warehouse.read(_TABLE, days)
    found = funnels.funnels(rows) if days else funnels.Funnels([], 0)
    return RebuildFigures(
        # The result's own version is that of its newest commit: the next run begins there.
        marks={**now, _TABLE: increment.marks(warehouse)[_TABLE]},
        whole=whole,
        days=sorted(days),
        rows=warehouse.written_rows(_TABLE) if days else 0,
        keys_by_events=named.by_events,
        keys_by_body=named.by_body,
        keys_unknown=named.unknown,
        double_sends=found.doubles,
        hours=found.hours,
        gaps=gaps.gaps(warehouse.read("trace_records"), lives),
        doubles=doubles.read(doubles.doubles(rows)) if found.doubles else [],
    )


def _days(frame: DataFrame) -> set[date]:
    return {row["day"] for row in frame.select("day").distinct().collect()}
