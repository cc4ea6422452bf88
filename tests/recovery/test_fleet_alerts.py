"""The fleet's alerts in the ledger: tails, posts that failed, what is over, silences, who was lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from backends.settings import AlertSettings
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger
from message.states import Event
from sending.alerts.fleet import CLEAR_S, LEASE_S, FleetAlerts
from sending.alerts.notifier import Alert, AlertNotifier
from sending.alerts.rules import AlertMonitor, RuleEvaluator, parked, rules_of
from tests.idempotency.making import World, claimed, delivery, settle, worker
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE
from tests.recovery.test_policy import apply, started

WINDOW_S = 60.0
WINDOW_MS = 60_000
LAG = Alert("lag", "sms.notice", "", "far behind")


class Hook:
    """A webhook that takes what it gets, or says why not."""

    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.error: str | None = None
        self._lock = threading.Lock()

    def __call__(self, body: Mapping[str, Any]) -> str | None:
        with self._lock:
            if self.error is None:
                self.heard.append(body)
        return self.error

    def said(self) -> list[tuple[str, str, int]]:
        return [(body["rule"], body["state"], body["count"]) for body in self.heard]


class Process:
    """One process's desk and watch over the fleet, on a ledger that others share."""

    def __init__(self, ledger: SqlLedger, name: str, hook: Hook | None, **settings: Any) -> None:
        alerts = AlertSettings(**{"window_s": WINDOW_S, **settings})
        self.registry = CollectorRegistry()
        self.seconds = 0.0
        self.desk = AlertNotifier(
            self.registry, WINDOW_S, windows=ledger.alerting(), post=hook, name=name
        )
        self.fleet = FleetAlerts(
            self.desk,
            ledger.fleet_health(),
            ledger.duties(),
            alerts,
            ["sms.notice", LANE],
            pauses=ledger.controls(),
            monotonic=lambda: self.seconds,
        )

    def look(self) -> None:
        self.desk.flush()
        self.fleet.look()


@pytest.fixture
def hook() -> Hook:
    return Hook()


def advance(world: World, seconds: float, *processes: Process) -> None:
    world.advance(int(seconds * 1_000))
    for one in processes:
        one.seconds += seconds


# -- the tail --


def test_what_was_kept_back_is_told_when_the_window_ends(world: World, hook: Hook) -> None:
    """Three are told, fifty more come up, and then it is quiet."""
    ledger = world.open()
    first, second = (Process(ledger, name, hook) for name in ("w1", "w2"))
    first.desk.raise_(parked("sms.notice", "unproven"), 3)
    first.look()
    for _ in range(50):
        second.desk.raise_(parked("sms.notice", "unproven"))
    second.look()
    advance(world, WINDOW_S - 1, first, second)
    first.look()
    assert hook.said() == [("parked", "firing", 3)]
    advance(world, 1, first, second)
    second.look()
    first.look()
    assert hook.said() == [("parked", "firing", 3), ("parked", "firing", 50)]
    advance(world, 10 * WINDOW_S, first, second)
    first.look()
    assert len(hook.heard) == 2, "nothing more came up"


def test_a_process_that_is_gone_leaves_its_tail_to_the_others(world: World, hook: Hook) -> None:
    ledger = world.open()
    gone, other = (Process(ledger, name, hook) for name in ("w1", "w2"))
    gone.desk.raise_(parked("sms.notice", "unproven"), 3)
    gone.look()
    gone.desk.raise_(parked("sms.notice", "unproven"), 4)
    gone.look()
    advance(world, WINDOW_S, other)
    other.look()
    assert hook.said() == [("parked", "firing", 3), ("parked", "firing", 4)]


def test_what_was_kept_back_while_the_ledger_was_away_is_counted_afterwards(
    world: World, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook)

    def away(*_: Any) -> Any:
        raise LedgerUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(one.desk._windows, "note", away)
        one.desk.raise_(parked("sms.notice", "unproven"), 3)
        one.desk.flush()
        one.desk.raise_(parked("sms.notice", "unproven"), 4)
        one.desk.flush()
    assert hook.said() == [("parked", "firing", 3)]
    one.desk.raise_(parked("sms.notice", "unproven"), 5)
    one.look()
    assert hook.said()[1:] == [("parked", "firing", 9)]


# -- the webhook --


def test_a_post_that_failed_is_made_later_by_whoever_claims_it(world: World, hook: Hook) -> None:
    ledger = world.open()
    first, second = (Process(ledger, name, hook) for name in ("w1", "w2"))
    hook.error = "503"
    first.desk.raise_(parked("sms.notice", "unproven"), 3)
    first.look()
    second.look()
    (shown,) = ledger.alert_book().alerts()
    assert (shown.not_posted, shown.kept) == ("503", 0)
    hook.error = None
    second.look()
    assert hook.heard == [], "its pause is not over"
    advance(world, 10, second)
    second.look()
    first.look()
    ((body),) = hook.heard
    assert (body["count"], body["from"], body["state"]) == (3, "w1", "firing")
    (shown,) = ledger.alert_book().alerts()
    assert shown.not_posted == ""


def test_a_process_that_died_while_it_posted_is_replaced_after_its_lease(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    silent, other = Process(ledger, "w1", None), Process(ledger, "w2", hook)
    silent.desk.raise_(parked("sms.notice", "unproven"), 3)
    silent.desk.flush()
    assert ledger.alerting().claim_post(20_000) is not None, "claimed, and never heard of again"
    other.look()
    assert hook.heard == []
    advance(world, 20, other)
    other.look()
    assert hook.said() == [("parked", "firing", 3)]


def test_what_is_told_while_a_post_is_under_way_is_posted_after_it(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    one, windows = Process(ledger, "w1", None), ledger.alerting()
    one.desk.raise_(parked("sms.notice", "unproven"), 3)
    one.desk.flush()
    post = windows.claim_post(20_000)
    assert post is not None
    advance(world, WINDOW_S)
    one.desk.raise_(parked("sms.notice", "unproven"), 4)
    one.desk.flush()
    windows.posted(post)
    more = windows.claim_post(20_000)
    assert more is not None
    assert more.report.count == 4
    windows.posted(more)
    assert windows.claim_post(20_000) is None


def test_many_processes_at_once_tell_and_post_exactly_what_came_up(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    processes = [Process(ledger, f"w{n}", hook) for n in range(6)]
    rounds, subjects = 5, 4

    def work(one: Process, barrier: threading.Barrier) -> None:
        for _ in range(rounds):
            barrier.wait()
            for number in range(subjects):
                one.desk.raise_(parked("sms.notice", f"reason-{number}"))
            one.look()

    barrier = threading.Barrier(len(processes))
    threads = [threading.Thread(target=work, args=(p, barrier)) for p in processes]
    with capture_logs() as logs:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(hook.heard) == subjects, "once in a window, whoever asks"
        advance(world, WINDOW_S, *processes)
        for one in processes:
            one.look()
    counts: Counter[str] = Counter()
    for body in hook.heard:
        counts[body["about"]] += body["count"]
    assert counts == {f"reason-{n}": rounds * len(processes) for n in range(subjects)}
    assert len([x for x in logs if x["event"] == "alert"]) == len(hook.heard) == 2 * subjects


# -- what is over --


def test_what_is_over_is_told_once_nobody_raises_it(world: World, hook: Hook) -> None:
    ledger = world.open()
    one, other = (Process(ledger, name, hook) for name in ("w1", "w2"))
    for _ in range(4):
        one.desk.raise_(LAG, 1)
        one.look()
        other.desk.raise_(LAG, 1)
        other.look()
        advance(world, 5, one, other)
    assert hook.said() == [("lag", "firing", 1)], "it began once, whoever sees it"
    advance(world, CLEAR_S - 5.1, one, other)
    one.look()
    assert len(hook.heard) == 1
    advance(world, 0.2, one, other)
    one.look()
    other.look()
    assert hook.said()[1:] == [("lag", "cleared", 0)]
    assert ledger.alert_book().alerts() == []
    (shown,) = ledger.alert_book().alerts(every=True)
    assert shown.state == "cleared"


def test_one_that_came_back_within_its_window_is_told_at_its_end_as_it_stands(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook)
    one.desk.raise_(LAG)
    one.look()
    advance(world, CLEAR_S, one)
    one.look()
    assert hook.said() == [("lag", "firing", 1), ("lag", "cleared", 0)]
    one.desk.raise_(LAG)
    one.look()
    advance(world, WINDOW_S - CLEAR_S - 1, one)
    one.look()
    assert len(hook.heard) == 2
    advance(world, 2, one)
    one.look()
    assert hook.said()[2:] == [("lag", "cleared", 1)], "it came up again, and is over"


def test_one_that_goes_on_is_told_again_in_each_window(world: World, hook: Hook) -> None:
    one = Process(world.open(), "w1", hook)
    for _ in range(13):
        one.desk.raise_(LAG, 0)
        one.look()
        advance(world, 5, one)
    assert hook.said() == [("lag", "firing", 1), ("lag", "firing", 0)]


def test_after_an_outage_of_the_ledger_nothing_is_taken_for_over(
    world: World, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = world.open()
    ledger.register(worker("w9"))
    one = Process(ledger, "w1", hook)
    one.desk.raise_(LAG)
    one.look()

    def away(*_: Any) -> Any:
        raise LedgerUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(one.fleet._duties, "hold", away)
        one.fleet.look()
    advance(world, 10 * CLEAR_S)
    one.seconds += CLEAR_S - 1
    one.look()
    assert hook.said() == [("lag", "firing", 1)], "nobody could raise it, and no heart could beat"


def test_what_happened_is_listed_until_its_window_ends_and_never_cleared(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook)
    one.desk.raise_(parked("sms.notice", "unproven"))
    one.look()
    (shown,) = ledger.alert_book().alerts()
    assert (shown.state, shown.lane, shown.about) == ("firing", "sms.notice", "unproven")
    advance(world, WINDOW_S, one)
    one.look()
    assert ledger.alert_book().alerts() == []
    assert [a.state for a in ledger.alert_book().alerts(every=True)] == ["ended"]
    assert hook.said() == [("parked", "firing", 1)]


# -- silences --


@pytest.mark.parametrize("subject", ["", "sms.notice unproven"])
def test_a_silenced_alert_is_counted_and_listed_and_not_posted_until_the_silence_ends(
    world: World, hook: Hook, subject: str
) -> None:
    ledger = world.open()
    one, book = Process(ledger, "w1", hook), ledger.alert_book()
    book.silence("parked", subject, 600_000, author="lin", reason="known")
    with capture_logs() as logs:
        for _ in range(3):
            one.desk.raise_(parked("sms.notice", "unproven"), 2)
            one.look()
    assert [x for x in logs if x["event"] == "alert"] == []
    (shown,) = book.alerts()
    assert (shown.silenced, shown.silenced_by, shown.silenced_why) == (6, "lin", "known")
    assert shown.told_at is None
    assert [s.subject for s in book.silences()] == [subject]
    one.desk.raise_(Alert("retries_spent", "sms.notice", "attempts_spent", "another"))
    one.look()
    assert hook.said() == [("retries_spent", "firing", 1)]
    advance(world, 600, one)
    assert book.silences() == []
    one.look()
    assert len(hook.heard) == 1, "what was counted in a silence is not told after it"
    one.desk.raise_(parked("sms.notice", "unproven"))
    one.look()
    assert hook.said()[1:] == [("parked", "firing", 1)]


def test_a_silence_of_another_subject_silences_nothing_here(world: World, hook: Hook) -> None:
    ledger = world.open()
    one, book = Process(ledger, "w1", hook), ledger.alert_book()
    book.silence("parked", "sms.marketing unproven", 600_000, author="lin", reason="known")
    one.desk.raise_(parked("sms.notice", "unproven"))
    one.look()
    assert len(hook.heard) == 1


def test_what_still_goes_on_after_a_silence_is_told_and_what_ended_in_it_is_closed(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    one, book = Process(ledger, "w1", hook), ledger.alert_book()
    one.desk.raise_(LAG)
    one.look()
    book.silence("lag", "", 600_000, author="lin", reason="a burst")
    for _ in range(20):
        advance(world, 20, one)
        one.desk.raise_(LAG, 0)
        one.look()
    assert hook.said() == [("lag", "firing", 1)]
    assert book.unsilence("lag", "")
    assert not book.unsilence("lag", "")
    one.desk.raise_(LAG, 0)
    one.look()
    assert hook.said()[1:] == [("lag", "firing", 0)]
    book.silence("lag", "", 600_000, author="lin", reason="a burst")
    advance(world, CLEAR_S, one)
    one.look()
    assert hook.said()[2:] == [("lag", "cleared", 0)], "who was called has to hear that it is over"


# -- what the ledger knows of the fleet --


def test_one_lost_worker_is_one_alert_counted_once(world: World, hook: Hook) -> None:
    ledger = world.open()
    ledger.register(worker("lost"))
    processes = [Process(ledger, name, hook) for name in ("w1", "w2", "w3")]
    advance(world, 20, *processes)
    for _ in range(100):
        for one in processes:
            one.look()
        advance(world, 5, *processes)
    assert hook.said() == [("heartbeat_lost", "firing", 1)]
    labels = {"rule": "heartbeat_lost", "lane": ""}
    counted = [p.registry.get_sample_value("hongyan_alerts_total", labels) for p in processes]
    assert [n for n in counted if n] == [1]
    ledger.register(worker("lost"))
    advance(world, 20, *processes)
    processes[0].look()
    processes[1].look()
    assert hook.said()[1:] == [("heartbeat_lost", "firing", 1)], "another life, another loss"


def test_the_duty_moves_when_its_holder_is_gone(world: World, hook: Hook) -> None:
    ledger = world.open()
    first, second = (Process(ledger, name, hook) for name in ("w1", "w2"))
    first.look()
    ledger.register(worker("lost"))
    advance(world, LEASE_S - 0.1, second)
    second.look()
    assert hook.heard == []
    advance(world, 5, second)
    second.look()
    assert hook.said() == [("heartbeat_lost", "firing", 1)]
    second.fleet.stop()
    first.look()
    assert ledger.duties().hold("alerts", first.fleet._holder, 1_000)


@pytest.mark.parametrize(("event", "about"), [(Event.NOT_SENT, "due"), (Event.UNKNOWN, "doubt")])
def test_without_any_recovery_workers_say_that_what_is_due_waits(
    world: World, hook: Hook, event: Event, about: str
) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook, overdue_s=120.0)
    (item,) = claimed(ledger, delivery(), owner="w0")
    assert settle(ledger, item, event, reason="http_429")
    advance(world, 119, one)
    one.look()
    assert "recovery_overdue" not in {rule for rule, *_ in hook.said()}
    advance(world, 10, one)
    one.look()
    late = [body for body in hook.heard if body["rule"] == "recovery_overdue"]
    assert [(b["lane"], b["about"], b["state"]) for b in late] == [("sms.notice", about, "firing")]
    gauges = {(r.labels["lane"], r.labels["about"]): r.value for r in one.fleet.readings()}
    assert gauges["sms.notice", about] == pytest.approx(129.0)
    assert gauges[LANE, "due"] == 0.0
    one.seconds += 31
    assert list(one.fleet.readings()) == [], "an old number says nothing of now"


def test_a_lane_that_is_paused_for_long_is_told_and_its_due_rows_are_not(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook, overdue_s=120.0, paused_s=300.0)
    (item,) = claimed(ledger, delivery(), owner="w0")
    assert settle(ledger, item, Event.NOT_SENT, reason="http_429")
    ledger.controls().pause(["sms.notice"], None, author="li", reason="campaign")
    advance(world, 299, one)
    one.look()
    assert not {"recovery_overdue", "lane_paused"} & {rule for rule, *_ in hook.said()}
    advance(world, 1, one)
    one.look()
    (told,) = [body for body in hook.heard if body["rule"] == "lane_paused"]
    assert (told["lane"], told["state"]) == ("sms.notice", "firing")
    assert "300 s" in told["text"]
    ledger.controls().resume(["sms.notice"], author="li", reason="")
    advance(world, 40, one)
    one.look()
    advance(world, 40, one)
    one.look()
    assert ("lane_paused", "cleared", 0) in hook.said()
    assert "recovery_overdue" in {rule for rule, *_ in hook.said()}


def test_a_limit_of_zero_tells_no_pause(world: World, hook: Hook) -> None:
    ledger = world.open()
    one = Process(ledger, "w1", hook, paused_s=0)
    ledger.controls().pause(["sms.notice"], None, author="li", reason="campaign")
    advance(world, 100_000, one)
    one.look()
    assert "lane_paused" not in {rule for rule, *_ in hook.said()}


def test_an_overdue_limit_of_zero_asks_nothing(world: World, hook: Hook) -> None:
    one = Process(world.open(), "w1", hook, overdue_s=0)
    one.look()
    assert list(one.fleet.readings()) == []


# -- a policy that was refused --


def test_a_recovery_that_refuses_a_policy_says_so_until_it_runs_the_newest(
    ground: MakeGround, hook: Hook
) -> None:
    one = ground()
    with started(one) as opened:
        registry = opened.metrics.registry
        watch = opened.recovery._parts.watch
        desk = AlertNotifier(
            registry_of_alerts := CollectorRegistry(), WINDOW_S, post=hook, name="r1"
        )
        looking = RuleEvaluator(rules_of(AlertSettings()), lambda: 0.0)
        watchman = AlertMonitor(registry, looking, desk, Silent())
        refused = apply(one, accounts=["nobody"])
        _until(lambda: watch.seen == refused.number)
        watchman.look_once()
        assert hook.said() == [("policy_refused", "firing", 1)]
        assert registry.get_sample_value("hongyan_policy_number") == 0
        followed = apply(one, threads=40)
        _until(lambda: watch.number == followed.number)
        assert registry.get_sample_value("hongyan_policy_refused") == 0
        assert registry.get_sample_value("hongyan_policy_number") == followed.number
        assert registry.get_sample_value("hongyan_policy_lanes_kept") == 0
        assert registry_of_alerts.get_sample_value(
            "hongyan_alerts_total", {"rule": "policy_refused", "lane": ""}
        )


class Silent(FleetAlerts):
    """No fleet."""

    def __init__(self) -> None: ...

    def look(self) -> None: ...


def _until(condition: Callable[[], bool]) -> None:
    from tests.recovery.ground import until

    until(condition)


# -- outcome events --


def test_outcome_events_that_nobody_publishes_are_an_alert_until_they_are_gone(
    world: World, hook: Hook
) -> None:
    ledger = world.open()
    ledger.announced.follow({"sms.notice": "topic"})
    lease = ledger.register(worker())
    (item,) = claimed(ledger, delivery())
    assert settle(ledger, item, Event.ACCEPTED)
    ledger.retire(lease)
    one = Process(ledger, "w1", hook)
    advance(world, 59, one)
    one.look()
    assert hook.said() == []
    advance(world, 11, one)
    one.look()
    assert hook.said() == [("outcomes_late", "firing", 1)]
    assert "1 outcome events wait for the topic, the oldest for 70 s" in hook.heard[0]["text"]
    oldest = [r.value for r in one.fleet.readings() if r.labels == {"target": "topic"}]
    assert oldest == [1, 70.0]
    (batch,) = ledger.outbox().due("topic", 10)
    ledger.outbox().remove([batch.id])
    for _ in range(5):
        advance(world, 11, one)
        one.look()
    assert [state for _, state, _ in hook.said()] == ["firing", "cleared"]
