"""What Kafka removed unread, told apart from harmless gaps. The same on real Kafka: tests/integration."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from backends.kafka.clients import KafkaUnavailable
from dispatcher.kafka.offset_metadata import OffsetRange
from dispatcher.kafka.removed_records import MOST_GAPS, LogBounds, RemovedRecords
from dispatcher.metrics import Metrics
from sending.runtime.clock import Clock
from tests.dispatcher.fakes import LANE, NOW_MS, TOPIC, Bench, Place, message
from tracing.events import Stage, TraceEvent

PLACE = (TOPIC, 0)


class Ground:
    """A broker whose one partition starts and ends at `bounds`; None: it is away."""

    def __init__(self, first: int, end: int) -> None:
        self.bounds: LogBounds | None = LogBounds(first, end)
        self.asked: list[list[tuple[str, int]]] = []
        self.events: list[TraceEvent] = []
        self.metrics = Metrics()
        self.removed = RemovedRecords(
            self._ask,
            metrics=self.metrics,
            recorder=self,
            clock=Clock(lambda: 0.0, lambda: NOW_MS / 1000),
            worker="w",
        )

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events

    def close(self, timeout_s: float = 5.0) -> None:
        raise NotImplementedError

    def dropped(self) -> Mapping[tuple[str, str], int]:
        return {}

    @property
    def count(self) -> float:
        found = self.metrics.registry.get_sample_value(
            "hongyan_records_removed_total", {"lane": LANE.name}
        )
        return found or 0.0

    def look(self, first: int | None = None) -> float:
        if first is not None:
            self.bounds = LogBounds(first, first + 1_000)
        self.removed.look()
        return self.count

    def _ask(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], LogBounds]:
        self.asked.append(list(places))
        if self.bounds is None:
            raise KafkaUnavailable("away")
        return dict.fromkeys(places, self.bounds)


def test_a_gap_below_the_logs_first_offset_was_removed() -> None:
    ground = Ground(first=40, end=50)
    ground.removed.gap(PLACE, LANE, 10, 40)
    assert ground.look() == 30
    (event,) = ground.events
    assert (event.stage, event.origin) == (Stage.REMOVED, f"{TOPIC}/0/10")
    assert event.detail == "offsets 10 to 39 were removed before they were read"


def test_a_gap_above_the_logs_first_offset_lost_nothing() -> None:
    ground = Ground(first=10, end=50)
    ground.removed.gap(PLACE, LANE, 10, 40)
    assert (ground.look(), ground.events) == (0, [])


def test_a_partition_whose_committed_offset_was_removed_is_told_once_with_the_gap_that_follows() -> (
    None
):
    ground = Ground(first=40, end=40)
    ground.removed.came(PLACE, LANE, 10, [])
    assert ground.look() == 30
    ground.removed.gap(PLACE, LANE, 10, 45)
    assert ground.look(first=45) == 35, "the five that went meanwhile"
    assert [e.detail for e in ground.events] == [
        "offsets 10 to 39 were removed before they were read",
        "offsets 40 to 44 were removed before they were read",
    ]


def test_what_a_predecessor_had_done_is_not_counted() -> None:
    ground = Ground(first=40, end=50)
    ground.removed.came(PLACE, LANE, 10, [OffsetRange(11, 40)])
    assert ground.look() == 1


def test_nothing_is_said_where_all_that_was_removed_had_been_done() -> None:
    ground = Ground(first=40, end=50)
    ground.removed.came(PLACE, LANE, 11, [OffsetRange(11, 40)])
    assert (ground.look(), ground.events) == (0, [])


def test_a_log_that_ends_below_the_committed_offset_began_anew() -> None:
    ground = Ground(first=0, end=5)
    ground.removed.came(PLACE, LANE, 500, [])
    assert ground.look() == 0
    (event,) = ground.events
    assert event.detail == "the log ends at 5, below the committed offset 500"


def test_while_no_broker_answers_it_stays_suspected() -> None:
    ground = Ground(first=40, end=50)
    ground.bounds = None
    ground.removed.gap(PLACE, LANE, 10, 40)
    assert ground.look() == 0
    assert ground.look(first=40) == 30
    ground.look()
    assert len(ground.asked) == 2, "nothing is asked where nothing is suspected"


def test_a_flood_of_gaps_is_bounded_and_its_last_one_is_widened() -> None:
    ground = Ground(first=0, end=10**6)
    for number in range(MOST_GAPS + 500):
        ground.removed.gap(PLACE, LANE, number * 10, number * 10 + 1)
    assert ground.look(first=10**6) == (MOST_GAPS - 1) + 500 * 10 + 1


def test_a_log_that_went_back_while_it_was_read_is_looked_into() -> None:
    bench = Bench()
    bench.assign(0)
    bench.step(message(100))
    bench.done.put(bench.inbox.records)
    bench.step()
    bench.step(message(0))
    assert bench.removals.committed == [101]


def test_the_source_tells_of_gaps_and_of_committed_offsets() -> None:
    bench = Bench()
    bench.consumer.committed_places = [Place(TOPIC, 0, 5, "")]
    bench.assign(0)
    bench.step(message(5), message(6), message(9), message(10))
    assert (bench.removals.committed, bench.removals.gaps) == ([5], [(7, 9)])
