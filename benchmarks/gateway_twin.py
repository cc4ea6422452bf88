"""`hongyan gateway` with a publisher that acknowledges at once: the measure of benchmarks/gateway.py."""

from __future__ import annotations

from concurrent.futures import Future

from hongyan.cli import main as program
from hongyan_client.records import Acknowledged, Record
from producer.gateway import wiring


class SilentPublisher:
    """Acknowledges without a producer."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        self.unacknowledged = 0

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        """See `Publisher.publish`."""
        done: Future[Acknowledged] = Future()
        done.set_result(Acknowledged(record.topic, 0, 0, 0))
        return done

    def close(self, timeout_s: float) -> int:
        """Returns 0: nothing is open."""
        return 0


def main() -> None:
    """Runs the program over it."""
    vars(wiring)["Publisher"] = SilentPublisher
    program()
