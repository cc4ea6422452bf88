"""Measures the lag of the workers' group for `/metrics`: it must be seen also when no worker lives.

One recovery of the fleet has the duty. Stale numbers are not shown: 0 would mean that nothing waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import structlog

from backends.kafka.clients import KafkaTrouble
from backends.kafka.group_lag import TopicLag
from backends.metrics.readings import Reading
from backends.metrics.recovery_families import GROUP_LAG
from backends.settings import SettingsError
from idempotency.ledger import LedgerError
from message.vocabulary import Lane

log = structlog.get_logger(__name__)
DUTY: Final = "group-lag"
EVERY_S: Final = 15.0
_LEASE_MS: Final = 60_000
"""More than the longest measurement: a duty that lapsed meanwhile would be measured twice."""
_VALID_S: Final = 60.0


class GroupLagMonitor:
    """One thread calls `run`; any may call `readings` and `stop`."""

    def __init__(
        self,
        lanes: Sequence[Lane],
        topic_prefix: str,
        group: str,
        *,
        query: Callable[[Collection[str]], Mapping[str, TopicLag]],
        hold: Callable[[str, int], bool],
        monotonic: Callable[[], float],
    ) -> None:
        """`query` returns the lag by topic; `hold` takes or renews a duty for so many milliseconds."""
        self._topics = {lane.topic(topic_prefix): lane.name for lane in lanes}
        self._group = group
        self._query = query
        self._hold = hold
        self._monotonic = monotonic
        self._ended = threading.Event()
        self._measured: tuple[float, Mapping[str, int]] = (float("-inf"), {})
        """End of validity, and the lag by lane; replaced as a whole by `run_once`."""
        self._failing = False  # written by `run_once`

    def run(self) -> None:
        """Measures until `stop`."""
        while not self._ended.is_set():
            self.run_once()
            self._ended.wait(EVERY_S)

    def run_once(self) -> None:
        """Measures, if this recovery has the duty; logs the first failure in a row."""
        try:
            if not self._hold(DUTY, _LEASE_MS):
                self._measured = (float("-inf"), {})
                return
            found = self._query(self._topics)
        except (KafkaTrouble, LedgerError, SettingsError) as exc:
            if not self._failing:
                log.warning("group_lag_not_measured", cause=str(exc))
            self._failing = True
            return
        self._failing = False
        lag = {self._topics[topic]: one.records for topic, one in found.items()}
        self._measured = (self._monotonic() + _VALID_S, lag)

    def stop(self) -> None:
        """Ends `run` after the measurement under way; idempotent."""
        self._ended.set()

    def readings(self) -> Iterable[Reading]:
        """Yields the last measurement while it is valid."""
        valid_until, lag = self._measured
        for lane, records in lag.items() if self._monotonic() < valid_until else ():
            yield Reading(GROUP_LAG, {"lane": lane, "group": self._group}, records)
