"""Families that look-back alone shows."""

from __future__ import annotations

from functools import partial
from typing import Final

from backends.metrics import families

_BY: Final = (families.LOOKBACK,)
_counter = partial(families.counter, by=_BY)
_gauge = partial(families.gauge, by=_BY)

RECORDS: Final = _counter(
    "lookback_records",
    "Records of the look-back topic that are in the database, by what they did.",
    "did",
    watch="`conflict`: one transaction got opposite decisions",
)
POISON: Final = _counter(
    "lookback_poison",
    "Records that became dead letters.",
    "reason",
    watch="any rise: a business sends wrong records, or its kind or topic is not configured",
)
CHECKS: Final = _counter(
    "lookback_checks",
    "Checks that were made, by the answer.",
    "biz_type",
    "answer",
    watch="`UNKNOWN` alone: the endpoint is away, or answers in another form",
)
CHECK_SECONDS: Final = families.histogram(
    "lookback_check_seconds", "Time of one check.", "biz_type", by=_BY
)
FORWARDED: Final = _counter("lookback_forwarded", "Messages that the broker acknowledged.")
NOT_FORWARDED: Final = _counter(
    "lookback_not_forwarded",
    "Messages that could not be forwarded, and go again.",
    watch="a rise that goes on: the topic is missing, or the broker is away",
)
LATE: Final = _counter(
    "lookback_late",
    "Checks and forwards that ended after another process or decision had moved the transaction.",
    "work",
    watch="growth: `lookback.lease_s` is shorter than the work",
)
OLDEST_COMMITTED_SECONDS: Final = _gauge(
    "lookback_oldest_committed_seconds",
    "Age of the oldest committed message that is not forwarded.",
    watch="above 60",
)
UNRESOLVED: Final = _gauge(
    "lookback_unresolved",
    "Transactions that wait for a person.",
    "biz_type",
    watch="above 0",
)
IN_CHECK: Final = _gauge("lookback_in_check", "Checks that this process makes now.", "biz_type")

FAMILIES: Final = tuple(one for one in list(vars().values()) if isinstance(one, families.Family))
"""All of the above, in their order."""
