"""`hongyan bench spark`: a rebuild of generated days beside a bare read, shuffle by key and write of the
same rows, in one session on local[2].

    bare        events and records, all columns, shuffled once by delivery key and written as Delta
    rebuild     the job itself, from an empty table of deliveries
    increment   a tenth more events, on the next day, on top of the largest size
    lost        the job that finds lost deliveries, on the largest size: keys that it asks the ledger for

Every size has a warehouse of its own. The rows are generated before the clock runs. The bare variant and
the rebuild read the same files. No rebuild may run a Python function on the executors.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.spark_data import DAY_MS, EVENTS_PER_DELIVERY, LIVES, RUN, Span, fill
from benchmarks.spark_lost import LostStep, lost
from benchmarks.spark_meter import SessionMeter, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_jobs.config import JobConfig
    from spark_jobs.warehouse import Warehouse

SIZES: Final = (1_000_000, 3_000_000, 10_000_000)
"""Events."""
MASTER: Final = "local[2]"
DAYS: Final = 30
"""Days over which a size is spread; the increment is the day after."""
TENTH: Final = 10
GROWTH: Final = 1.1
"""Time may grow by this factor more than the data."""
BARE: Final = 1.5
SHARE: Final = 0.2
DAY: Final = 100_000_000
"""Deliveries a day that the report is drawn up for."""
_WARM_EVENTS: Final = 100_000
_WARM_ROUNDS: Final = 2
"""The second one runs classes that the first one generated: by its end the JVM has compiled them."""
_STEP: Final = LIVES * TENTH * EVENTS_PER_DELIVERY
"""Sizes are multiples of it: so each life has whole numbers, and an increment is a tenth."""
_PROPERTIES: Final[Mapping[str, Any]] = {
    "spark.driver.memory": "4g",
    "spark.ui.enabled": False,
    "spark.sql.ui.retainedExecutions": 1_000,
}
_HOUR_S: Final = 3_600

Say = Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """The two variants of one size."""

    events: int
    bare: Step
    rebuild: Step

    @property
    def deliveries(self) -> int:
        """Deliveries that the events are of."""
        return self.events // EVENTS_PER_DELIVERY


def measure(sizes: Sequence[int], *, say: Say, folder: Path | None = None) -> dict[str, Any]:
    """Measures each size, smallest first, and the increment on the largest; returns the report."""
    with TemporaryDirectory(prefix="hongyan-bench-spark-", dir=folder) as scratch:
        bench = _Bench(Path(scratch), say)
        try:
            bench.warm()
            measured = [bench.size(events) for events in sorted(map(_whole, sizes))]
            increment = bench.increment(measured[-1].events)
            found = bench.lost(measured[-1].events)
        finally:
            bench.close()
    return report(measured, increment, found)


class _Bench:
    """One Spark session, and one warehouse at a time."""

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder, self._say = folder, say
        self._spark = _session(folder, say)
        self._meter = SessionMeter(self._spark)
        self._today = int(time.time() * 1_000) // DAY_MS
        self._root = folder / "none"
        self._earlier: dict[str, Any] | None = None
        """Figures of the last rebuild in this warehouse; the next one goes on from there."""

    def close(self) -> None:
        """Ends the session."""
        self._spark.stop()

    def warm(self) -> None:
        """Lets Spark compile and load each variant in turn: otherwise the first one pays for all."""
        for _ in range(_WARM_ROUNDS):
            self.size(_WARM_EVENTS, shown=False)
            self.increment(_WARM_EVENTS, shown=False)

    def size(self, events: int, *, shown: bool = True) -> Measured:
        """Generates so many events, then measures the bare variant and the whole rebuild."""
        shutil.rmtree(self._root, ignore_errors=True)
        self._earlier = None
        # Of its own name: Delta remembers the log of a folder that is gone.
        self._root = Path(mkdtemp(prefix=f"events-{events}-", dir=self._folder))
        warehouse = self._warehouse()
        fill(self._spark, warehouse, _span(events, self._today))
        bare = self._meter.measure(lambda: _bare(warehouse, self._root / "bare"))
        shutil.rmtree(self._root / "bare")
        rebuild = self._meter.measure(self._rebuild)
        found = Measured(events, bare, rebuild)
        if shown:
            self._say(_line(found))
        return found

    def increment(self, events: int, *, shown: bool = True) -> Step:
        """Adds a tenth on the next day to the last size, and measures the next rebuild."""
        more = events // TENTH
        first = events // EVENTS_PER_DELIVERY
        span = Span(first, more // EVENTS_PER_DELIVERY, self._today, 1, run=RUN + 2)
        fill(self._spark, self._warehouse(), span)
        step = self._meter.measure(self._rebuild)
        if shown:
            self._say(f"{more:>12,} events more   rebuild {step.seconds:>7.1f} s")
        return step

    def lost(self, events: int) -> LostStep:
        """Looks for lost deliveries in the last size and its increment; there are none."""
        deliveries = (events + events // TENTH) // EVENTS_PER_DELIVERY
        found = lost(self._warehouse(), _config(self._root), deliveries, self._folder)
        self._say(f"{deliveries:>12,} deliveries    lost    {found.seconds:>7.1f} s")
        return found

    def _warehouse(self) -> Warehouse:
        from spark_jobs.warehouse import Warehouse

        warehouse = Warehouse(self._spark, str(self._root))
        warehouse.make_all()
        return warehouse

    def _rebuild(self) -> None:
        from spark_jobs.rebuild import job

        around = job.Surroundings(earlier=self._earlier)
        figures = job.run(self._spark, self._warehouse(), _config(self._root), around)
        self._earlier = figures.as_json()


def report(measured: Sequence[Measured], increment: Step, found: LostStep) -> dict[str, Any]:
    """Returns the report; `measured` by size, the smallest first."""
    largest = measured[-1]
    plans = [plan for one in measured for plan in one.rebuild.python] + increment.python
    return {
        "master": MASTER,
        "events_per_delivery": EVENTS_PER_DELIVERY,
        "days": DAYS,
        "medians": {
            **{f"{one.events:,} events": _figures(one) for one in measured},
            "a tenth more": _increment_figures(largest, increment),
        },
        "ratios": [
            *_growth(measured),
            *(_ratio(f"rebuild / bare, {one.events:,}", _over_bare(one), BARE) for one in measured),
            _ratio("a tenth more / the whole", increment.seconds / largest.rebuild.seconds, SHARE),
            _ratio("plans with a Python function", float(len(plans)), 0.0),
            _ratio("deliveries found lost of a whole trace", float(found.found), 0.0),
            _ratio("ledger rows read for a whole trace", float(found.ledger_rows), 0.0),
        ],
        "lost": msgspec.to_builtins(found),
        "hundred_million_a_day": a_day(largest),
    }


def a_day(largest: Measured) -> dict[str, float]:
    """Returns what 100 million deliveries a day would take at the pace of the largest size."""
    seconds = largest.rebuild.seconds / largest.deliveries * DAY
    return {
        "hours_on_two_cores": round(seconds / _HOUR_S, 2),
        "cores_for_one_hour": round(2 * seconds / _HOUR_S, 1),
        "shuffled_gib": round(largest.rebuild.shuffled_bytes / largest.deliveries * DAY / 2**30, 1),
    }


def _growth(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """From the smallest to the largest size: ten times the data may take eleven times as long."""
    if len(measured) < 2:
        return []
    small, large = measured[0], measured[-1]
    times = large.events / small.events
    grown = large.rebuild.seconds / small.rebuild.seconds
    return [_ratio(f"time at {times:g} × the data", grown, round(times * GROWTH, 2))]


def _ratio(name: str, value: float, wanted: float) -> dict[str, Any]:
    found = round(value, 3)
    return {
        "ratio": name,
        "median": found,
        "wanted": wanted,
        "at_most": True,
        "holds": found <= wanted,
    }


def _over_bare(one: Measured) -> float:
    return one.rebuild.seconds / one.bare.seconds


def _figures(one: Measured) -> dict[str, float]:
    return {
        "rebuild_s": one.rebuild.seconds,
        "bare_s": one.bare.seconds,
        "events_per_second": round(one.events / one.rebuild.seconds, 1),
        "shuffled_bytes_per_delivery": round(one.rebuild.shuffled_bytes / one.deliveries, 1),
        "peak_rss_mib": one.rebuild.peak_rss_mib,
    }


def _increment_figures(largest: Measured, step: Step) -> dict[str, float]:
    more = largest.events // TENTH
    return {
        "rebuild_s": step.seconds,
        "bare_s": 0.0,
        "events_per_second": round(more / step.seconds, 1),
        "shuffled_bytes_per_delivery": round(step.shuffled_bytes / (more / EVENTS_PER_DELIVERY), 1),
        "peak_rss_mib": step.peak_rss_mib,
    }


def _line(one: Measured) -> str:
    return (
        f"{one.events:>12,} events   rebuild {one.rebuild.seconds:>7.1f} s"
        f"   bare {one.bare.seconds:>7.1f} s   ratio {_over_bare(one):.2f}"
    )


def _whole(events: int) -> int:
    return max(_STEP, events // _STEP * _STEP)


def _span(events: int, today: int) -> Span:
    return Span(0, events // EVENTS_PER_DELIVERY, today - DAYS, DAYS)


def _session(folder: Path, say: Say) -> SparkSession:
    from hongyan.spark.jars import jar_files
    from spark_jobs.session import open_session

    places = {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "unused")}
    properties = {**_PROPERTIES, **places}
    return open_session(
        _config(folder), MASTER, jar_files((), say), properties, "hongyan bench spark"
    )


def _config(root: Path) -> JobConfig:
    from spark_jobs.config import JdbcLogin, JobConfig

    return JobConfig(
        warehouse=str(root), topic_prefix="hongyan", kafka={}, ledger=JdbcLogin(url="", driver="")
    )


def _bare(warehouse: Warehouse, target: Path) -> None:
    """Reads both tables, shuffles all columns once by delivery key, and writes them by day."""
    rows = parts(warehouse.read("events"), warehouse.read("records"))
    shuffled = rows.repartition("delivery_key")
    shuffled.write.format("delta").partitionBy("day").save(str(target))


def parts(events: DataFrame, records: DataFrame) -> DataFrame:
    """Returns one row per event and one per delivery of a record: key, day, and the columns of either."""
    by_record = records.selectExpr("*", "explode(deliveries) AS one").selectExpr(
        "one.delivery_key AS delivery_key",
        "day",
        "struct(one.receiver AS receiver, one.receiver_hash AS receiver_hash, topic, topic_id, partition,"
        " offset, timestamp, message_id, biz_id, lane, created_at, ttl_ms, template, account,"
        " ordering_key, resend_of, traceparent) AS record",
    )
    columns = [name for name in events.columns if name not in ("day", "delivery_key")]
    by_event = events.selectExpr("delivery_key", "day", f"struct({', '.join(columns)}) AS event")
    return by_event.unionByName(by_record, allowMissingColumns=True)
