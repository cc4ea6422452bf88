"""Celery schedules, and nothing depends on it: tasks may be lost, doubled or late."""

import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import MagicMock

import pytest
import redis
from structlog.testing import capture_logs

from backends.settings import SettingsError
from idempotency.ledger import LedgerUnavailable
from recovery.scheduling.celery_app import celery_app
from recovery.scheduling.celery_tasks import LOOK, RESEND, RESOLVE, Serving
from recovery.scheduling.leader_beat import scheduler_for
from simulator import Simulator
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, NAMES, Ground, until

pytestmark = pytest.mark.parametrize("url", ["postgresql"], indirect=True)


@pytest.fixture
def place(ground: MakeGround, redis_url: str, provider: Simulator) -> Ground:
    return ground(redis_url=redis_url)


@pytest.fixture
def broker(redis_url: str) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_celery_finds_what_is_due_and_sends_it_once(place: Ground) -> None:
    items = place.waiting(30)
    process = place.process("r1", embedded=False)
    place.await_states(SENT=30)
    assert place.accepted() == {item.key: 1 for item in items}
    assert '"scheduler": "Celery"' in place.log("r1")
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0, place.log("r1")


@pytest.mark.soak(small="::test_a_scheduler_without_the_duty_sends_nothing")
def test_of_two_schedulers_one_sends_and_the_other_takes_over(place: Ground) -> None:
    first = place.process("r1", embedded=False)
    place.await_states()
    until(lambda: _holder(place) == "r1")
    place.process("r2", embedded=False)
    items = place.waiting(10)
    place.await_states(SENT=10)
    assert _holder(place) == "r1"
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 0, place.log("r1")
    until(lambda: _holder(place) == "r2")
    items += place.waiting(10)
    place.await_states(SENT=20)
    assert place.accepted() == {item.key: 1 for item in items}


def test_doubled_and_senseless_tasks_change_nothing(place: Ground) -> None:
    place.process("r1", embedded=False)
    items = place.waiting(20)
    app = celery_app(place.settings, Serving(), NAMES.queue)
    for _ in range(20):
        app.send_task(RESEND, (LANE,))
        app.send_task(LOOK)
    for name in (RESEND, RESOLVE):
        app.send_task(name, ("sms.notice",))  # it serves no such lane
    place.await_states(SENT=20)
    items += place.waiting(1)
    place.await_states(SENT=21)
    assert place.accepted() == {item.key: 1 for item in items}
    assert "sms.notice" not in place.log("r1")


def test_a_broker_that_forgets_everything_costs_one_look(
    place: Ground, broker: "redis.Redis"
) -> None:
    place.process("r1", embedded=False)
    until(lambda: _holder(place) == "r1")
    broker.flushdb()
    items = place.waiting(5)
    place.await_states(SENT=5)
    assert place.accepted() == {item.key: 1 for item in items}


def test_a_scheduler_without_the_duty_sends_nothing(place: Ground) -> None:
    held = [False]
    app = celery_app(place.settings, Serving(), NAMES.queue)
    sent: list[str] = []
    scheduler: Any = scheduler_for(lambda lease_ms: held[0])(app=app)
    scheduler.apply_async = lambda entry, **_: sent.append(entry.task)
    for entry in scheduler.schedule.values():
        entry.last_run_at -= timedelta(hours=1)
    assert scheduler.tick() > 0
    assert sent == []
    held[0] = True
    until(lambda: (scheduler.tick(), LOOK in sent)[1])


def test_without_redis_there_is_no_celery(ground: MakeGround) -> None:
    with pytest.raises(SettingsError, match=r"redis\.url is empty.*--embedded"):
        celery_app(ground().settings, Serving(), NAMES.queue)


def test_a_task_outside_of_a_recovery_says_what_to_start(url: str) -> None:
    with pytest.raises(RuntimeError, match="hongyan recovery"):
        Serving()()


def _holder(place: Ground) -> str:
    with place.ledger.database.begin() as connection:
        found = connection.exec_driver_sql(f"SELECT holder FROM duties WHERE name = '{NAMES.duty}'")
        return str(found.scalar() or "")


def test_a_task_that_finds_the_ledger_away_says_so_and_ends(place: Ground) -> None:
    """As under the built-in loop: no error, nothing that Celery would print a traceback of."""
    serving, away = Serving(), LedgerUnavailable("away")
    serving.recovery = MagicMock(
        look=MagicMock(side_effect=away), resend=MagicMock(side_effect=away)
    )
    app = celery_app(place.settings, serving, NAMES.queue)
    with capture_logs() as told:
        app.tasks[LOOK]()
        app.tasks[RESEND](LANE)
    assert [(e["event"], e["job"]) for e in told] == [
        ("job_failed", "look"),
        ("job_failed", "resend"),
    ]
