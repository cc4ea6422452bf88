"""Alerts from end to end: once in a window in the whole fleet, to log and webhook, and alposts counted."""

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from backends.settings import AlertSettings, SettingsError
from channels.http_client.transport import Transport
from idempotency.ledger import LedgerUnavailable
from idempotency.sql_ledger import SqlLedger
from message.states import Event
from recovery.alerts import Alerts
from sending.alerts.fleet import FleetAlerts
from sending.alerts.notifier import Alert, AlertNotifier
from sending.alerts.rules import AlertMonitor, parked
from sending.alerts.webhook import SIGNATURE, TIMESTAMP, AlertHook
from tests.idempotency.making import World, claimed, delivery, settle, worker
from tests.recovery.ground import LANE, Ground

MakeGround = Callable[..., Ground]
WINDOW_MS = 60_000


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Hearer(BaseHTTPRequestHandler):
    """A webhook that keeps what it hears; `answers` are given in turn, the last one for ever."""

    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.heard.append((dict(self.headers), body))
        answers = server.answers
        self.send_response(answers.pop(0) if len(answers) > 1 else answers[0])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def webhook(*answers: int) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hearer)
    server.heard, server.answers = [], list(answers or (204,))
    server.url = f"http://127.0.0.1:{server.server_address[1]}/alerts"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def hook(server: Any, **settings: Any) -> Iterator[AlertHook]:
    transport = Transport()
    try:
        yield AlertHook(AlertSettings(webhook=server.url, **settings), transport)
    finally:
        transport.close()


def fleet_alerts(
    ledger: SqlLedger,
    desk: AlertNotifier,
    monotonic: Callable[[], float] = lambda: 0.0,
    **settings: Any,
) -> FleetAlerts:
    alerts = AlertSettings(**{"window_s": 60.0, **settings})
    asked, duties = ledger.fleet_health(), ledger.duties()
    lanes, pauses = ["sms.notice", LANE], ledger.controls()
    return FleetAlerts(desk, asked, duties, alerts, lanes, pauses=pauses, monotonic=monotonic)


def told(logs: Any) -> list[tuple[str, str, str, int]]:
    return [(x["rule"], x["lane"], x["about"], x["count"]) for x in logs if x["event"] == "alert"]


# -- the desk --


def test_the_same_trouble_is_told_once_in_a_window_with_the_number_kept_back() -> None:
    time, registry = Time(), CollectorRegistry()
    alerts = Alerts(registry, 60.0, time)
    with capture_logs() as logs:
        for number in range(5):
            alerts.parked("sms.notice", f"attempts_spent:code-{number}", f"k{number}")
        alerts.parked("sms.notice", "unproven", "other")
        alerts.parked("sms.marketing", "attempts_spent", "lane")
        alerts.flush()
        alerts.parked("sms.notice", "attempts_spent:y", "k8")
        alerts.flush()
        time.now = 60.0
        alerts.parked("sms.notice", "attempts_spent:x", "k9")
        alerts.flush()
    assert sorted(told(logs)) == [
        ("parked", "sms.notice", "unproven", 1),
        ("retries_spent", "sms.marketing", "attempts_spent", 1),
        ("retries_spent", "sms.notice", "attempts_spent", 2),
        ("retries_spent", "sms.notice", "attempts_spent", 5),
    ]
    labels = {"rule": "retries_spent", "lane": "sms.notice"}
    assert registry.get_sample_value("hongyan_alerts_total", labels) == 7


def test_two_processes_tell_an_alert_once_between_them(world: World) -> None:
    """And the window is the database's: its clock, and what either of them kept back."""
    ledger = world.open()
    desks = [
        AlertNotifier(CollectorRegistry(), WINDOW_MS / 1_000, windows=ledger.alerting(), name=name)
        for name in ("w1", "w2")
    ]
    alert = parked("sms.notice", "unproven")
    with capture_logs() as logs:
        for _ in range(3):
            for desk in desks:
                desk.raise_(alert, 2)
                desk.flush()
        assert told(logs) == [("parked", "sms.notice", "unproven", 2)]
        world.advance(WINDOW_MS)
        desks[1].raise_(alert)
        desks[1].flush()
    assert told(logs)[1:] == [("parked", "sms.notice", "unproven", 11)]


def test_while_the_ledger_is_away_a_process_tells_by_its_own_window() -> None:
    away: Any = Mock(**{"note.side_effect": LedgerUnavailable("gone")})
    away.claim_post.side_effect = LedgerUnavailable("gone")
    desk = AlertNotifier(CollectorRegistry(), 60.0, Time(), windows=away)
    with capture_logs() as logs:
        for _ in range(3):
            desk.raise_(parked("sms.notice", "unproven"))
            desk.flush()
    assert told(logs) == [("parked", "sms.notice", "unproven", 1)]


def test_while_ledger_and_webhook_are_away_every_alert_is_logged_before_the_first_post(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sending.alerts.notifier._POST_PAUSE_S", 0.0)
    lanes = ["sms.marketing", "sms.notice", "sms.verification"]
    posts: list[str] = []
    errors: list[str | None] = ["timeout"] * 6 + [None, None]
    away: Any = Mock(**{"note.side_effect": LedgerUnavailable("gone")})
    away.claim_post.side_effect = LedgerUnavailable("gone")

    def post(body: Any) -> str | None:
        posts.append(f"posted {body['lane']}, {len(told(logs))} logged")
        return errors.pop(0)

    registry = CollectorRegistry()
    desk = AlertNotifier(registry, 60.0, Time(), windows=away, post=post)
    for lane in lanes:
        desk.raise_(Alert("lag", lane, "", "far behind"))
    with capture_logs() as logs:
        desk.flush()
        assert posts == ["posted sms.marketing, 3 logged"] * 3, "the others wait for the next look"
        desk.raise_(Alert("lag", "sms.late", "", "far behind"))
        desk.flush()
        assert posts[3:] == ["posted sms.notice, 4 logged"] * 3
        desk.flush()
    assert [x.split(",")[0] for x in posts[6:]] == ["posted sms.verification", "posted sms.late"]
    failed = "hongyan_alerts_not_posted_total"
    assert registry.get_sample_value(failed, {"rule": "lag"}) == 2


def test_once_the_ledger_is_back_a_process_posts_what_waited_in_its_own_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sending.alerts.notifier._POST_PAUSE_S", 0.0)
    posted: list[str] = []
    errors: list[str | None] = ["timeout"] * 3 + [None]
    windows: Any = Mock(**{"note.side_effect": LedgerUnavailable("gone")})
    windows.claim_post.return_value = None

    def post(body: Any) -> str | None:
        posted.append(body["lane"])
        return errors.pop(0)

    desk = AlertNotifier(CollectorRegistry(), 60.0, Time(), windows=windows, post=post)
    for lane in ("sms.marketing", "sms.notice"):
        desk.raise_(Alert("lag", lane, "", "far behind"))
    with capture_logs() as logs:
        desk.flush()
        windows.note.side_effect = None
        windows.note.return_value = []
        desk.flush()
        desk.flush()
    assert posted == ["sms.marketing"] * 3 + ["sms.notice"]
    assert len(told(logs)) == 2


def test_posts_that_wait_are_bounded_and_each_one_given_up_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sending.alerts.notifier._POST_PAUSE_S", 0.0)
    monkeypatch.setattr("sending.alerts.notifier._MOST_UNPOSTED", 2)
    posted: list[str] = []
    registry = CollectorRegistry()
    desk = AlertNotifier(registry, 60.0, Time(), post=lambda body: posted.append(body["lane"]))
    for lane in ("sms.marketing", "sms.notice", "sms.verification"):
        desk.raise_(Alert("lag", lane, "", "far behind"))
    with capture_logs() as logs:
        desk.flush()
    assert posted == ["sms.notice", "sms.verification"]
    assert len(told(logs)) == 3
    assert registry.get_sample_value("hongyan_alerts_not_posted_total", {"rule": "lag"}) == 1


# -- the webhook --


def test_an_alert_is_posted_signed_over_time_and_body() -> None:
    with webhook() as server, hook(server, secret="s3cret") as post:
        desk = AlertNotifier(CollectorRegistry(), 60.0, post=post.post, name="w1")
        desk.raise_(Alert("lag", "sms.notice", "", "far behind"), 4)
        desk.flush()
    ((headers, body),) = server.heard
    signed = headers[TIMESTAMP].encode() + b"." + body
    assert headers[SIGNATURE] == "v1=" + hmac.new(b"s3cret", signed, sha256).hexdigest()
    said = json.loads(body)
    assert said["state"] == "firing"
    assert {k: said[k] for k in ("rule", "lane", "text", "from", "count")} == {
        "rule": "lag",
        "lane": "sms.notice",
        "text": "far behind",
        "from": "w1",
        "count": 4,
    }


def test_a_webhook_that_refuses_is_tried_again_and_then_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sending.alerts.notifier._POST_PAUSE_S", 0.0)
    registry = CollectorRegistry()
    with webhook(500, 302, 204, 503) as server, hook(server) as post:
        desk = AlertNotifier(registry, 60.0, post=post.post)
        for rule in ("one", "two"):
            desk.raise_(Alert(rule, "", "", "text"))
            desk.flush()
    assert len(server.heard) == 6
    assert SIGNATURE not in server.heard[0][0], "without a secret there is nothing to sign with"
    assert registry.get_sample_value("hongyan_alerts_not_posted_total", {"rule": "one"}) is None
    assert registry.get_sample_value("hongyan_alerts_not_posted_total", {"rule": "two"}) == 1


def test_nobody_listens_and_nothing_is_raised() -> None:
    with webhook() as server:
        url = server.url
    transport = Transport()
    error = AlertHook(AlertSettings(webhook=url), transport).post({"rule": "lag"})
    transport.close()
    assert error is not None
    assert error.startswith("connect")


def test_a_webhook_that_is_no_address_is_said_at_start() -> None:
    with pytest.raises(SettingsError, match=r"alerts\.webhook"):
        AlertHook(AlertSettings(webhook="pager"), Transport())


# -- what the ledger knows --


def test_a_lost_worker_and_an_old_doubt_are_seen_and_a_retired_one_is_not(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("lost"))
    ledger.retire(ledger.register(worker("gone home")))
    (item,) = claimed(ledger, delivery(), owner="lost")
    assert settle(ledger, item, Event.UNKNOWN, reason="timeout")
    windows = ledger.fleet_health()
    assert windows.lost(WINDOW_MS) == []
    assert windows.doubts(10_000) == {}
    world.advance(10_000)
    assert [one.id for one in windows.lost(WINDOW_MS)] == ["lost"]
    assert windows.doubts(10_000) == {"sms.notice": 10_000}
    ledger.sweep()
    assert [one.id for one in windows.lost(WINDOW_MS)] == ["lost"], "swept, and still lost"
    world.advance(WINDOW_MS)
    assert windows.lost(WINDOW_MS) == []


def test_the_watchman_asks_and_tells_and_survives_a_ledger_that_is_away(world: World) -> None:
    ledger = world.open()
    ledger.register(worker("lost"))
    world.advance(10_000)

    class Nothing:
        def look(self, _samples: Any) -> list[tuple[Alert, int]]:
            return [(Alert("lag", "sms.notice", "", "x"), 1)]

    desk = AlertNotifier(CollectorRegistry(), 60.0, windows=ledger.alerting())
    looking: Any = Nothing()
    watchman = AlertMonitor(CollectorRegistry(), looking, desk, fleet_alerts(ledger, desk))
    with capture_logs() as logs:
        watchman.look_once()
    assert sorted(told(logs)) == [("heartbeat_lost", "", "lost", 1), ("lag", "sms.notice", "", 1)]
    ledger.close()
    with capture_logs():
        watchman.look_once()


def test_a_running_recovery_tells_what_it_parks(ground: MakeGround) -> None:
    with webhook() as server:
        one = ground(retry={"attempts": 1, "base_ms": 50, "cap_ms": 100})
        alerts = AlertSettings(webhook=server.url, secret="s3cret")
        one.settings = msgspec.structs.replace(one.settings, alerts=alerts)
        one.waiting(3)
        process = one.process("r1")
        one.await_states(PARKED=3)
        process.terminate()
        assert process.wait(20) == 0, one.log("r1")
    bodies = [json.loads(body) for _, body in server.heard]
    assert {(b["rule"], b["lane"]) for b in bodies} == {("retries_spent", "webhook.notice")}
    assert sum(b["count"] for b in bodies) == 3
    assert bodies[0]["from"] == "r1"
    assert "s3cret" not in one.log("r1")
