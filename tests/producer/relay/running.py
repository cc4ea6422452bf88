"""A relay in this process over a broker that the test answers for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hongyan_client.outbox.store import OutboxStore
from producer.relay.marker import RelayMarker
from producer.relay.metrics import RelayMetrics
from producer.relay.outage import KafkaOutage
from producer.relay.relay import Relay, RelaySignals, RelayTerms
from tests.hongyan_client.outbox.broker import Broker


class RelayRun:
    """The parts of one relay. `step` does in this thread what both of its threads do."""

    def __init__(
        self,
        store: OutboxStore,
        broker: Broker,
        *,
        name: str = "relay-a",
        lease_s: float = 30.0,
        batch: int = 100,
        poll_s: float = 0.05,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.signals = RelaySignals(threading.Event(), threading.Event())
        self.metrics = RelayMetrics("hongyan")
        self.outage = KafkaOutage()
        self.marker = RelayMarker(store, self.outage, self.metrics, self.signals.wake, monotonic)
        terms = RelayTerms(name, lease_s, poll_s, batch)
        self.relay = Relay(
            store,
            broker,
            self.marker,
            self.outage,
            self.metrics,
            terms,
            self.signals,
            monotonic,
        )

    def step(self) -> int:
        """One claim, its publication and its marks. Returns the rows seen."""
        seen = self.relay.run_once()
        self.mark()
        return seen

    def mark(self) -> None:
        while not self.marker.empty:
            self.marker.look()

    def count(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"hongyan_{metric}", labels) or 0.0


@contextmanager
def running(*runs: RelayRun) -> Iterator[None]:
    """Runs the relays' threads until the end."""
    relays = [threading.Thread(target=run.relay.run, daemon=True) for run in runs]
    markers = [threading.Thread(target=run.marker.run, daemon=True) for run in runs]
    for thread in (*relays, *markers):
        thread.start()
    try:
        yield
    finally:
        for run in runs:
            run.signals.stop.set()
            run.signals.wake.set()
        for thread in relays:
            thread.join(10)
        for run in runs:
            assert run.marker.close(10)
