"""Finds missing topics of a worker's lanes; logs each once and shows them in /readyz.

Kafka reports nothing to a consumer that subscribes to a missing topic, and a worker creates none. A look-up
may take seconds while a broker is away, so it has a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from backends.kafka.clients import KafkaUnavailable

log = structlog.get_logger(__name__)

WHILE_MISSING_S: Final = 5.0
OTHERWISE_S: Final = 60.0
_HOW: Final = "make it with `hongyan topics apply`"


class MissingTopics:
    """Lists the topics of the broker, until `stop`."""

    def __init__(
        self, topics: Iterable[str], list_topics: Callable[[], Collection[str] | None]
    ) -> None:
        """`topics`: of the lanes that have an account. `list_topics` returns None where brokers create
        topics on use; it may raise KafkaUnavailable."""
        self.missing: tuple[str, ...] = ()
        """Written by `look`, read by /readyz."""
        self._topics = sorted(topics)
        self._list_topics = list_topics
        self._stop = threading.Event()

    @property
    def nothing_to_read(self) -> str | None:
        """The reason why the worker has no topic at all; None if it has one."""
        if not self.missing or len(self.missing) < len(self._topics):
            return None
        return f"no topic {', '.join(self.missing)}: {_HOW}"

    def run(self) -> None:
        """Looks until `stop`."""
        while True:
            self.look()
            if self._stop.wait(WHILE_MISSING_S if self.missing else OTHERWISE_S):
                return

    def stop(self) -> None:
        """Ends the thread; idempotent."""
        self._stop.set()

    def look(self) -> None:
        """Asks once; keeps the last answer while no broker answers."""
        try:
            there = self._list_topics()
        except KafkaUnavailable as exc:
            log.debug("topics_not_listed", cause=str(exc))
            return
        missing = () if there is None else tuple(t for t in self._topics if t not in there)
        for topic in missing:
            if topic not in self.missing:
                log.warning("topic_missing", topic=topic, what=_HOW)
        for topic in self.missing:
            if topic not in missing:
                log.info("topic_found", topic=topic)
        self.missing = missing
