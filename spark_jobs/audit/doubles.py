"""Deliveries that a provider accepted twice; the rebuild keeps both attempts in `trace_doubles`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from spark_jobs.rebuild import doubles


def double_keys(deliveries: DataFrame) -> DataFrame:
    """Returns the keys of the double sends among rebuilt deliveries, by the rebuild's own rule."""
    return doubles.doubles(deliveries).select("delivery_key")
