"""Counts and percentiles by hour, lane, template and account.

An hour is the broker's: that of the record, else of the first event. It is kept within the row's day, so
that the rows of a day make up its hours. Percentiles are exact: the same rows give the same figures, in
whatever order they are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.rebuild.latencies import STAGES

HOUR_MS: Final = 3_600_000
_GROUP: Final = ("hour", "lane", "template", "account")
_STEPS: Final = (
    "accepted",
    "appended",
    "received",
    "claimed",
    "started",
    "answered",
    "ended",
    "receipt",
)
"""Columns `STEP_at`: how many deliveries got so far."""
_SUMS: Final = ("attempts", "calls", "duplicates", "receipts")
_PERCENTS: Final = [0.5, 0.9, 0.99]
Group = tuple[int, str, str, str]
"""Hour, lane, template, account."""


class HourFigures(NamedTuple):
    """One row of `trace_hours`."""

    hour: int
    """Start of the hour, epoch milliseconds."""
    lane: str
    template: str
    account: str
    counts: dict[str, Any]
    latencies: dict[str, list[int]]
    """Stage → count, p50, p90, p99, greatest; milliseconds."""


def hour() -> Column:
    """Returns the start of a row's hour, epoch milliseconds."""
    start = F.unix_date("day").cast("bigint") * 24 * HOUR_MS
    seen = F.coalesce("appended_at", "first_at", start)
    within = F.greatest(start, F.least(start + 23 * HOUR_MS, seen))
    return within - F.pmod(within, F.lit(HOUR_MS))


def counts(rows: DataFrame) -> DataFrame:
    """Returns the counts of each group by state, reason and what is missing."""
    grouped = _grouped(rows).groupBy(*_GROUP, "state", "reason", "missing")
    return grouped.agg(
        F.count("*").alias("deliveries"),
        *[F.count(f"{step}_at").alias(step) for step in _STEPS],
        *[F.sum(name).alias(name) for name in _SUMS],
        F.count("dead_letter").alias("dead_letters"),
        F.count_if("settled").alias("settled"),
    )


def percentiles(rows: DataFrame) -> DataFrame:
    """Returns, for each group and stage: count, p50, p90, p99, greatest; null without any."""
    measured = [
        F.when(
            F.count(f"{stage}_ms") > 0,
            F.concat(
                F.array(F.count(f"{stage}_ms").cast("double")),
                F.percentile(f"{stage}_ms", F.array(*[F.lit(one) for one in _PERCENTS])),
                F.array(F.max(f"{stage}_ms").cast("double")),
            ),
        ).alias(stage)
        for stage in STAGES
    ]
    slim = _grouped(rows).select(*_GROUP, *[f"{stage}_ms" for stage in STAGES])
    # One pass over sorted rows: a partial aggregation keeps seven maps for each of many groups.
    together = slim.repartition(*_GROUP).sortWithinPartitions(*_GROUP)
    return together.groupBy(*_GROUP).agg(*measured)


def hours(rows: DataFrame) -> list[HourFigures]:
    """Returns the figures of all hours of these rows, in order. The caller runs it within `one_pass`."""
    found = {_group_of(row): row for row in _as_json(percentiles(rows))}
    counted = _counted(_as_json(counts(rows)))
    return [HourFigures(*one, counted[one], _latencies(found[one])) for one in sorted(counted)]


def _as_json(rows: DataFrame) -> Iterable[dict[str, Any]]:
    """Yields the rows; a JSON text crosses from the JVM in a fraction of a row's time."""
    texts = rows.select(F.to_json(F.struct("*")).alias("row")).collect()
    return (json.loads(text["row"]) for text in texts)


def _group_of(row: dict[str, Any]) -> Group:
    return row["hour"], row["lane"], row["template"], row["account"]


def _grouped(rows: DataFrame) -> DataFrame:
    named = [F.coalesce(name, F.lit("")).alias(name) for name in _GROUP[1:]]
    return rows.select(
        hour().alias("hour"),
        *named,
        F.coalesce("state", F.lit("")).alias("state"),
        # A reason may end in the provider's code.
        F.substring_index(F.coalesce("reason", F.lit("")), ":", 1).alias("reason"),
        F.concat_ws(",", "missing").alias("missing"),
        "settled",
        "dead_letter",
        *[f"{step}_at" for step in _STEPS],
        *_SUMS,
        *[f"{stage}_ms" for stage in STAGES],
    )


def _counted(rows: Iterable[dict[str, Any]]) -> dict[Group, dict[str, Any]]:
    counted: dict[Group, dict[str, Any]] = {}
    for row in rows:
        group = counted.setdefault(_group_of(row), {"states": {}, "reasons": {}, "missing": {}})
        deliveries = row["deliveries"]
        for name in ("deliveries", *_STEPS, *_SUMS, "dead_letters", "settled"):
            group[name] = group.get(name, 0) + row.get(name, 0)
        _add(group["states"], [row["state"]], deliveries)
        _add(group["reasons"], [row["reason"]], deliveries)
        _add(group["missing"], row["missing"].split(","), deliveries)
    return {group: _sorted(values) for group, values in counted.items()}


def _add(counter: dict[str, int], names: Iterable[str], count: int) -> None:
    for name in filter(None, names):
        counter[name] = counter.get(name, 0) + count


def _sorted(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: dict(sorted(value.items())) if isinstance(value, dict) else value
        for name, value in sorted(values.items())
    }


def _latencies(row: dict[str, Any]) -> dict[str, list[int]]:
    return {stage: [round(value) for value in row[stage]] for stage in STAGES if stage in row}
