"""Bodies leave the warehouse once the ledger has every delivery of their record."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.errors import WarehouseTrouble
from spark_jobs.warehouse import Warehouse

PLACE: Final = ("topic", "topic_id", "partition", "offset")
MOST_KEPT: Final = 5_000
"""Bodies that may stay behind in one step. With more the fleet is behind, and a later run drops them."""


def drop_bodies(warehouse: Warehouse, origins: DataFrame) -> int:
    """Sets `body` to null in the rows of `records` at these places (PLACE). One commit rewrites only files
    with bodies. Returns the rows; 0 also if more than MOST_KEPT others have a body, since the commit
    names those. Does nothing without the table. Raises WarehouseTrouble."""
    if not warehouse.exists("records"):
        return 0
    with_body = warehouse.read("records").where(F.col("body").isNotNull()).select("day", *PLACE)
    owned = origins.select(*PLACE).distinct().withColumn("owned", F.lit(True))
    judged = with_body.join(owned, on=list(PLACE), how="left").persist()
    try:
        counts = judged.groupBy("day").agg(F.count("owned").alias("owned")).collect()
        days = [row.day for row in counts if row.owned]
        kept = judged.where(F.col("owned").isNull() & F.col("day").isin(days)).limit(MOST_KEPT + 1)
        places = kept.select(*PLACE).collect()
    finally:
        judged.unpersist()
    if not days or len(places) > MOST_KEPT:
        return 0
    warehouse.update("records", {"body": "NULL"}, _condition(days, [tuple(row) for row in places]))
    return sum(row.owned for row in counts)


def _condition(days: list[object], kept: list[tuple[str, str, int, int]]) -> str:
    """Returns what names the rows that lose their body: those of the days without the ones kept."""
    named = ", ".join(f"DATE'{day}'" for day in days)
    text = f"body IS NOT NULL AND day IN ({named})"
    for topic, topic_id, partition in sorted({one[:3] for one in kept}):
        place = (topic, topic_id, partition)
        offsets = ", ".join(str(one[3]) for one in kept if one[:3] == place)
        text += (
            f" AND NOT (topic = {_text(topic)} AND topic_id = {_text(topic_id)}"
            f" AND partition = {partition} AND offset IN ({offsets}))"
        )
    return text


def _text(value: str) -> str:
    if "'" in value or "\\" in value:
        raise WarehouseTrouble(f"a topic is named {value!r}; Kafka has no such names")
    return f"'{value}'"
