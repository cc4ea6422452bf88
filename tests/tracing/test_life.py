"""The records of a life alone tell how many of its events are missing."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from confluent_kafka import KafkaError
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tracing import recorder as recorder_module
from tracing.drops import UNWRITTEN, Drops
from tracing.events import Stage, TraceEvent
from tracing.record_headers import DROPPED, END, FIRST, LIFE
from tracing.recorder import QueuedRecorder, Sink, SinkBroken
from tracing.sinks.kafka import KafkaSink
from tracing.trace_records import TraceLife

PATIENCE_S = 20.0
GOOD, LOST, FULL, REFUSED = "good", "lost", "full", "refused"


def events(count: int, message_id: str = "m") -> list[TraceEvent]:
    return [TraceEvent(at=n, stage=Stage.SETTLED, message_id=message_id) for n in range(count)]


BAD = events(1, "\ud800")
"""An event that cannot be encoded."""


class Written(NamedTuple):
    """One record as a reader of the topic sees it."""

    life: str
    first: int
    dropped: int
    end: bool
    events: int


class Topic:
    """The records that a broker took, in order."""

    def __init__(self) -> None:
        self.records: list[Written] = []

    def take(self, value: bytes, headers: Sequence[tuple[str, bytes]]) -> None:
        marks = {name: text.decode("ascii") for name, text in headers}
        count = len(msgspec.json.decode(value, type=list[TraceEvent]))
        self.records.append(
            Written(
                marks[LIFE], int(marks[FIRST]), int(marks[DROPPED]), marks.get(END) == "1", count
            )
        )


class Missing(NamedTuple):
    """One life, as a reader of its marks counts it."""

    events: int
    ended: bool


def missing(records: Sequence[Written]) -> Missing:
    """Counts by the contract of tracing/record_headers.py, and by nothing else."""
    assert len({record.life for record in records}) == 1
    numbers = [n for r in records for n in range(r.first, r.first + r.events)]
    assert len(numbers) == len(set(numbers)), "a number was given twice"
    ends = [record for record in records if record.end]
    assert len(ends) <= 1
    total = ends[0].first if ends else max(numbers, default=-1) + 1
    assert all(number < total for number in numbers)
    return Missing(total - len(numbers) + max(r.dropped for r in records), bool(ends))


class DeliveryTimeout:
    def name(self) -> str:
        return "_MSG_TIMED_OUT"


class ScriptedProducer:
    """Does with each record as its script says: takes it, loses it, has no room, refuses it."""

    def __init__(self, topic: Topic, script: Iterator[str]) -> None:
        self._topic = topic
        self._script = script
        self._reports: list[Callable[[], None]] = []

    def produce(
        self, _topic: str, *, value: bytes, headers: list[tuple[str, bytes]], on_delivery: Any
    ) -> None:
        end = any(name == END for name, _ in headers)
        fate = GOOD if end else next(self._script, GOOD)
        if fate == FULL:
            raise BufferError
        if fate == REFUSED:
            raise RuntimeError("fenced")
        if fate == GOOD:
            self._topic.take(value, headers)
        error = DeliveryTimeout() if fate == LOST else None
        self._reports.append(lambda: on_delivery(error, None))

    def poll(self, _timeout: float) -> None:
        reports, self._reports = self._reports, []
        for report in reports:
            report()

    def flush(self, _timeout: float) -> int:
        self.poll(0)
        return 0


def sink_of(topic: Topic, *script: str, drops: Drops | None = None) -> KafkaSink:
    return KafkaSink(ScriptedProducer(topic, iter(script)), "t", drops or Drops(), TraceLife("w"))


def test_a_life_numbers_its_events_over_all_records() -> None:
    topic = Topic()
    sink = sink_of(topic)
    sink.write(events(300))
    sink.write(events(2))
    sink.close(1.0, last=True)
    assert [(r.first, r.events, r.end) for r in topic.records] == [
        *((0, 250, False), (250, 50, False), (300, 2, False)),
        (302, 0, True),
    ]
    (life,) = {record.life for record in topic.records}
    process, _, random = life.partition("/")
    assert (process, len(random), int(random, 16) >= 0) == ("w", 16, True)


def test_no_two_lives_have_one_name() -> None:
    assert len({TraceLife("w").name for _ in range(100)}) == 100


def test_an_idle_life_writes_its_end() -> None:
    topic = Topic()
    sink_of(topic).close(1.0, last=True)
    assert missing(topic.records) == (0, True)


def test_a_sink_that_another_follows_writes_no_end() -> None:
    topic = Topic()
    sink_of(topic).close(1.0)
    assert topic.records == []


def test_a_record_that_the_broker_lost_is_a_gap_and_no_drop() -> None:
    topic, drops = Topic(), Drops()
    sink = sink_of(topic, GOOD, LOST, drops=drops)
    sink.write(events(3))
    sink.write(events(4))
    sink.close(1.0, last=True)
    assert missing(topic.records) == (4, True)
    assert topic.records[-1].dropped == 0
    assert drops.counts() == {("kafka", "msg_timed_out"): 4}


def test_a_refused_record_costs_its_own_events_alone() -> None:
    topic, drops = Topic(), Drops()
    sink = sink_of(topic, REFUSED, drops=drops)
    with pytest.raises(SinkBroken, match="fenced"):
        sink.write(events(300))
    sink.close(1.0, last=True)
    assert missing(topic.records) == (250, True)
    assert drops.counts() == {("kafka", "produce_failed"): 250}


def test_a_batch_that_cannot_be_encoded_gets_no_number() -> None:
    topic = Topic()
    sink = sink_of(topic)
    with pytest.raises(UnicodeEncodeError):
        sink.write([*events(300), *BAD])
    sink.close(1.0, last=True)
    assert missing(topic.records) == (0, True), "the recorder counts it, as refused"


def test_an_error_of_a_report_does_not_count_the_batch_as_refused() -> None:
    topic = Topic()
    producer = ScriptedProducer(topic, iter(()))

    def fails(_timeout: float) -> None:
        raise RuntimeError("a report failed")

    producer.poll = fails  # type: ignore[method-assign]
    with pytest.raises(SinkBroken, match="a report failed"):
        KafkaSink(producer, "t", Drops(), TraceLife("w")).write(events(2))
    assert topic.records[0].events == 2


def test_no_error_of_kafka_has_the_name_of_an_unwritten_event() -> None:
    """The sink counts losses under librdkafka's names; these are gaps, and must not count as drops."""
    codes = [code for code in vars(KafkaError).values() if isinstance(code, int)]
    names = {KafkaError(code).name().lower().lstrip("_") for code in codes}
    assert len(names) > 100
    assert not names & UNWRITTEN


class Run:
    """One recorder over a producer with a script; each opening may fail, too."""

    def __init__(self, script: Sequence[str], openings: Sequence[bool], buffer: int) -> None:
        self.topic, self.life = Topic(), TraceLife("w")
        self._script, self._openings = iter(script), iter(openings)
        self.recorder = QueuedRecorder({"kafka": self._open}, buffer=buffer)

    def _open(self, drops: Drops) -> Sink:
        if not next(self._openings, True):
            raise OSError("no route")
        producer = ScriptedProducer(self.topic, self._script)
        return KafkaSink(producer, "t", drops, self.life, monotonic=_Hasty().monotonic)


class _Hasty:
    """A clock by which no producer is waited for."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 10.0
        return self._now


_FATES = st.lists(st.sampled_from([GOOD, GOOD, LOST, FULL, REFUSED]), max_size=12)
_BATCHES = st.lists(
    st.one_of(st.integers(1, 400).map(events), st.just(BAD)), min_size=0, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(_FATES, st.lists(st.booleans(), max_size=3), _BATCHES, st.integers(300, 900))
def test_records_alone_tell_how_many_events_are_missing(
    script: list[str], openings: list[bool], batches: list[list[TraceEvent]], buffer: int
) -> None:
    """Drops of a full queue, refused batches, lost and refused records, openings that fail: whatever comes
    in between, a life with its end misses exactly what was recorded and is not in the topic."""
    with (
        patch.object(recorder_module, "_FIRST_WAIT_S", 0.001),
        patch.object(recorder_module, "FLUSH_S", 0.001),
        capture_logs(),
    ):
        run = Run(script, openings, buffer)
        for batch in batches:
            run.recorder.record(batch)
        run.recorder.close(PATIENCE_S)
    arrived = sum(record.events for record in run.topic.records)
    if not (run.topic.records and run.topic.records[-1].end):
        assert not all(openings), (
            "only a producer that could not be opened leaves a life without end"
        )
        return
    found = missing(run.topic.records)
    assert found == (sum(map(len, batches)) - arrived, True)
    counted = sum(run.recorder.dropped().values())
    assert counted == found.events, "metrics and records count the same"


def test_events_that_are_recorded_while_it_closes_are_counted_by_its_end() -> None:
    """The last record is written after the queue has closed, so it knows what came too late."""
    run = Run((), (), buffer=100_000)
    stop, recorded = threading.Event(), [0]

    def record() -> None:
        while not stop.is_set():
            run.recorder.record(events(3))
            recorded[0] += 3

    thread = threading.Thread(target=record)
    thread.start()
    run.recorder.close(PATIENCE_S)
    at_end = run.recorder.dropped().get(("kafka", "closed"), 0)
    stop.set()
    thread.join()
    found = missing(run.topic.records)
    assert found.ended
    late = run.recorder.dropped().get(("kafka", "closed"), 0) - topic_drops(run)
    arrived = sum(record.events for record in run.topic.records)
    assert topic_drops(run) <= at_end
    assert found.events + late == recorded[0] - arrived


def topic_drops(run: Run) -> int:
    return max(record.dropped for record in run.topic.records)


def test_a_life_that_was_cut_off_has_no_end() -> None:
    """Its batch was in hand when the time was over: whether it arrived, nobody can say."""
    entered, release = threading.Event(), threading.Event()
    topic, life = Topic(), TraceLife("w")

    class Stuck(ScriptedProducer):
        def produce(self, *arguments: Any, **options: Any) -> None:
            entered.set()
            assert release.wait(PATIENCE_S)
            super().produce(*arguments, **options)

    recorder = QueuedRecorder(
        {"kafka": lambda drops: KafkaSink(Stuck(topic, iter(())), "t", drops, life)}, buffer=100
    )
    recorder.record(events(10))
    assert entered.wait(PATIENCE_S)
    recorder.record(events(5))
    recorder.close(0.05)
    assert recorder.dropped() == {("kafka", "unfinished"): 10, ("kafka", "closing"): 5}
    release.set()
    recorder._queues[0]._thread.join(PATIENCE_S)
    assert [(r.first, r.events, r.dropped, r.end) for r in topic.records] == [(0, 10, 0, False)]
