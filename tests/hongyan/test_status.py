"""hongyan status: one screen from the ledger alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.settings import DatabaseSettings, Settings
from idempotency.fleet.snapshots import BacklogSnapshot
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from sending.alerts.rules import parked
from sending.runtime.heartbeat import ProcessHeartbeat
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, delivery, settle, worker
from tests.idempotency.test_lines import LANES, head_and_followers

PHONE = "+8613800000001"


@pytest.fixture
def ledger(folder: Path, hongyan: Run) -> Iterator[SqlLedger]:
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def test_a_ledger_is_not_made_by_looking(folder: Path, hongyan: Run) -> None:
    said = hongyan("status")
    assert said.code == 2
    assert "there is no ledger" in said.err
    assert list(folder.iterdir()) == []


def test_an_empty_ledger_is_told_so(ledger: SqlLedger, hongyan: Run) -> None:
    said = hongyan("status")
    assert said.code == 0
    assert "no worker, recovery or receipts process runs" in said.out
    assert "nothing is open or parked" in said.out
    assert "no open alerts" in said.out


def test_kafka_and_redis_may_be_away(
    ledger: SqlLedger, hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("HONGYAN_REDIS__URL", "redis://127.0.0.1:1/0")
    (folder / "policy.toml").write_text("[lanes.nonsense]\n")  # nor is the policy file
    assert hongyan("status").code == 0


def test_the_head_that_holds_others_is_named_with_what_to_do(
    ledger: SqlLedger, hongyan: Run
) -> None:
    ledger.register(worker("w1"))
    head, *_ = head_and_followers(ledger, f"customer {PHONE}", 4)
    head.account = "main"
    settle(ledger, head, Event.UNKNOWN, LANES, reason="timeout")
    ledger.alerting().note([parked("sms.notice", "unproven").raised(3, 0)], 60_000, "w1")
    said = hongyan("status")
    assert said.code == 0
    assert "no recovery lives" in said.out
    (named,) = [line for line in said.out.splitlines() if head.notification.id in line]
    assert "customer ***: " in named
    assert "UNKNOWN (timeout) through main" in named
    assert "4 behind" in named
    assert f"hongyan resend {head.key} --arrived | --not-arrived" in said.out
    assert "docs/runbook.md#parked" in said.out
    assert PHONE[3:] not in said.out
    found = hongyan("status", "--json")
    assert PHONE[3:] not in found.out
    (of_lane,) = found.json["lines"]
    (line,) = of_lane["lines"]
    assert (of_lane["held"], of_lane["complete"]) == (1, True)
    assert (line["state"], line["behind"], line["more_behind"]) == ("UNKNOWN", 4, False)
    assert line["delivery_key"] == head.key
    (lane,) = [one for one in found.json["lanes"] if one["lane"] == "sms.notice"]
    assert (lane["doubted"], lane["behind"]) == (1, 4)


def test_lanes_are_chosen_by_pattern(ledger: SqlLedger, hongyan: Run) -> None:
    ledger.register(worker("w1"))
    claimed(ledger, delivery())
    head_and_followers(ledger, "k", 1)
    ledger.alerting().note([parked("sms.notice", "unproven").raised(3, 0)], 60_000, "w1")
    said = hongyan("status", "--lane", "email.*", "--json").json
    assert {one["lane"].partition(".")[0] for one in said["lanes"]} == {"email"}
    assert said["lines"] == said["alerts"] == []
    assert hongyan("status", "--lane", "smoke.*").code == 2


def test_outcome_events_that_wait_are_shown(ledger: SqlLedger, hongyan: Run) -> None:
    assert "outcome events" not in hongyan("status").out
    ledger.announced.follow({"sms.notice": "webhook"})
    ledger.register(worker("w1"))
    for item in claimed(ledger, delivery(), delivery()):
        settle(ledger, item, Event.ACCEPTED)
    assert "2 outcome events wait for the webhook, the oldest for" in hongyan("status").out
    (waiting,) = hongyan("status", "--json").json["outcomes_waiting"]
    assert (waiting["target"], waiting["ends"]) == ("webhook", 2)


def test_a_head_under_way_at_a_lost_process_says_so(ledger: SqlLedger, hongyan: Run) -> None:
    ledger.register(worker("w1"))
    head_and_followers(ledger, "k", 1)
    assert "under way at w1" in hongyan("status").out
    with ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE workers SET heartbeat_at = heartbeat_at - 60000")
    said = hongyan("status").out
    assert "LOST" in said
    assert "its process w1 is lost: the next sweep puts it in doubt" in said


def test_heads_that_wait_say_until_when(ledger: SqlLedger, hongyan: Run) -> None:
    ledger.register(worker("w1"))
    later, *_ = head_and_followers(ledger, "later", 1)
    settle(ledger, later, Event.NOT_SENT, LANES, delay_ms=50_000)
    due, *_ = head_and_followers(ledger, "due", 1)
    settle(ledger, due, Event.NOT_SENT, LANES)
    back, *_ = head_and_followers(ledger, "back", 1)
    settle(ledger, back, Event.GIVEN_BACK, LANES)
    said = hongyan("status").out
    assert f"; now: hongyan resend {later.key}" in said
    assert "due: recovery sends it" in said
    assert "when it reads its Kafka record again" in said


def test_processes_of_every_kind_are_shown_with_their_backlog(
    ledger: SqlLedger, hongyan: Run
) -> None:
    waits = BacklogSnapshot(waiting=1_234, oldest_s=90, parked=2)
    ProcessHeartbeat(ledger, "lookback", "back-1", threading.Event(), lambda: waits).beat()
    (named,) = [line for line in hongyan("status").out.splitlines() if "back-1" in line]
    assert "1,234, 90 s, 2 parked" in named
    (found,) = hongyan("status", "--json").json["processes"]
    assert (found["kind"], found["snapshot"]["backlog"]["waiting"]) == ("lookback", 1_234)


def test_a_kind_that_is_called_for_and_does_not_live_is_named(
    ledger: SqlLedger, hongyan: Run, folder: Path
) -> None:
    assert "lookback" not in hongyan("status").out
    (folder / "hongyan.toml").write_text("[lookback.biz_types.order]\n")
    assert "no lookback lives: lookback.biz_types names kinds" in hongyan("status").out
    assert hongyan("status", "--json").json["absent"] == ["lookback"]


def test_an_outbox_that_cannot_be_asked_is_told(
    ledger: SqlLedger, hongyan: Run, folder: Path
) -> None:
    (folder / "hongyan.toml").write_text(f'[relay]\noutbox_url = "sqlite:///{folder}/shop.db"\n')
    said = hongyan("status")
    assert said.code == 0
    assert "the outbox cannot be asked for its relays" in said.out
    assert "no relay lives: relay.outbox_url names an outbox" in said.out
