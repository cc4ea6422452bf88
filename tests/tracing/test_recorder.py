"""The recorder never delays a send, and what it loses it counts."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tracing import recorder as recorder_module
from tracing.drops import Drops
from tracing.events import NoRecorder, Stage, TraceEvent
from tracing.metrics import show_drops
from tracing.recorder import OpenSink, QueuedRecorder, Sink, SinkAway, log_drops

PATIENCE_S = 20.0
DROPPED = "hongyan_trace_dropped_total"


def events(count: int, message_id: str = "m") -> list[TraceEvent]:
    return [TraceEvent(at=n, stage=Stage.SETTLED, message_id=message_id) for n in range(count)]


class Kept:
    """A sink that keeps what it gets; `wants` releases whoever waits for so many events."""

    def __init__(self, wants: int = 1) -> None:
        self.events: list[TraceEvent] = []
        self.batches: list[int] = []
        self.closed = threading.Event()
        self.enough = threading.Event()
        self._wants = wants

    def write(self, batch: Sequence[TraceEvent]) -> None:
        self.events += batch
        self.batches.append(len(batch))
        if len(self.events) >= self._wants:
            self.enough.set()

    def close(self, timeout_s: float, last: bool = False) -> None:
        self.closed.set()


class Stuck:
    """A sink that does not come back until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def write(self, batch: Sequence[TraceEvent]) -> None:
        self.entered.set()
        assert self.release.wait(PATIENCE_S)

    def close(self, timeout_s: float, last: bool = False) -> None:
        pass


class Failing:
    """A sink that fails in the ways it is told, one a write, and then works."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.opened = 0
        self.kept = Kept()
        self.closed = threading.Event()

    def open(self, _drops: Drops) -> Sink:
        self.opened += 1
        return self

    def write(self, batch: Sequence[TraceEvent]) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.kept.write(batch)

    def close(self, timeout_s: float, last: bool = False) -> None:
        self.closed.set()


Make = Callable[..., QueuedRecorder]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(recorder_module, "FLUSH_S", 0.01)


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[QueuedRecorder] = []

    def one(buffer: int = 1_000, **sinks: OpenSink) -> QueuedRecorder:
        made.append(QueuedRecorder(sinks, buffer=buffer))
        return made[-1]

    yield one
    for recorder in made:
        recorder.close(0.0)


def test_events_reach_every_sink(make: Make) -> None:
    one, two = Kept(3), Kept(3)
    recorder = make(one=lambda _: one, two=lambda _: two)
    recorder.record(events(3))
    assert one.enough.wait(PATIENCE_S)
    assert two.enough.wait(PATIENCE_S)
    assert one.events == two.events == events(3)


def test_recording_does_not_wait_for_a_stuck_sink(make: Make) -> None:
    stuck, kept = Stuck(), Kept(3_001)
    recorder = make(buffer=5_000, stuck=lambda _: stuck, kept=lambda _: kept)
    recorder.record(events(1))
    assert stuck.entered.wait(PATIENCE_S)
    began = time.perf_counter()
    for _ in range(3_000):
        recorder.record(events(1))
    assert time.perf_counter() - began < PATIENCE_S, "it waited for the sink"
    assert kept.enough.wait(PATIENCE_S)
    stuck.release.set()


def test_what_does_not_fit_is_dropped_and_counted(make: Make) -> None:
    stuck = Stuck()
    recorder = make(buffer=100, stuck=lambda _: stuck)
    recorder.record(events(1))
    assert stuck.entered.wait(PATIENCE_S)
    recorder.record(events(99))
    recorder.record(events(7))
    assert recorder.drops.counts() == {("stuck", "full"): 7}
    stuck.release.set()


def test_metrics_show_what_was_dropped(make: Make) -> None:
    registry, stuck = CollectorRegistry(), Stuck()
    recorder = make(buffer=1, stuck=lambda _: stuck)
    show_drops(recorder, registry)
    assert registry.get_sample_value(DROPPED, {"sink": "stuck", "reason": "full"}) is None
    recorder.record(events(1))
    recorder.record(events(3))
    assert registry.get_sample_value(DROPPED, {"sink": "stuck", "reason": "full"}) == 3
    stuck.release.set()


def test_close_writes_what_is_buffered(make: Make) -> None:
    kept = Kept()
    recorder = make(buffer=20_000, kept=lambda _: kept)
    recorder.record(events(12_000))
    recorder.close(PATIENCE_S)
    assert len(kept.events) == 12_000
    assert kept.closed.is_set()
    assert recorder.drops.counts() == {}


def test_close_keeps_to_its_time_and_counts_what_was_left(make: Make) -> None:
    stuck = Stuck()
    recorder = make(stuck=lambda _: stuck)
    recorder.record(events(10))
    assert stuck.entered.wait(PATIENCE_S)
    began = time.monotonic()
    recorder.close(0.2)
    recorder.close(0.2)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert recorder.drops.counts() == {("stuck", "unfinished"): 10}
    recorder.record(events(2))
    assert recorder.drops.counts()["stuck", "closed"] == 2
    stuck.release.set()


def test_a_sink_that_is_away_gets_the_same_batch_again(make: Make) -> None:
    sink = Failing(SinkAway("no server"), SinkAway("no server"))
    with capture_logs() as logs:
        recorder = make(sink=sink.open)
        recorder.record(events(5))
        assert sink.kept.enough.wait(PATIENCE_S)
        recorder.close(PATIENCE_S)
    assert sink.kept.events == events(5)
    assert sink.opened == 3
    assert recorder.drops.counts() == {}
    assert [entry["event"] for entry in logs] == ["trace_sink_failed", "trace_sink_back"]
    assert logs[0]["cause"] == "no server"


def test_a_sink_that_dies_is_opened_again_and_only_its_batch_is_lost(make: Make) -> None:
    sink = Failing(ValueError("cannot write this"))
    with capture_logs() as logs:
        recorder = make(sink=sink.open)
        recorder.record(events(5, "bad"))
        assert sink.closed.wait(PATIENCE_S)
        recorder.record(events(5, "good"))
        assert sink.kept.enough.wait(PATIENCE_S)
    assert {event.message_id for event in sink.kept.events} == {"good"}
    assert recorder.drops.counts() == {("sink", "refused"): 5}
    assert any(entry.get("cause") == "cannot write this" for entry in logs)


def test_a_sink_that_cannot_be_opened_is_tried_again(make: Make) -> None:
    kept = Kept()
    tries = iter([OSError("no route"), SinkAway("not yet")])

    def open_sink(_drops: Drops) -> Sink:
        for failure in tries:
            raise failure
        return kept

    recorder = make(sink=open_sink)
    recorder.record(events(1))
    assert kept.enough.wait(PATIENCE_S)


def test_drops_are_logged_at_most_once_a_minute() -> None:
    now = [0.0]
    drops = Drops(lambda: now[0], log_drops)
    with capture_logs() as logs:
        for moment in (0.0, 1.0, 59.0, 61.0):
            now[0] = moment
            drops.add("kafka", "full", 10)
    assert [entry["kafka:full"] for entry in logs] == [10, 30]


def test_the_recorder_that_keeps_nothing_takes_everything() -> None:
    recorder = NoRecorder()
    recorder.record(events(3))
    recorder.close()


def test_importing_the_vocabulary_loads_no_driver(run_python: Callable[[str], str]) -> None:
    loaded = run_python("import tracing.events, sys; print(*sys.modules)").split()
    assert not {"confluent_kafka", "sqlalchemy", "psycopg", "structlog"} & set(loaded)
