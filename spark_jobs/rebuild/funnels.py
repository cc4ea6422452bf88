"""Counts and percentiles by hour, lane, template and account.

An hour is the broker's: that of the record, else of the first event. It is kept within the row's day, so
that the rows of a day make up its hours. Percentiles are exact: the same rows give the same figures, in
whatever order they are read.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.states import State
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
_STATES: Final = sorted(state.value for state in State)
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


class Funnels(NamedTuple):
    """Figures of whole days."""

    hours: list[HourFigures]
    """In order."""
    doubles: int
    """Deliveries that a provider accepted more than once."""


def hour() -> Column:
    """Returns the start of a row's hour, epoch milliseconds."""
    start = F.unix_date("day").cast("bigint") * 24 * HOUR_MS
    seen = F.coalesce("appended_at", "first_at", start)
    within = F.greatest(start, F.least(start + 23 * HOUR_MS, seen))
    return within - F.pmod(within, F.lit(HOUR_MS))


def groups(rows: DataFrame) -> DataFrame:
    """Returns each group's counts and latencies in one pass over its rows, sorted by group: a partial
    aggregation would keep seven maps for each of many groups. The caller runs it within `one_pass`."""
    slim = _grouped(rows).select(
        *_GROUP,
        "state",
        _is_odd().alias("odd"),
        *[F.col(f"{step}_at").isNotNull().alias(step) for step in _STEPS],
        *_SUMS,
        F.col("dead_letter").isNotNull().alias("dead_letters"),
        "settled",
        (F.col("acceptances") > 1).alias("double"),
        *[f"{stage}_ms" for stage in STAGES],
    )
    together = slim.repartition(*_GROUP).sortWithinPartitions(*_GROUP)
    return together.groupBy(*_GROUP).agg(
        _counts().alias("counts"),
        F.struct(*[_latency(stage).alias(stage) for stage in STAGES]).alias("latencies"),
        F.count_if("odd").alias("odd"),
        F.count_if("double").alias("doubles"),
    )


def oddities(rows: DataFrame) -> DataFrame:
    """Returns the number of each group's deliveries by reason, by missing stages, and by a state that this
    version does not know. Rows without any of them are left out."""
    odd = _grouped(rows).where(_is_odd())
    state = F.when(~_is_known(), F.col("state")).otherwise("")
    grouped = odd.groupBy(*_GROUP, state.alias("state"), "reason", "missing")
    return grouped.agg(F.count("*").alias("deliveries"))


def funnels(rows: DataFrame) -> Funnels:
    """Returns the figures of these rows. The caller runs it within `one_pass`."""
    found = _read(groups(rows), _Group)
    if any(group.odd for group in found):
        by_group = {group.place: group.counts for group in found}
        for odd in _read(oddities(rows), _Oddity):
            _add(by_group[odd.place], odd)
    hours = [HourFigures(*group.place, group.counts, group.latencies) for group in found]
    return Funnels(
        sorted(hours, key=lambda one: one[: len(_GROUP)]), sum(group.doubles for group in found)
    )


class _Place(msgspec.Struct):
    """One row of the JVM."""

    hour: int
    lane: str
    template: str
    account: str

    @property
    def place(self) -> Group:
        return self.hour, self.lane, self.template, self.account


class _Group(_Place):
    counts: dict[str, Any]
    latencies: dict[str, list[int]]
    odd: int
    doubles: int


class _Oddity(_Place):
    state: str
    reason: str
    missing: str
    deliveries: int


_Row = TypeVar("_Row", bound=_Place)


def _read(rows: DataFrame, kind: type[_Row]) -> list[_Row]:
    """Returns the rows; a JSON text crosses from the JVM in a fraction of a row's time."""
    texts = rows.select(F.to_json(F.struct("*")).alias("row")).collect()
    decoder = msgspec.json.Decoder(kind)
    return [decoder.decode(text["row"]) for text in texts]


def _counts() -> Column:
    """Returns the counts, by name."""
    nothing = F.create_map().cast("map<string,bigint>")
    found = {
        "deliveries": F.count("*"),
        **{step: F.count_if(step) for step in _STEPS},
        **{name: F.coalesce(F.sum(name), F.lit(0)) for name in _SUMS},
        "dead_letters": F.count_if("dead_letters"),
        "settled": F.count_if("settled"),
        "states": _states(),
        # Of rows that are odd: `oddities`.
        "reasons": nothing,
        "missing": nothing,
    }
    return F.struct(*[value.alias(name) for name, value in sorted(found.items())])


def _states() -> Column:
    pairs = [part for name in _STATES for part in (F.lit(name), F.count_if(F.col("state") == name))]
    return F.map_filter(F.create_map(*pairs), lambda _name, count: count > 0)


def _latency(stage: str) -> Column:
    """Returns count, p50, p90, p99, greatest; null without any."""
    name = f"{stage}_ms"
    count = F.count(name)
    percents = F.percentile(name, F.array(*[F.lit(one) for one in _PERCENTS]))
    found = [percents.getItem(place) for place in range(len(_PERCENTS))]
    rounded = [F.rint(one).cast("bigint") for one in found]
    return F.when(count > 0, F.array(count, *rounded, F.max(name)))


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
        "acceptances",
        *[f"{step}_at" for step in _STEPS],
        *_SUMS,
        *[f"{stage}_ms" for stage in STAGES],
    )


def _is_known() -> Column:
    return F.col("state").isin(["", *_STATES])


def _is_odd() -> Column:
    return (F.col("reason") != "") | (F.col("missing") != "") | ~_is_known()


def _add(counts: dict[str, Any], odd: _Oddity) -> None:
    for name, values in (
        ("states", [odd.state]),
        ("reasons", [odd.reason]),
        ("missing", odd.missing.split(",")),
    ):
        counter = counts[name]
        for value in filter(None, values):
            counter[value] = counter.get(value, 0) + odd.deliveries
        counts[name] = dict(sorted(counter.items()))
