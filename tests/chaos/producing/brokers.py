"""Brokers killed -9 in rotation. The next one dies only after each partition has all its copies again."""

from __future__ import annotations

import threading
import time

from confluent_kafka.admin import AdminClient

from deploy.local.stack import Stack
from tests.harness.waiting import await_

_JOIN_S = 240.0
_ASK_S = 10.0


class Brokers:
    """Three of them. Belongs to the driver's thread, but for the one that waits for the return."""

    def __init__(self, stack: Stack) -> None:
        self.kills: dict[str, int] = dict.fromkeys(stack.brokers, 0)
        self.troubles: list[str] = []
        """Written by the thread that waits, read after it has ended."""
        self.slowest_s = 0.0
        """Longest time from a kill until all copies were in sync again."""
        self._stack = stack
        self._turn = 0
        self._helper: threading.Thread | None = None

    @property
    def whole(self) -> bool:
        """Whether no broker is away by our doing."""
        return self._helper is None or not self._helper.is_alive()

    def kill(self, down_s: float) -> bool:
        """kill -9 of the next in turn; False while the last one is not back in sync."""
        if not self.whole or self.troubles:
            return False
        name = self._stack.brokers[self._turn % len(self._stack.brokers)]
        self._turn += 1
        self._stack.kill(name)
        self.kills[name] += 1
        self._helper = threading.Thread(target=self._bring_back, args=(name, down_s), daemon=True)
        self._helper.start()
        return True

    def join(self) -> None:
        """Waits until the last one is back."""
        if self._helper is not None:
            self._helper.join(_JOIN_S)

    def await_in_sync(self) -> None:
        """Until each partition of each topic has all its copies in sync."""
        await_(self._in_sync, _JOIN_S, "each copy is in sync")

    def _bring_back(self, name: str, down_s: float) -> None:
        began = time.monotonic()
        try:
            time.sleep(down_s)
            self._stack.start(name)
            self.await_in_sync()
        except Exception as exc:  # of any kind: the judge hears of it
            self.troubles.append(f"{name} did not come back: {exc}")
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def _in_sync(self) -> bool:
        # Asked by a fresh client: one that lived through a broker's death may remember its absence.
        admin = AdminClient({"bootstrap.servers": self._stack.bootstrap, "log_level": 2})
        metadata = admin.list_topics(timeout=_ASK_S)
        if len(metadata.brokers) < len(self._stack.brokers):
            return False
        topics = metadata.topics.values()
        partitions = [one for topic in topics for one in topic.partitions.values()]
        return all(one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in partitions)
