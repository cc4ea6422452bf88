"""The drain: its order, its deadline, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.kafka.group_member import MemberFenced
from dispatcher.kafka.source import SourceFailed
from dispatcher.worker import LaneEntry, Worker, WorkerFailed, WorkerPhase, WorkerStages
from idempotency.ledger import LedgerUnavailable
from message.vocabulary import Lane
from policy.schema import LanePolicy
from sending.runtime.threads import ThreadGroup

LANE = Lane("webhook", "notice")
DRAIN_S = 10.0


class Double:
    """A stage that notes what is asked of it, as `name.method`."""

    def __init__(self, name: str, notes: list[str], **attributes: Any) -> None:
        self.__dict__.update(attributes)
        self._name, self._notes = name, notes

    def __getattr__(self, method: str) -> Callable[..., None]:
        return lambda *_: self._notes.append(f"{self._name}.{method}")


class Bench:
    """A worker of doubles; `rounds` are the source's rounds until the pool has settled everything."""

    def __init__(self, *, rounds: int = 2, unsettled: int = 3) -> None:
        self.notes: list[str] = []
        self.time = 100.0
        self.tick = 0.0
        """Time that passes at each look at the clock."""
        self.rounds = rounds
        self.stop = threading.Event()
        self.stop.set()
        note = self.notes
        self.pool: Any = Double(
            "pool",
            note,
            lane=LANE.name,
            policy=LanePolicy(),
            unsettled=unsettled,
            paused=False,
            busy=unsettled,
            queued=0,
        )
        self.source: Any = Double("source", note, busy=False, absence=None, run_once=self._round)
        self.lease: Any = Double("heart", note)
        self.outage = SimpleNamespace(stop=threading.Event(), on=False)
        self.settle: Any = Double("settle", note, run=self._settle, ended=True)
        self.completion: Any = Double("aftermath", note, run=lambda: None)
        self.settle_stopped = threading.Event()
        self.thread_group = ThreadGroup()
        idle: Callable[[], None] = lambda: None  # noqa: E731
        entry: Any = LaneEntry(
            Double("screen", note, run=idle),  # type: ignore[arg-type]
            Double("intake", note, run=idle),  # type: ignore[arg-type]
            [self.pool],  # type: ignore[list-item]
            SimpleQueue(),
        )
        stages: Any = WorkerStages(
            source=self.source,  # type: ignore[arg-type]
            entries=[entry],
            pools=[self.pool],  # type: ignore[list-item]
            settles=[self.settle],  # type: ignore[list-item]
            completion=self.completion,  # type: ignore[arg-type]
            dead_letters=Double("dead_letters", note, run=idle, spent=frozenset()),  # type: ignore[arg-type]
            topics=Double("topics", note, run=idle, nothing_to_read=None),  # type: ignore[arg-type]
            removed=Double("removed", note, run=idle),  # type: ignore[arg-type]
            lease=self.lease,  # type: ignore[arg-type]
            outage=self.outage,  # type: ignore[arg-type]
            upkeep=Double("upkeep", note, run=idle),  # type: ignore[arg-type]
            watch=Double("watch", note, run=idle),  # type: ignore[arg-type]
            control=Double("control", note, run=idle),  # type: ignore[arg-type]
            snapshot=Double("snapshot", note),  # type: ignore[arg-type]
            sums=Double("sums", note, run=idle),  # type: ignore[arg-type]
            thread_group=self.thread_group,
            clock=SimpleNamespace(monotonic=self._monotonic),  # type: ignore[arg-type]
        )
        self.stages = stages
        self.worker = Worker(stages, [LANE], DRAIN_S, self.stop)

    def drained(self) -> list[str]:
        """Runs the worker, which is asked to stop already; returns the notes of its drain."""
        self.worker.run()
        return self.notes[self.notes.index("heart.draining") :]

    def dies(self) -> None:
        """A thread's function."""
        raise RuntimeError("boom")

    def _monotonic(self) -> float:
        self.time += self.tick
        return self.time

    def _round(self) -> None:
        if self.worker.phase is WorkerPhase.RUNNING:
            return
        self.notes.append("source.run_once")
        self.time += 0.1
        self.rounds -= 1
        if self.rounds == 0:
            self.pool.unsettled = self.pool.busy = 0

    def _settle(self) -> None:
        """As the real thread, for the crew's sake: it ends at once here."""


def test_the_worker_drains_in_the_order_that_keeps_offsets_true() -> None:
    order = [note for note in Bench().drained() if note.split(".")[0] in IN_ORDER]
    assert order == [
        "heart.draining",
        "source.quiet",
        "intake.stop",
        "screen.stop",
        "pool.stop",
        "source.run_once",
        "source.run_once",
        "settle.stop",
        "pool.close",
        "source.flush_commits",
        "source.close",
        "heart.stop",
        "heart.retire",
    ]


IN_ORDER = {"heart", "source", "intake", "screen", "pool", "settle"}


def test_a_drained_worker_left_nothing_and_stopped() -> None:
    bench = Bench()
    bench.drained()
    assert bench.worker.left == 0
    assert bench.worker.phase is WorkerPhase.STOPPED
    assert not bench.outage.stop.is_set(), "settle may wait for a database that is away"


def test_the_deadline_ends_the_wait_and_the_rest_is_left_to_the_ledger() -> None:
    bench = Bench(rounds=10_000)
    notes = bench.drained()
    assert bench.worker.left == 3
    assert bench.time - 100.0 < DRAIN_S, "the last commit has time, too"
    assert bench.outage.stop.is_set(), "nobody waits for a database any longer"
    assert notes.index("settle.stop") < notes.index("source.flush_commits")


def test_a_thread_that_died_ends_the_worker_loudly_after_its_drain() -> None:
    bench = Bench(rounds=10_000)
    bench.stop.clear()
    bench.settle.run = bench.dies
    with pytest.raises(WorkerFailed, match="thread settle-0 died: RuntimeError"):
        bench.worker.run()
    assert "heart.retire" in bench.notes
    assert bench.worker.phase is WorkerPhase.STOPPED


def test_calls_under_way_end_and_are_settled_after_another_thread_died() -> None:
    bench = Bench(rounds=30)
    bench.stop.clear()
    bench.stages.topics.run = bench.dies
    with pytest.raises(WorkerFailed, match="thread topics died: RuntimeError"):
        bench.worker.run()
    assert (bench.worker.left, bench.rounds) == (0, 0)


def test_what_only_the_dead_thread_could_end_is_waited_for_a_second_and_no_longer() -> None:
    bench = Bench(rounds=10_000)
    bench.pool.busy = 0
    bench.stop.clear()
    bench.stages.entries[0].intake.run = bench.dies
    with pytest.raises(WorkerFailed, match="thread intake-0 died"):
        bench.worker.run()
    assert bench.worker.left == 3
    assert bench.time - 100.0 < DRAIN_S / 2


@pytest.mark.parametrize("failure", [SourceFailed("gone"), MemberFenced("another has the id")])
def test_calls_under_way_end_and_are_settled_after_the_consumer_failed(
    failure: Exception,
) -> None:
    bench = Bench(rounds=10_000)
    bench.stop.clear()
    bench.tick = 0.1
    asked: list[str] = []

    def fails() -> None:
        asked.append("run_once")
        threading.Timer(0.05, settled).start()
        raise failure

    def settled() -> None:
        bench.pool.unsettled = bench.pool.busy = 0

    bench.source.run_once = fails
    with pytest.raises(type(failure)):
        bench.worker.run()
    assert asked == ["run_once"], "it is not asked again"
    assert bench.worker.left == 0
    assert bench.worker.phase is WorkerPhase.STOPPED
    assert bench.notes.index("settle.stop") < bench.notes.index("heart.retire")


@pytest.mark.parametrize("method", ["run_once", "flush_commits"])
def test_a_consumer_that_fails_during_the_drain_does_not_end_it(method: str) -> None:
    bench = Bench()
    bench.pool.unsettled = 0 if method == "flush_commits" else 3
    bench.tick = 0.1

    def fails(*_: Any) -> None:
        bench.pool.unsettled = 0
        raise MemberFenced("another has the id")

    setattr(bench.source, method, fails)
    with pytest.raises(MemberFenced):
        bench.worker.run()
    assert bench.worker.phase is WorkerPhase.STOPPED
    assert "heart.retire" in bench.notes


def test_completion_ends_after_the_last_settle() -> None:
    bench = Bench()
    settles: Any = [Double("settle", bench.notes, run=bench._settle, ended=False) for _ in "12"]
    first, second = settles
    worker = Worker(bench.stages._replace(settles=settles), [LANE], DRAIN_S, bench.stop)
    first.ended = True
    worker._settle(first)
    assert "aftermath.stop" not in bench.notes, "the other may bring a further batch"
    second.ended = True
    worker._settle(second)
    assert bench.notes.count("aftermath.stop") == 1


def test_a_ledger_that_is_away_does_not_hold_up_the_end() -> None:
    bench = Bench()

    def retire() -> None:
        raise LedgerUnavailable("away")

    bench.lease.retire = retire
    bench.drained()
    assert bench.worker.phase is WorkerPhase.STOPPED


def test_a_second_request_to_stop_changes_nothing() -> None:
    bench = Bench()
    bench.worker.stop()
    notes = bench.drained()
    bench.worker.stop()
    assert notes.count("source.quiet") == 1
    assert bench.worker.phase is WorkerPhase.STOPPED


def test_orders_are_read_before_anything_is_claimed() -> None:
    bench = Bench()
    bench.worker.run()
    assert bench.notes.index("control.look") < bench.notes.index("pool.start")


def test_the_partitions_of_a_paused_lane_are_closed() -> None:
    bench = Bench()
    closed: list[frozenset[Lane]] = []
    bench.pool.lane, bench.pool.paused = LANE, True
    bench.source.close_lanes = closed.append
    bench.worker.run_once()
    bench.pool.paused = False
    bench.worker.run_once()
    assert closed == [{LANE}, frozenset()]
