"""A member of the workers' group that does nothing: it takes partitions, holds them, gives them back.

What moves in Kafka while it holds a partition was written by somebody who no longer owns it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from tests.harness.waiting import DEADLINE_S, await_
from tests.harness.wire import Place

_POLL_S = 0.05


class Intruder:
    """Joins on entry, and has partitions by then; leaves on exit."""

    def __init__(
        self, bootstrap: str, group: str, topics: Sequence[str], protocol: str = "classic"
    ) -> None:
        self.held: set[Place] = set()
        """Written by its own thread."""
        config = {
            "log_level": 2,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "intruder",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            config |= {
                "partition.assignment.strategy": "roundrobin",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
            }
        self._consumer = Consumer(config)
        self._topics = list(topics)
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name="intruder", daemon=True)

    def join(self) -> Self:
        """Enter the group and wait for partitions."""
        self._thread.start()
        await_(lambda: self.held, what="the intruder holds partitions")
        return self

    def leave(self) -> None:
        """Go in peace; idempotent."""
        self._leaving.set()
        if self._thread.is_alive():
            self._thread.join(DEADLINE_S)

    def __enter__(self) -> Self:
        return self.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()

    def _run(self) -> None:
        self._consumer.subscribe(
            self._topics, on_assign=self._came, on_revoke=self._went, on_lost=self._went
        )
        while not self._leaving.is_set():
            self._consumer.poll(_POLL_S)
        self._consumer.close()

    def _came(self, _consumer: Any, places: Sequence[TopicPartition]) -> None:
        self.held = self.held | {Place(p.topic, p.partition) for p in places}

    def _went(self, _consumer: Any, places: Sequence[TopicPartition]) -> None:
        self.held = self.held - {Place(p.topic, p.partition) for p in places}
