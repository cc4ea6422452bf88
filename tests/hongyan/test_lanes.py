"""hongyan lanes: what is paused, by whom, and who obeys; hongyan workers: who lives, and who drains."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from backends.settings import DatabaseSettings, Settings
from hongyan.commands import lanes as lanes_command
from hongyan.commands import workers as workers_command
from idempotency.fleet.snapshots import LaneSnapshot, ProcessSnapshot, encoded
from idempotency.ledger import Lease, WorkerInfo
from idempotency.sql_ledger import SqlLedger, open_ledger
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import worker

SMS, MAIL = "sms.notice", "email.notice"
WIDTH = 80


@pytest.fixture
def ledger(folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_KAFKA__BOOTSTRAP", "127.0.0.1:9")
    monkeypatch.setattr(lanes_command, "OBEYED_S", 0.0)
    monkeypatch.setattr(workers_command, "ANSWER_S", 0.0)
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def serving(name: str, *lanes: str) -> WorkerInfo:
    return msgspec.structs.replace(worker(name), lanes=list(lanes), lease_ms=600_000)


def beat(ledger: SqlLedger, lease: Lease, state: str = "RUNNING", **lanes: LaneSnapshot) -> None:
    named = {name.replace("_", "."): one for name, one in lanes.items()}
    assert ledger.heartbeat(lease, state, encoded(ProcessSnapshot(2, named)))


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join(30)


def test_lanes_show_the_sum_of_what_their_workers_report(ledger: SqlLedger, hongyan: Run) -> None:
    one, two = (ledger.register(serving(name, SMS, MAIL)) for name in ("w1", "w2"))
    lane = LaneSnapshot(in_flight=3, waiting=5, lag=1_200, partitions=2, rate=10.4, open=["main"])
    beat(ledger, one, sms_notice=lane, email_notice=LaneSnapshot(lag=0, partitions=4))
    beat(ledger, two, sms_notice=lane, email_notice=LaneSnapshot())
    ledger.controls().pause([MAIL], None, author="li", reason="campaign")
    said = hongyan("lanes")
    assert said.code == 0
    assert said.out.splitlines()[:2] == hongyan("lanes", "list").out.splitlines()[:2]
    (line,) = [line for line in said.out.splitlines() if line.startswith(f"{SMS} ")]
    assert line.split() == [SMS, "4", "2,400", "6", "10", "21", "1", "open", "-"]
    assert "email.notice is paused since" in said.out
    assert "by li: campaign" in said.out
    assert f"{SMS}: the breaker is not closed for main" in said.out
    assert f"{MAIL}: w1, w2 has not reported that it obeys" in said.out
    rows = {row["lane"]: row for row in hongyan("lanes", "list", "--json").json}
    assert set(rows) == {SMS, MAIL}
    assert rows[MAIL]["not_obeying"] == ["w1", "w2"]
    assert rows[MAIL]["pause"]["reason"] == "campaign"
    assert len(hongyan("lanes", "list", "--all", "--json").json) > 20


def test_a_lag_that_nobody_knows_is_a_question_mark(ledger: SqlLedger, hongyan: Run) -> None:
    ledger.controls().pause([SMS], None, author="li", reason="campaign")
    (row,) = hongyan("lanes", "list", "--json").json
    assert (row["lag"], row["workers"]) == (None, 0)
    assert "?" in hongyan("lanes", "list").out


def test_a_pause_needs_a_reason_a_lane_and_a_time_that_passes(
    ledger: SqlLedger, hongyan: Run
) -> None:
    for asked, text in (
        ((SMS,), "--reason TEXT"),
        ((SMS, "--reason", "x", "--for", "0s"), "a pause lasts longer"),
        ((SMS, "--reason", "x", "--for", "soon"), "write a number"),
        (("smoke.*", "--reason", "x"), "smoke"),
    ):
        said = hongyan("lanes", "pause", *asked)
        assert (said.code, text in said.err) == (2, True), said.err
    assert ledger.controls().history() == []


def test_a_pause_takes_wildcards_and_keeps_author_reason_and_end(
    ledger: SqlLedger, hongyan: Run
) -> None:
    said = hongyan(
        *("lanes", "pause", "sms.*,email.notice", "--reason", "repairs"),
        *("--author", "lin", "--for", "30m"),
    )
    assert said.code == 0
    made = ledger.controls().pauses()
    assert {one.lane for one in made} == {"sms.verification", SMS, "sms.marketing", MAIL}
    assert {(one.author, one.reason) for one in made} == {("lin", "repairs")}
    assert {one.until and one.until - one.paused_at for one in made} == {1_800_000}
    assert "until" in said.out
    again = hongyan("lanes", "pause", SMS, "--reason", "again", "--author", "li")
    assert "replaces the pause of lin (repairs)" in again.err


def test_a_pause_that_a_process_does_not_obey_is_told_and_stays(
    ledger: SqlLedger, hongyan: Run
) -> None:
    lease = ledger.register(serving("w1", SMS))
    beat(ledger, lease, sms_notice=LaneSnapshot(lag=0))
    said = hongyan("lanes", "pause", SMS, "--reason", "x")
    assert said.code == 1
    assert "the order is kept, but w1 did not report" in said.err
    assert len(ledger.controls().pauses()) == 1
    beat(ledger, lease, sms_notice=LaneSnapshot(lag=0, paused=True))
    assert hongyan("lanes", "pause", SMS, "--reason", "x").code == 0
    assert hongyan("lanes", "resume", SMS).code == 1, "it has not reported the end yet"
    beat(ledger, lease, sms_notice=LaneSnapshot(lag=0))
    assert "w1" not in hongyan("lanes").out


def test_the_command_waits_until_it_is_obeyed(
    ledger: SqlLedger, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes_command, "OBEYED_S", 30.0)
    lease = ledger.register(serving("w1", SMS))
    beat(ledger, lease, sms_notice=LaneSnapshot())

    def obey() -> None:
        while not ledger.controls().pauses():
            pass
        beat(ledger, lease, sms_notice=LaneSnapshot(paused=True))

    with meanwhile(obey):
        assert hongyan("lanes", "pause", SMS, "--reason", "x").code == 0


def test_a_resume_ends_pauses_and_says_so_if_there_is_none(ledger: SqlLedger, hongyan: Run) -> None:
    none = hongyan("lanes", "resume", "*")
    assert (none.code, "none of these lanes is paused" in none.err) == (1, True)
    hongyan("lanes", "pause", "sms.*", "--reason", "repairs", "--author", "li")
    said = hongyan("lanes", "resume", SMS, "--author", "lin", "--reason", "mended", "--json")
    assert [row["pause"] for row in said.json] == [None]
    assert len(ledger.controls().pauses()) == 2
    (ended,) = [one for one in hongyan("lanes", "history", "--json").json if one["ended_at"]]
    assert (ended["lane"], ended["ended_by"], ended["ended_reason"]) == (SMS, "lin", "mended")
    assert "li, lin" in hongyan("lanes", "history").out


def test_without_a_database_a_pause_is_refused_in_one_sentence(hongyan: Run, folder: Path) -> None:
    said = hongyan("lanes", "pause", SMS, "--reason", "x")
    assert (said.code, list(folder.iterdir())) == (2, [])
    assert "there is no ledger" in said.err


def test_a_database_that_does_not_answer_refuses_a_pause(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_DATABASE__URL", "postgresql://hongyan@127.0.0.1:9/hongyan")
    said = hongyan("lanes", "pause", SMS, "--reason", "x")
    assert said.code == 1
    assert len(said.err.splitlines()) == 1


# -- workers --


def test_workers_are_listed_and_one_is_asked_to_drain(ledger: SqlLedger, hongyan: Run) -> None:
    assert "no process has a heartbeat" in hongyan("workers", "list").out
    lease = ledger.register(serving("w1", SMS))
    (one,) = hongyan("workers", "list", "--json").json
    assert (one["id"], one["kind"], one["lost"]) == ("w1", "worker", False)
    assert "w1" in hongyan("workers", "list").out
    assert hongyan("workers", "drain", "w1").code == 2
    unknown = hongyan("workers", "drain", "w9", "--reason", "repairs")
    assert (unknown.code, "no process 'w9' lives" in unknown.err) == (1, True)
    silent = hongyan("workers", "drain", "w1", "--reason", "repairs", "--author", "li")
    assert (silent.code, "did not begin to drain" in silent.err) == (1, True)
    assert ledger.controls().orders("w1", lease.now_ms).drain == "li: repairs"
    beat(ledger, lease, "DRAINING")
    assert hongyan("workers", "drain", "w1", "--reason", "x", "--json").json == {
        "id": "w1",
        "state": "DRAINING",
    }


def test_a_worker_that_ended_at_once_has_drained(
    ledger: SqlLedger, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_command, "ANSWER_S", 30.0)
    lease = ledger.register(serving("w1", SMS))

    def end() -> None:
        while ledger.controls().orders("w1", lease.now_ms).drain is None:
            pass
        ledger.retire(lease)

    with meanwhile(end):
        assert hongyan("workers", "drain", "w1", "--reason", "x").out == "w1 has ended\n"


# -- the screen --


def test_status_fits_eighty_columns_and_names_the_pause(
    ledger: SqlLedger, hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hongyan.terminal._PIPE_WIDTH", WIDTH)
    long = "wechat_official.verification"
    lease = ledger.register(serving("hongyan-worker-7d9f8b6c5-x2x4z-1-a1b2c3", SMS, long))
    lane = LaneSnapshot(in_flight=64, waiting=128, lag=1_234_567, partitions=12, rate=812.3)
    assert ledger.heartbeat(lease, "RUNNING", encoded(ProcessSnapshot(1, {SMS: lane, long: lane})))
    ledger.controls().pause([long], None, author="li", reason="campaign")
    said = hongyan("status")
    assert said.code == 0
    assert f"{long} is paused since" in said.out.replace("\n", " ")
    assert "1,234,567" in said.out
    assert max(map(len, said.out.splitlines())) <= WIDTH
    assert "…" not in said.out
    for command in (("lanes",), ("lanes", "history"), ("workers", "list")):
        shown = hongyan(*command)
        assert max(map(len, shown.out.splitlines())) <= WIDTH, command
        assert "…" not in shown.out, command
    found = hongyan("status", "--json").json
    (row,) = [row for row in found["live"] if row["lane"] == long]
    assert row["pause"]["author"] == "li"
