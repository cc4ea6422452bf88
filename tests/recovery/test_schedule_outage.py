"""Celery's broker away, or its keys of a wrong type: recovery goes on by itself, and says so once."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, cast
from urllib.request import urlopen

import pytest
import redis
from structlog.testing import capture_logs

from backends.settings import RedisSettings
from deploy.local.stack import Stack
from idempotency.ledger import LedgerUnavailable
from idempotency.recovery.contract import DueBacklog
from recovery.activity import Activity
from recovery.backlog_gauges import BacklogGauges
from recovery.scheduling.celery_app import celery_app, key_prefix
from recovery.scheduling.celery_keys import key_types
from recovery.scheduling.celery_tasks import LOOK, Serving
from recovery.scheduling.deaf_worker import DEAF_S, DeafWorkerWatch
from recovery.scheduling.stand_in import StandIn
from tests.harness.fork_server import Process
from tests.idempotency.making import wait_until
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, NAMES, Ground, until

PrivateStack = Callable[..., AbstractContextManager[Stack]]
on_postgres = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def place(ground: MakeGround, redis_url: str) -> Ground:
    return ground(redis_url=redis_url)


@pytest.fixture
def broker(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def lines(place: Ground, name: str, event: str) -> list[dict[str, Any]]:
    entries = (json.loads(line) for line in place.log(name).splitlines() if line[:1] == "{")
    return [entry for entry in entries if entry["event"] == event]


def broker_troubles(place: Ground, name: str) -> list[str]:
    """Causes that name the broker. On a busy machine Celery is silent before the outage, too."""
    told = lines(place, name, "celery_silent") + lines(place, name, "celery_trouble")
    causes = [str(entry["cause"]) for entry in told]
    return [one for one in causes if "ConnectionError" in one or "OperationalError" in one]


def page(place: Ground, name: str, path: str) -> str:
    (started,) = lines(place, name, "recovery_started")
    with urlopen(f"http://{started['health']}{path}", timeout=5) as answer:
        return str(answer.read().decode())


def await_celery(place: Ground, process: Process) -> None:
    """Waits until Celery calls the jobs of "r1" again. A failure shows its log and its threads."""
    try:
        until(lambda: lines(place, "r1", "celery_back"))
    except AssertionError:
        process.send_signal(signal.SIGUSR1)
        with suppress(AssertionError):
            wait_until(lambda: lines(place, "r1", "stack_dump"), 5)
        raise AssertionError(f"Celery is not back:\n{place.log('r1')}") from None


# -- Redis away --


@on_postgres
def test_while_redis_is_away_recovery_goes_on_and_says_so_once(
    ground: MakeGround, private_stack: PrivateStack
) -> None:
    with private_stack(only=["redis"]) as stack:
        place = ground(redis_url=stack.redis_url)
        process = place.process("r1", embedded=False)
        items = place.waiting(5)
        place.await_states(SENT=5)
        stack.stop("redis")
        until(lambda: broker_troubles(place, "r1"))
        before = len(place.log("r1").splitlines())
        for count in (10, 15, 20):
            items += place.waiting(5)
            place.await_states(SENT=count, timeout_s=20)
            assert '"reason": null' in page(place, "r1", "/readyz")
        assert len(broker_troubles(place, "r1")) == 1
        stack.start("redis")
        await_celery(place, process)
        items += place.waiting(5)
        place.await_states(SENT=25)
        process.terminate()
        assert process.wait(30) == 0, place.log("r1")
    assert place.accepted() == {item.key: 1 for item in items}
    log = place.log("r1")
    assert "Traceback" not in log
    assert "exception" not in log
    assert len(log.splitlines()) - before < 20, log
    assert all(line.startswith("{") for line in log.splitlines()), log


@on_postgres
@pytest.mark.soak(small="::test_while_redis_is_away_recovery_goes_on_and_says_so_once")
def test_a_recovery_that_starts_while_redis_is_away_works(
    ground: MakeGround, private_stack: PrivateStack
) -> None:
    with private_stack(only=["redis"]) as stack:
        place = ground(redis_url=stack.redis_url)
        stack.stop("redis")
        place.waiting(5)
        process = place.process("r1", embedded=False)
        place.await_states(SENT=5)
        process.terminate()
        assert process.wait(30) == 0, place.log("r1")


@on_postgres
def test_a_worker_that_reads_no_queue_is_replaced_and_recovery_goes_on_meanwhile(
    place: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST_CELERY_DEAF", "1")
    process = place.process("r1", embedded=False)
    place.waiting(5)
    place.await_states(SENT=5)
    await_celery(place, process)
    deaf = lines(place, "r1", "celery_worker_deaf")[0]
    assert deaf["cause"] == "tasks wait in Redis, and its worker reads none"
    place.waiting(5)
    place.await_states(SENT=10)
    process.terminate()
    assert process.wait(30) == 0, place.log("r1")
    assert "Traceback" not in place.log("r1")


# -- keys of a wrong type --


def test_the_names_and_types_of_celerys_keys_are_what_it_really_uses(
    ground: MakeGround, broker: redis.Redis, redis_url: str
) -> None:
    place = ground(redis_url=redis_url)
    app = celery_app(place.settings, Serving(), NAMES.queue)
    app.send_task(LOOK)
    known = key_types(key_prefix(place.settings), NAMES.queue)
    keys = cast("list[bytes]", broker.keys("*celery*"))
    found = {key.decode(): cast("bytes", broker.type(key)).decode() for key in keys}
    assert found
    assert found.items() <= known.items()


@on_postgres
@pytest.mark.parametrize(
    "key", ["unacked", "unacked_index", NAMES.queue, f"_kombu.binding.{NAMES.queue}"]
)
@pytest.mark.soak(cases="recovery")
@pytest.mark.soak(cases="unacked_index")
def test_a_key_of_a_wrong_type_is_named_and_moved_aside_at_the_start(
    place: Ground, broker: redis.Redis, key: str
) -> None:
    name = f"{key_prefix(place.settings)}{key}"
    broker.set(name, "somebody else's")
    items = place.waiting(5)
    process = place.process("r1", embedded=False)
    place.await_states(SENT=5)
    until(lambda: broker.type(f"{key_prefix(place.settings)}{NAMES.queue}") != b"string")
    (moved,) = lines(place, "r1", "celery_key_moved")
    assert moved["key"] == name
    assert broker.get(moved["to"]) == b"somebody else's"
    assert process.poll() is None
    assert place.accepted() == {item.key: 1 for item in items}


@on_postgres
@pytest.mark.parametrize("key", ["unacked", "unacked_index", NAMES.queue])
@pytest.mark.soak(cases="recovery")
@pytest.mark.soak(cases="unacked_index")
def test_a_key_that_turns_wrong_while_celery_runs_ends_nothing(
    place: Ground, broker: redis.Redis, key: str
) -> None:
    process = place.process("r1", embedded=False)
    place.waiting(5)
    place.await_states(SENT=5)
    name = f"{key_prefix(place.settings)}{key}"
    with broker.pipeline() as pipe:
        pipe.delete(name)
        pipe.set(name, "somebody else's")
        pipe.execute()
    place.waiting(5)
    place.await_states(SENT=10)
    until(lambda: lines(place, "r1", "celery_key_moved"))
    place.waiting(5)
    place.await_states(SENT=15)
    assert process.poll() is None
    assert "Traceback" not in place.log("r1")


# -- who stands in, and when --


class Counted:
    """Jobs that only count."""

    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> tuple[list[str], list[str]]:
        self.looks += 1
        return [], []

    def resend(self, lane: str) -> int:
        return 0

    def resolve(self, lane: str) -> int:
        return 0

    def tidy(self) -> None: ...

    def enter_lost(self) -> int:
        return 0

    def run_jobs(self) -> int:
        return 0


def test_the_built_in_schedule_looks_only_while_celery_is_silent() -> None:
    time, jobs, mended = Time(), Counted(), []
    activity = Activity(time)
    one = StandIn(jobs, activity, poll_s=1.0, stop=threading.Event(), mend=lambda: mended.append(1))
    with ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        one.run_once(pool)
        time.now = 5.0
        activity.note("ConnectionError: refused")
        one.run_once(pool)
        one.run_once(pool)
        assert jobs.looks == 2
        assert mended
        with activity.job():
            time.now = 100.0
            one.run_once(pool)
        one.run_once(pool)
        assert jobs.looks == 2, "a job that runs long is no silence"
    assert [(e["event"], e.get("cause")) for e in logs] == [
        ("celery_silent", "ConnectionError: refused"),
        ("celery_back", None),
    ]


class Watched:
    """A watch of a queue, and the times at which it ended a worker."""

    def __init__(self) -> None:
        self.time = Time()
        self.activity = Activity(self.time)
        self.waiting, self.ended = 3, list[float]()
        self.watch = DeafWorkerWatch(
            lambda: self.waiting,
            self.activity.silent_s,
            lambda: self.ended.append(self.time.now),
            monotonic=self.time,
        )

    def look(self) -> None:
        self.time.now += 1.0
        self.watch.look()


def test_a_worker_is_ended_once_its_queue_was_never_empty_in_one_silence() -> None:
    one = Watched()
    for _ in range(40):
        one.look()
    assert one.ended == [1.0 + DEAF_S, 2.0 + 2 * DEAF_S]


def test_a_worker_whose_queue_was_empty_meanwhile_goes_on() -> None:
    one = Watched()
    for second in range(60):
        one.waiting = 0 if second % DEAF_S == 0 else 3
        one.look()
    assert one.ended == []


def test_a_worker_that_ran_a_task_between_two_looks_goes_on() -> None:
    one = Watched()
    for second in range(60):
        if second % DEAF_S == 0:
            with one.activity.job():
                pass
        one.look()
    assert one.ended == []


def test_a_cause_that_comes_late_is_told_once_and_forgotten_with_the_silence() -> None:
    time = Time()
    activity = Activity(time)
    one = StandIn(Counted(), activity, poll_s=1.0, stop=threading.Event(), mend=lambda: None)
    with ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        for _ in range(2):
            time.now += 5.0
            one.run_once(pool)
            activity.note("ConnectionError: refused")
            one.run_once(pool)
            activity.note("ConnectionError: refused again")
            one.run_once(pool)
            with activity.job():
                pass
            one.run_once(pool)
    told = [(e["event"], e.get("cause")) for e in logs]
    assert told == 2 * [
        ("celery_silent", "no task arrived"),
        ("celery_trouble", "ConnectionError: refused"),
        ("celery_back", None),
    ]


def test_a_recovery_whose_schedule_calls_nothing_is_not_ready(ground: MakeGround) -> None:
    with ground().recovery() as opened:
        opened.recovery.start()
        good, shown = opened.health.ready()
        assert (good, shown["reason"]) == (True, None)
        silent = opened.recovery._parts.schedule
        silent._last_at -= 16
        good, shown = opened.health.ready()
        assert not good
        assert re.fullmatch(r"the schedule has called nothing for \d\d s", shown["reason"])
        opened.recovery.look()
        assert opened.health.ready()[0]
        silent._last_at -= 61
        assert opened.health.alive()[1]["stuck"] == ["schedule"]


def test_a_recovery_whose_ledger_is_slow_says_so_and_not_that_it_is_away(
    ground: MakeGround,
) -> None:
    slow = "the ledger's database took too long: statement cancelled"
    causes = iter([slow])
    with ground().recovery() as opened:
        shown: list[tuple[bool, Any]] = []

        def call() -> None:
            shown.append((opened.health.ready()[0], opened.health.ready()[1]["reason"]))
            if (cause := next(causes, None)) is not None:
                raise LedgerUnavailable(cause)

        opened.recovery.start()
        opened.recovery._parts.outage.until_available("test", call)
        assert shown == [(True, None), (False, slow)]
        assert opened.health.ready()[0]


# -- what waits is measured by each recovery itself --


def test_what_nobody_measured_is_not_shown_as_zero() -> None:
    time = Time()
    gauges = BacklogGauges(time)
    assert not list(gauges.readings())
    gauges.show([DueBacklog(LANE, 5, 1, 2_000, 0)], 30.0)
    shown = {one.family.name: one.value for one in gauges.readings() if one.labels["lane"] == LANE}
    assert shown["hongyan_recovery_due"] == 5
    time.now = 30.0
    assert list(gauges.readings()) == [], "an old number says nothing of now"


def test_a_recovery_measures_without_any_schedule(ground: MakeGround) -> None:
    one = ground()
    one.waiting(3)
    with one.recovery() as opened:
        registry = opened.metrics.registry

        def due() -> float | None:
            return registry.get_sample_value("hongyan_recovery_due", {"lane": LANE})

        assert due() is None
        opened.recovery.start()
        until(lambda: due() == 3)


def test_a_look_at_a_ledger_that_is_away_is_told_once() -> None:
    class Away(Counted):
        def look(self) -> tuple[list[str], list[str]]:
            raise LedgerUnavailable("gone")

    time = Time()
    one = StandIn(Away(), Activity(time), poll_s=1.0, stop=threading.Event(), mend=lambda: None)
    time.now = 10.0
    with ThreadPoolExecutor(1) as pool, capture_logs() as logs:
        for _ in range(3):
            one.run_once(pool)
    assert [e["event"] for e in logs] == ["celery_silent", "look_failed"]


def test_a_redis_that_does_not_answer_leaves_keys_as_they_are() -> None:
    from recovery.scheduling.celery_keys import CeleryKeys

    keys = CeleryKeys(RedisSettings(url="redis://127.0.0.1:1/0"), "p:", NAMES.queue)
    keys.mend()
    assert keys.waiting() == 0
    keys.close()
