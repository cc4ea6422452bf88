"""Metrics of look-back on `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from backends.metrics import lookback_families as of_lookback
from backends.metrics.families import LOOKBACK
from backends.metrics.instruments import counter_of, histogram_of
from backends.metrics.process_info import show_process
from backends.metrics.readings import Reading, show_readings
from idempotency.ledger import LedgerError

log = structlog.get_logger(__name__)


class LookbackMetrics:
    """The metrics of one process. Safe from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        show_process(self.registry, LOOKBACK)
        counter = partial(counter_of, registry=self.registry)
        self.records = counter(of_lookback.RECORDS)
        self.poison = counter(of_lookback.POISON)
        self.checks = counter(of_lookback.CHECKS)
        self.check_seconds = histogram_of(of_lookback.CHECK_SECONDS, self.registry)
        self.forwarded = counter(of_lookback.FORWARDED)
        self.not_forwarded = counter(of_lookback.NOT_FORWARDED)
        self.late = counter(of_lookback.LATE)

    def show_queues(
        self,
        oldest_committed_ms: Callable[[], int],
        unresolved: Callable[[], Mapping[str, int]],
        in_check: Callable[[], Mapping[str, int]],
    ) -> None:
        """Asks at each scrape for the lengths of the queues; a database that is away shows none."""

        def readings() -> Iterator[Reading]:
            for biz_type, count in in_check().items():
                yield Reading(of_lookback.IN_CHECK, {"biz_type": biz_type}, count)
            try:
                age_ms, waiting = oldest_committed_ms(), unresolved()
            except LedgerError as exc:
                log.debug("queues_not_read", cause=str(exc))
                return
            yield Reading(of_lookback.OLDEST_COMMITTED_SECONDS, {}, age_ms / 1_000)
            for biz_type, count in waiting.items():
                yield Reading(of_lookback.UNRESOLVED, {"biz_type": biz_type}, count)

        always = (
            of_lookback.OLDEST_COMMITTED_SECONDS,
            of_lookback.UNRESOLVED,
            of_lookback.IN_CHECK,
        )
        show_readings(self.registry, readings, *always)
