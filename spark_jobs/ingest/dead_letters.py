"""Records of the dead letters' topic → `dead_letters` and `foreign`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from spark_jobs.frames import day_of, header
from spark_jobs.warehouse import columns_of

_REASON, _ORIGIN, _ID = "hongyan-dead-reason", "hongyan-dead-origin", "hongyan-id"
_PLACE: Final = r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,10}/[0-9]{1,19}\z"
NO_ORIGIN: Final = "no_origin"


def parsed_dead(kafka: DataFrame) -> DataFrame:
    """Returns each record with the headers that a worker gave it, and `problem`; null for a dead letter. A
    letter keeps the record's own headers in front, so the last of a name is the worker's."""
    headers = F.col("headers")
    named = kafka.select(
        *("topic", "topic_id", "partition", "offset", "timestamp"),
        F.octet_length("value").alias("size"),
        header(_ORIGIN, headers).alias("origin"),
        header(_REASON, headers).alias("reason"),
        header(_ID, headers).alias("message_id"),
    )
    sound = F.col("reason").isNotNull() & F.coalesce(F.col("origin").rlike(_PLACE), F.lit(False))
    return named.withColumn("problem", F.when(~sound, NO_ORIGIN))


def dead_letters_of(parsed: DataFrame) -> DataFrame:
    """Returns rows of `dead_letters`."""
    ours = parsed.where(F.col("problem").isNull())
    return ours.withColumn("day", day_of(F.col("timestamp"))).select(*columns_of("dead_letters"))
