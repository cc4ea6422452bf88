"""The cost of the minute sums in a process: nanoseconds of a settled delivery, and of its part of a write.

    python -m benchmarks.sums [DELIVERIES]

Batches of 100 settlements, two accounts, times as of calls that take 10 ms and more. Garbage collection is
tuned as in a worker. `hongyan bench turns ../before` shows the cost to a whole worker.
`hongyan bench worker` shows its ratios.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Final

from backends.interpreter import tune_interpreter
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.telemetry import moments_of
from dispatcher.pipeline.work import Assignment, KafkaRecord, Work
from idempotency.sums.counter import MinuteSums, Series
from message.delivery import deliveries_of
from message.envelope import Notification, encode
from message.vocabulary import Lane

BATCH: Final = 100
ROUNDS: Final = 5
_NOW: Final = 1_790_000_000_000
_NS: Final = 1e9


def works() -> list[Work]:
    """Returns one batch of settled deliveries."""
    luck, lane = random.Random(1), Lane("sms", "notice")
    made = []
    for number in range(BATCH):
        note = Notification(
            id=f"n-{number}",
            channel=lane.channel,
            kind=lane.kind,
            receivers=["+8613800000001"],
            content={"text": "hello"},
            created_at=_NOW - luck.randint(50, 5_000),
        )
        payload = encode(note)
        record = KafkaRecord(Assignment("t", 0, lane, Offsets()), 0, note, payload, _NOW - 40, None)
        (delivery,) = deliveries_of(note, payload, expires_at=_NOW + 60_000)
        delivery.account = "main" if number < BATCH // 2 else "reserve"
        made.append(Work(delivery, record, claimed_at=_NOW - 30, started_at=_NOW - 20))
        made[-1].answered_at = _NOW - 20 + int(luck.lognormvariate(3, 0.6))
    return made


def measured(deliveries: int) -> tuple[float, float, float]:
    """Returns nanoseconds of a delivery: the addition, the write's part, and a bare loop over the batch."""
    batch, sums = works(), MinuteSums()

    def add() -> None:
        ended: list[Series] = []
        moments = []
        for work in batch:
            ended.append((work.delivery.lane, work.delivery.account, "SENT"))
            moments.append(moments_of(work))
        sums.add(_NOW, ended, moments)

    def bare() -> None:
        ended: list[Series] = []
        for work in batch:  # `WorkerTelemetry.settled` has this list in any case
            ended.append((work.delivery.lane, work.delivery.account, "SENT"))  # noqa: PERF401 - as there

    rounds = max(1, deliveries // BATCH)
    added, plain = _timed(add, rounds), _timed(bare, rounds)
    began = time.thread_time()
    sums.unwritten()
    return added / BATCH, (time.thread_time() - began) * _NS / deliveries, plain / BATCH


def _timed(act: Callable[[], None], rounds: int) -> float:
    began = time.thread_time()
    for _ in range(rounds):
        act()
    return (time.thread_time() - began) * _NS / rounds


def main() -> None:
    """Prints the best of ROUNDS: the others had company on their core."""
    deliveries = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    tune_interpreter()
    found = [measured(deliveries) for _ in range(ROUNDS)]
    added, written, plain = (min(column) for column in zip(*found, strict=True))
    print(f"a settled delivery: {added - plain:.0f} ns of CPU")
    print(f"its part of a write: {written:.1f} ns")


if __name__ == "__main__":
    main()
