"""Turns of a sender: a lease that lapses, a stop, a pause and a full buffer in the middle of one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from backends.kafka import topic_reader
from backends.kafka.clients import consumer
from hongyan_client.errors import BufferFull
from hongyan_client.records import Acknowledged, Record
from producer.campaigns.contract import Campaign, CampaignOvertaken, RunPlace
from producer.campaigns.crowd_file import CrowdReader, CrowdWatch, opened_crowd
from producer.campaigns.notifications import RowBuilder, RowChecks
from producer.campaigns.run_lease import RunLease
from producer.campaigns.run_opening import RunOpening
from producer.campaigns.run_sender import RunEnd, RunInput, RunSender, RunSurroundings
from producer.campaigns.run_store import RunProgress
from sending.runtime.clock import Clock
from tests.producer.campaigns.crowds import LANE, CampaignDesk, crowd

ROWS, LEASE_S = 300, 15.0


class Time:
    """A monotonic clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class MemoryDuties:
    """Duties under `Time`."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._rows: dict[str, tuple[str, float]] = {}

    def hold(self, duty: str, holder: str, lease_ms: int) -> bool:
        other, until = self._rows.get(duty, (holder, 0.0))
        if other != holder and until >= self._time():
            return False
        self._rows[duty] = holder, self._time() + lease_ms / 1_000
        return True

    def held(self, duties: Collection[str]) -> frozenset[str]:
        return frozenset(one for one in duties if self._rows.get(one, ("", 0.0))[1] >= self._time())

    def drop(self, duty: str, holder: str) -> None:
        if self._rows.get(duty, ("", 0.0))[0] == holder:
            del self._rows[duty]


class Publisher:
    """Acknowledges at once, after `at[n]` was called for the nth record."""

    def __init__(self) -> None:
        self.asked = 0
        self.taken: list[Record] = []
        self.at: dict[int, Callable[[], None]] = {}
        self.before: Callable[[], None] = lambda: None

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        self.asked += 1
        self.before()
        self.at.get(self.asked, lambda: None)()
        self.taken.append(record)
        future: Future[Acknowledged] = Future()
        future.set_result(Acknowledged(record.topic, 0, len(self.taken), 1))
        return future


class Scene:
    """One open run of ROWS rows. `sender` opens a process's sender at the checkpoint."""

    def __init__(self, desk: CampaignDesk, file: Path, stack: ExitStack, **options: Any) -> None:
        self.desk = desk
        self._stack = stack
        started = desk.started(file, **options)
        self.campaign: Campaign = desk.runs.open(started, started.next_at or 0)
        self.time = Time()
        self.duties = MemoryDuties(self.time)
        self.publisher = Publisher()
        self.stopping = False

    @property
    def run_id(self) -> str:
        return self.campaign.run_id or ""

    def lease(self, holder: str) -> RunLease:
        return RunLease(self.duties, self.campaign.id, holder, LEASE_S, self.time)

    def around(self, holder: str = "A") -> RunSurroundings:
        """The surroundings of a process that has the lease."""
        lease = self.lease(holder)
        assert lease.take()
        around = RunSurroundings(
            store=self.desk.store,
            runs=self.desk.runs,
            publisher=self.publisher,
            lease=lease,
            accepted=lambda *_: None,
            settled=lambda *_: None,
            stopping=lambda: self.stopping,
            clock=Clock(self.time),
            monotonic=self.time,
        )
        around.calibrate()
        return around

    def sender(self, holder: str = "A") -> RunSender:
        around, campaign, runs = self.around(holder), self.campaign, self.desk.runs
        run = runs.get(self.run_id)
        assert run is not None
        run = runs.write(run, RunProgress(run.reached, {0: 0}, (), 0))
        builder = RowBuilder(campaign, run.id, self.desk.checks, around.clock.now_ms)
        file = self._stack.enter_context(opened_crowd(campaign.crowd))
        reader, watch = CrowdReader(file, campaign.crowd, run.reached), CrowdWatch(campaign.crowd)
        given = RunInput(campaign, run, "t", reader, watch, builder, None, frozenset())
        sender = RunSender(given, around)
        self.time.now += 1.0  # the pace allows a block
        return sender

    def taken_over(self, *, dropped: bool) -> Callable[[], None]:
        """Returns a sleep past the lease, in which process B takes the run over."""

        def sleep() -> None:
            self.time.now += LEASE_S + 1
            other = self.lease("B")
            assert other.take()
            run = self.desk.runs.get(self.run_id)
            assert run is not None
            self.desk.runs.take_over(run)
            if dropped:
                other.drop()

        return sleep


@pytest.fixture
def scene(desk: CampaignDesk, tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(desk, crowd(tmp_path, ROWS), stack)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_process_that_slept_past_its_lease_produces_no_further_row(
    scene: Scene, dropped: bool
) -> None:
    """Whether the other process still has the lease or is done with the run."""
    scene.publisher.at[5] = scene.taken_over(dropped=dropped)
    with pytest.raises(CampaignOvertaken):
        scene.sender().run()
    assert len(scene.publisher.taken) == 5


def test_a_lease_that_nobody_took_meanwhile_is_taken_again(scene: Scene) -> None:
    def sleep() -> None:
        scene.time.now += LEASE_S + 1

    scene.publisher.at[5] = sleep
    scene.publisher.before = lambda: setattr(scene.time, "now", scene.time.now + 0.01)
    assert scene.sender().run() is RunEnd.DONE
    assert len(scene.publisher.taken) == ROWS


def test_a_stop_in_mid_turn_leaves_the_other_rows_to_the_next_sender(scene: Scene) -> None:
    scene.publisher.at[5] = lambda: setattr(scene, "stopping", True)
    assert scene.sender().run() is RunEnd.STOPPED
    assert len(scene.publisher.taken) == 5
    run = scene.desk.run_of(scene.campaign.id)
    assert (run.done, run.sent) == (5, 5)
    scene.stopping = False
    scene.publisher.before = lambda: setattr(scene.time, "now", scene.time.now + 0.01)
    assert scene.sender().run() is RunEnd.DONE
    ids = [dict(one.headers)["hongyan-id"] for one in scene.publisher.taken]
    assert len(set(ids)) == len(ids) == ROWS


def test_a_pause_is_obeyed_while_each_row_waits_for_room(scene: Scene) -> None:
    def pause() -> None:
        scene.desk.actions.pause(scene.campaign.id, who="wang", reason="wrong hour")

    scene.publisher.before = lambda: setattr(scene.time, "now", scene.time.now + 0.9)
    scene.publisher.at[3] = pause
    assert scene.sender().run() is RunEnd.STOPPED
    assert len(scene.publisher.taken) <= 5


def test_behind_a_row_without_room_the_others_do_not_wait(scene: Scene) -> None:
    """A turn waits once, and not once for each of its rows."""

    def full() -> None:
        raise BufferFull("full")

    sender = scene.sender()
    scene.publisher.before = full
    assert sender._take_rows() > 100
    assert scene.publisher.asked == 1
    scene.publisher.before = lambda: None
    sender._records.publish_again(lambda: True)
    assert len(scene.publisher.taken) == sender._rows_seen


def test_rows_that_go_again_ask_for_the_lease_too(scene: Scene) -> None:
    def full() -> None:
        raise BufferFull("full")

    sender = scene.sender()
    scene.publisher.before = full
    sender._take_rows()
    scene.publisher.before = lambda: None
    scene.publisher.at[5] = scene.taken_over(dropped=False)
    sender._records.publish_again(sender._goes_on)
    assert len(scene.publisher.taken) == 4
    assert sender._records.again == sender._rows_seen - 4


class SlowConsumer:
    """A consumer whose every poll takes a second; in it process B asks for the lease."""

    def __init__(self, consumer: Any, scene: Scene, had_by_b: list[bool]) -> None:
        self._consumer = consumer
        self._scene = scene
        self._had_by_b = had_by_b

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, *given: Any) -> Any:
        self._scene.time.now += 1.0
        self._had_by_b.append(self._scene.lease("B").take())
        return self._consumer.consume(*given)


def test_a_lease_is_kept_while_the_topics_tail_is_read_for_longer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, had_by_b = scene.desk, list[bool]()
    for number in range(200):
        topic = f"{desk.settings.kafka.topic_prefix}.dispatch.{LANE}"
        desk.publisher.publish(Record(topic, None, b"%d" % number, ()), 5.0).result(10)
    run = desk.run_of(scene.campaign.id)
    desk.runs.write(run, RunProgress(run.reached, {0: 0}, (), 0))

    def slow(*given: Any, **options: Any) -> SlowConsumer:
        return SlowConsumer(consumer(*given, **options), scene, had_by_b)

    monkeypatch.setattr(topic_reader, "_BATCH", 5)
    monkeypatch.setattr(topic_reader, "consumer", slow)
    opening = RunOpening(desk.settings.kafka, lambda: desk.checks)
    with opening.opened(scene.campaign, scene.around()) as sender:
        assert len(had_by_b) > LEASE_S
        assert not any(had_by_b)
        scene.publisher.before = lambda: setattr(scene.time, "now", scene.time.now + 0.01)
        assert sender.run() is RunEnd.DONE


def test_a_lapse_during_the_opening_is_seen_by_the_sender(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    """The process sleeps after it wrote the run's row, and finds its lease free again."""
    with ExitStack() as stack:
        scene = Scene(desk, crowd(tmp_path, ROWS), stack, once_per_receiver=True)
        run = desk.run_of(scene.campaign.id)
        with opened_crowd(scene.campaign.crowd) as file:
            (first,) = CrowdReader(file, scene.campaign.crowd, RunPlace()).take(1)
        reached = RunPlace(place=first.place, line=first.last_line, done=1, sent=1)
        desk.runs.write(run, RunProgress(reached, {}, (), 0))

        def checks() -> RowChecks:
            scene.taken_over(dropped=True)()
            return desk.checks

        opening = RunOpening(desk.settings.kafka, checks)
        sender = stack.enter_context(opening.opened(scene.campaign, scene.around()))
        scene.publisher.before = lambda: setattr(scene.time, "now", scene.time.now + 0.01)
        with pytest.raises(CampaignOvertaken):
            sender.run()
        assert not scene.publisher.taken
