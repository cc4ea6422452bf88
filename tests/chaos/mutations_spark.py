"""The guards of warehouse and rebuild, for `tests/chaos/mutations.py`."""

from __future__ import annotations

from tests.chaos.mutation import Mutation

_WAREHOUSE = "tests/spark_jobs/test_warehouse.py::"
_FOLD = "tests/spark_jobs/rebuild/test_fold.py::"

SPARK: tuple[Mutation, ...] = (
    Mutation(
        "a write that is repeated changes nothing",
        "spark_jobs.warehouse:Warehouse._write",
        "writer.options(txnAppId=app, txnVersion=str(version), **options)",
        "writer.options(**options)",
        (_WAREHOUSE + "test_the_same_version_again_changes_nothing",),
    ),
    Mutation(
        "an event that came twice is in the timeline once",
        "spark_jobs.rebuild.timeline:in_order",
        "F.array_distinct(F.sort_array(placed))",
        "F.sort_array(placed)",
        (_FOLD + "test_events_read_twice_count_once",),
    ),
)
