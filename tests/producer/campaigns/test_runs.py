"""Runs of campaigns on both databases, with an in-process Kafka."""

from __future__ import annotations

import gzip
import json
import os
import threading
import tracemalloc
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from backends.settings import Settings
from hongyan_client.errors import BufferFull, NotDelivered, SendInDoubt
from hongyan_client.records import Acknowledged, Record
from idempotency.ledger import LedgerUnavailable
from message.envelope import EnvelopeError
from policy.templates.templates import Templates
from producer.campaigns import creation, crowd_names, run_sender
from producer.campaigns import runner as runner_module
from producer.campaigns.contract import (
    BY_ITSELF,
    Campaign,
    CampaignLimits,
    CampaignRefused,
    CampaignSchedule,
    CampaignState,
    CrowdColumns,
    CrowdSource,
    RunState,
)
from producer.campaigns.notifications import RowBuilder
from producer.campaigns.row_checks import row_checks
from producer.campaigns.row_ids import row_id
from producer.campaigns.run_opening import RunOpening
from tests.harness.waiting import await_
from tests.producer.campaigns.crowds import CampaignDesk, crowd
from tracing.sinks.span_ids import traceparent_of

DONE, PAUSED = CampaignState.DONE, CampaignState.PAUSED


def test_each_good_row_is_one_notification_and_bad_rows_are_kept_by_line(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = tmp_path / "crowd.csv"
    file.write_text(
        "phone,name,amount,order\n"
        '+8613800000001,"Li, Mei",3,o-1\n'
        "+8613800000002,Wang,three,o-2\n"
        ",Zhao,4,o-3\n"
        "+8613800000004,Chen\n"
        "\n"
        '+8613800000005,"two\nlines",,o-5\n'
    )
    columns = CrowdColumns(receiver="phone", biz_id="order")
    one = desk.started(file, columns=columns)
    with desk.running():
        desk.until(one.id, DONE)
    run = desk.run_of(one.id)
    assert (run.done, run.sent, run.bad, run.state) == (5, 2, 3, RunState.DONE)
    bad = {row.line: row.code for row in desk.runs.every_bad_row(run.id)}
    assert bad == {3: "variable_type", 4: "no_receiver", 5: "wrong_columns"}
    sent = {n.biz_id: n for n in desk.sent()}
    assert sorted(filter(None, sent)) == ["o-1", "o-5"]
    template = sent["o-1"].template
    assert template is not None
    assert template.params == {"name": "Li, Mei", "amount": 3}
    other = sent["o-5"].template
    assert other is not None
    assert other.params == {"name": "two\nlines"}
    assert sent["o-1"].id == row_id(run.id, 1)
    assert sent["o-5"].id == row_id(run.id, 5)
    assert sent["o-1"].attributes == {"campaign": one.id}


def test_a_variable_that_first_appears_in_a_late_row_of_json_lines_is_sent(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "CHECKED_ROWS", 2)
    rows = [{"receiver": f"+8613800000{n:03d}", "name": "n"} for n in range(4)]
    late = rows[3] | {"amount": 7}
    file = tmp_path / "crowd.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in [*rows[:3], late]))
    one = desk.started(file)
    with desk.running():
        desk.until(one.id, DONE)
    amounts = [n.template.params.get("amount") for n in desk.sent() if n.template]
    assert sorted(map(str, amounts)) == ["7", "None", "None", "None"]


def test_a_providers_template_takes_the_names_of_all_rows_within_a_limit(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "CHECKED_ROWS", 2)
    desk.checks = row_checks(desk.settings, Templates())
    file = tmp_path / "crowd.jsonl"
    rows = [{"receiver": f"+8613800000{n:03d}", "code": n} for n in range(5)]
    rows[4]["shop"] = "late"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert desk.made(file).columns.variables == {"code": "code", "shop": "shop"}
    monkeypatch.setattr(crowd_names, "MOST_NAMES", 2)
    with pytest.raises(CampaignRefused, match="more than 1,000 names"):
        desk.made(file)


def test_the_check_of_a_new_campaign_keeps_no_row(desk: CampaignDesk, tmp_path: Path) -> None:
    file, cell = tmp_path / "crowd.jsonl.gz", "x" * 200_000
    rows = [{"receiver": f"+86138{n:08d}", "name": "n", "note": cell} for n in range(100)]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    tracemalloc.start()
    try:
        made = desk.made(file)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.crowd.rows == 100
    assert most < 20 * len(cell), "100 rows were read"


@pytest.mark.parametrize("cell", ["[" * 1_000, "[" * 5_000])
def test_a_cell_that_is_nested_too_deeply_makes_its_row_bad(
    desk: CampaignDesk, tmp_path: Path, cell: str
) -> None:
    file = tmp_path / "crowd.csv"
    file.write_text(f"receiver,name,amount\n+8613800000001,n,{cell}\n+8613800000002,n,1\n")
    one = desk.started(file)
    with desk.running():
        desk.until(one.id, DONE, PAUSED)
    run = desk.run_of(one.id)
    assert (run.sent, run.bad) == (1, 1)
    (bad,) = desk.runs.every_bad_row(run.id)
    assert (bad.line, bad.code) == (2, "variable_type")


@pytest.mark.parametrize("depth", range(400, 1_000, 20))
def test_a_row_of_any_depth_is_a_notification_or_a_bad_row(depth: int, tmp_path: Path) -> None:
    """What can be read as JSON may still be too deep to be written."""
    source = CrowdSource(path="/c.jsonl", format="jsonl", size=1, sha256="0", rows=1)
    campaign = Campaign(
        id="cm-1",
        state=CampaignState.RUNNING,
        version=1,
        lane="sms.marketing",
        template="SMS_1",
        crowd=source,
        columns=CrowdColumns(variables={"x": "x"}),
        schedule=CampaignSchedule(),
        limits=CampaignLimits(),
        author="li",
        reason="r",
        created_at=1,
        since=1,
    )
    value: Any = "a"
    for _ in range(depth):
        value = [value]
    builder = RowBuilder(campaign, "r-1", row_checks(Settings(), Templates()), lambda: 1)
    with suppress(EnvelopeError):
        builder.build(1, {"receiver": "+8613800000001", "x": value})


@pytest.mark.parametrize("name", ["crowd.tsv", "crowd.TSV", "crowd.tsv.gz", "Crowd.TSV.GZ"])
def test_a_tsv_file_is_read_by_its_tabs_packed_or_not(
    desk: CampaignDesk, tmp_path: Path, name: str
) -> None:
    content = b"receiver\tname\tamount\n+8613800000001\tLi, Mei\t5\n"
    file = tmp_path / name
    file.write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    source = desk.made(file).crowd
    assert (source.rows, source.separator) == (1, "\t")


def test_a_pause_is_obeyed_and_a_resume_goes_on_without_gap_or_double(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    one = desk.started(crowd(tmp_path, 600), rate_per_s=400.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
        desk.actions.pause(one.id, who="wang", reason="wrong hour")
        await_(lambda: not desk.run_of(one.id).positions)  # written when all is settled
        reached = desk.run_of(one.id).sent
        assert 0 < reached < 600
        assert len(desk.sent()) == reached
        desk.actions.resume(one.id, who="wang", reason="right hour")
        desk.until(one.id, DONE)
    run = desk.run_of(one.id)
    counts = Counter(n.id for n in desk.sent())
    assert counts == {row_id(run.id, n): 1 for n in range(1, 601)}


def test_a_cancelled_run_sends_no_more_and_ends(desk: CampaignDesk, tmp_path: Path) -> None:
    one = desk.started(crowd(tmp_path, 600), rate_per_s=200.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
        desk.actions.cancel(one.id, who="wang", reason="withdrawn")
        await_(lambda: not desk.run_of(one.id).positions)
    run = desk.run_of(one.id)
    assert run.state is RunState.CANCELLED
    assert run.sent == len(desk.sent()) < 600
    with pytest.raises(CampaignRefused, match="CANCELLED"):
        desk.actions.resume(one.id, who="wang", reason="again")


def test_a_stop_of_the_process_leaves_the_rest_to_the_next_one(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    one = desk.started(crowd(tmp_path, 500), rate_per_s=500.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
    assert 0 < desk.run_of(one.id).sent < 500
    with desk.running():
        desk.until(one.id, DONE)
    assert len({n.id for n in desk.sent()}) == len(desk.sent()) == 500


def test_a_changed_file_is_refused_at_the_start_and_at_a_resume(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = crowd(tmp_path, 300)
    good = file.read_bytes()
    made = desk.made(file, rate_per_s=100.0)
    file.write_bytes(good.replace(b"customer 7,", b"customer 8,"))
    with pytest.raises(CampaignRefused, match="changed since the campaign was made"):
        desk.actions.start(made.id, who="li", reason="go")
    file.write_bytes(good)
    desk.actions.start(made.id, who="li", reason="go")
    with desk.running():
        await_(lambda: desk.runs.of(made.id) and desk.run_of(made.id).sent > 0)
        file.write_bytes(good + b"+8613899999999,late,1\n")
        paused = desk.until(made.id, PAUSED)
        assert paused.note
        assert "changed since the campaign was made" in paused.note
        with pytest.raises(CampaignRefused, match="changed since"):
            desk.actions.resume(made.id, who="li", reason="on")
        file.write_bytes(good)
        desk.actions.resume(made.id, who="li", reason="restored")
        desk.until(made.id, DONE)
    assert len({n.id for n in desk.sent()}) == len(desk.sent()) == 300


def test_a_file_that_is_only_touched_goes_on(desk: CampaignDesk, tmp_path: Path) -> None:
    file = crowd(tmp_path, 200)
    one = desk.started(file, rate_per_s=400.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
        os.utime(file)
        desk.until(one.id, DONE)
    assert len(desk.sent()) == 200


def test_a_run_with_too_many_bad_rows_pauses_itself_and_a_resume_judges_later_rows(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = tmp_path / "crowd.csv"
    good = [f"+86138{n:08d},n,1" for n in range(150)]
    lines = [*good[:100], *["none,n,x"] * 60, *good[100:]]
    file.write_text("receiver,name,amount\n" + "\n".join(lines) + "\n")
    one = desk.started(file, error_rate=0.3)
    with desk.running():
        paused = desk.until(one.id, PAUSED)
        assert paused.noted_by == "campaigns"
        assert paused.note
        assert "rows are bad" in paused.note
        desk.actions.resume(one.id, who="li", reason="known")
        desk.until(one.id, DONE)
    run = desk.run_of(one.id)
    assert (run.sent, run.bad) == (150, 60)


def test_a_receiver_gets_one_row_of_a_file_even_after_a_stop(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = tmp_path / "crowd.jsonl"
    lines = [f'{{"receiver": 1380000{n % 200:04d}, "name": "n"}}' for n in range(400)]
    file.write_text("\n".join(lines))
    one = desk.started(file, once_per_receiver=True, rate_per_s=300.0)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
    with desk.running():
        desk.until(one.id, DONE)
    run = desk.run_of(one.id)
    assert (run.sent, run.repeated, run.bad) == (200, 200, 0)
    assert len(desk.sent()) == 200
    codes = {row.code for row in desk.runs.every_bad_row(run.id)}
    assert codes == {"repeated_receiver"}


@pytest.mark.parametrize("starter", ["wang", "wang." * 13 + "wang@example.com"])
def test_above_the_threshold_another_person_must_approve(
    starter: str, desk: CampaignDesk, tmp_path: Path
) -> None:
    made = desk.made(crowd(tmp_path, 20), approve_above=10)
    waiting = desk.actions.start(made.id, who=starter, reason="go")
    assert waiting.state is CampaignState.WAITING
    for own in ("li", starter.capitalize()):
        with pytest.raises(CampaignRefused, match="another person"):
            desk.actions.approve(made.id, who=own)
    assert desk.actions.approve(made.id, who="zhao").state is CampaignState.SCHEDULED
    with desk.running():
        desk.until(made.id, DONE)


def test_a_cron_waits_for_its_next_time_after_each_run(desk: CampaignDesk, tmp_path: Path) -> None:
    schedule = CampaignSchedule(cron="*/1 * * * *", zone="UTC")
    one = desk.started(crowd(tmp_path, 5), schedule=schedule)
    now = desk.store.now_ms()
    desk.store.advance(one, next_at=now)  # in place of the wait for the minute
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).state is RunState.DONE)
        after = desk.actions.get(one.id)
    assert after.state is CampaignState.SCHEDULED
    assert after.next_at is not None
    assert after.next_at > now
    assert after.next_at % 60_000 == 0
    assert len(desk.sent()) == 5


def test_a_late_time_of_a_cron_is_passed_over_with_a_note(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    schedule = CampaignSchedule(cron="0 0 1 1 *", zone="UTC")
    one = desk.started(crowd(tmp_path, 5), schedule=schedule)
    desk.store.advance(one, next_at=desk.store.now_ms() - 7_200_000)
    with desk.running():
        await_(lambda: desk.actions.get(one.id).note not in (None, "go"))
    after = desk.actions.get(one.id)
    assert after.note
    assert "passed over" in after.note
    assert not desk.runs.of(one.id)
    assert after.next_at is not None
    assert after.next_at > desk.store.now_ms()


class Unwilling:
    """A publisher whose answers go wrong before they go right, and whose buffer is full at times."""

    def __init__(self, desk: CampaignDesk) -> None:
        self._desk = desk
        self._asked = 0
        self.refused = 0

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        self._asked += 1
        if self._asked % 5 == 1:
            raise BufferFull("full")
        if self._asked % 5 == 3:
            self.refused += 1
            failed: Future[Acknowledged] = Future()
            failed.set_exception(NotDelivered("the broker is away", "transport"))
            return failed
        if self._asked % 5 == 4:
            self.refused += 1
            delivered = self._desk.publisher.publish(record, deadline_s)
            delivered.result(10)
            doubtful: Future[Acknowledged] = Future()
            doubtful.set_exception(SendInDoubt("no answer came", "timed_out"))
            return doubtful
        return self._desk.publisher.publish(record, deadline_s)


def test_rows_that_kafka_did_not_take_go_again_under_the_same_id(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    one = desk.started(crowd(tmp_path, 12))
    unwilling = Unwilling(desk)
    with desk.running(unwilling):
        desk.until(one.id, DONE)
    run = desk.run_of(one.id)
    assert run.sent == 12
    assert unwilling.refused
    assert {n.id for n in desk.sent()} == {row_id(run.id, n) for n in range(1, 13)}


def test_a_runner_says_why_the_database_gave_no_answer(
    desk: CampaignDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause, kept = "the ledger's database took too long: statement cancelled", desk.store.running

    def slow() -> None:
        raise LedgerUnavailable(cause)

    with desk.running() as runner:
        monkeypatch.setattr(desk.store, "running", slow)
        await_(lambda: runner.database_away == cause, what="it says so")
        monkeypatch.setattr(desk.store, "running", kept)
        await_(lambda: runner.database_away is None, what="the database is back")


def test_rows_do_not_ask_the_database_for_its_time(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither new rows nor those before the checkpoint, which a resume builds again."""
    one = desk.started(crowd(tmp_path, 600), rate_per_s=400.0, once_per_receiver=True)
    with desk.running():
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
        desk.actions.pause(one.id, who="wang", reason="wrong hour")
        await_(lambda: not desk.run_of(one.id).positions)
    asked_by, now_ms = Counter[str](), desk.store.now_ms

    def counted() -> int:
        asked_by[threading.current_thread().name] += 1
        return now_ms()

    monkeypatch.setattr(desk.store, "now_ms", counted)
    before = now_ms()
    desk.actions.resume(one.id, who="wang", reason="right hour")
    with desk.running():
        desk.until(one.id, DONE)
    sent = desk.sent()
    assert len(sent) == 600
    assert before - 60_000 < min(n.created_at for n in sent)
    assert before <= max(n.created_at for n in sent) <= now_ms() + 1_000
    assert asked_by[f"campaign-{one.id}"] < 300, "once at the opening and once a look"


def test_a_run_goes_on_while_the_database_does_not_tell_its_time(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = desk.started(crowd(tmp_path, 600), rate_per_s=400.0)
    now_ms, opened, away = desk.store.now_ms, list[int](), threading.Event()
    opening = RunOpening.opened

    def count_openings(*given: Any) -> Any:
        opened.append(1)
        return opening(*given)

    def away_in_the_run() -> int:
        if opened and desk.run_of(one.id).sent and desk.run_of(one.id).sent < 600:
            away.set()
            raise LedgerUnavailable("away for a second")
        return now_ms()

    monkeypatch.setattr(RunOpening, "opened", count_openings)
    monkeypatch.setattr(desk.store, "now_ms", away_in_the_run)
    with desk.running():
        desk.until(one.id, DONE)
    assert away.is_set()
    assert len(opened) == 1
    assert len({n.id for n in desk.sent()}) == len(desk.sent()) == 600


def test_two_processes_send_a_campaign_once(desk: CampaignDesk, tmp_path: Path) -> None:
    one = desk.started(crowd(tmp_path, 400), rate_per_s=800.0)
    with desk.running(), desk.running():
        desk.until(one.id, DONE)
    assert len({n.id for n in desk.sent()}) == len(desk.sent()) == 400


def test_outside_its_hours_a_run_waits(desk: CampaignDesk, tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=3)
    hours = f"{later:%H:00}-{later + timedelta(hours=1):%H:00}"
    zone = CampaignSchedule(zone="UTC")
    one = desk.started(crowd(tmp_path, 5), hours=hours, schedule=zone)
    with desk.running():
        desk.until(one.id, CampaignState.RUNNING)
    run = desk.run_of(one.id)
    assert (run.state, run.done) == (RunState.OPEN, 0)
    assert not desk.sent()


def test_at_the_end_of_its_hours_a_run_stops_and_goes_on_when_they_come(
    desk: CampaignDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = desk.started(crowd(tmp_path, 600), rate_per_s=400.0, hours="00:00-24:00")
    with desk.running() as runner:
        await_(lambda: desk.runs.of(one.id) and desk.run_of(one.id).sent > 0)
        for module in (run_sender, runner_module):
            monkeypatch.setattr(module, "is_open", lambda *_: False)
        await_(lambda: not runner._threads, what="its place is free")
        run = desk.run_of(one.id)
        assert (run.state, run.positions) == (RunState.OPEN, {})
        assert 0 < run.sent == len(desk.sent()) < 600
        for module in (run_sender, runner_module):
            monkeypatch.setattr(module, "is_open", lambda *_: True)
        desk.until(one.id, DONE)
    assert len({n.id for n in desk.sent()}) == len(desk.sent()) == 600


class _Kept:
    """Acknowledges at once and keeps the records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def publish(self, record: Record, deadline_s: float) -> Future[Acknowledged]:
        future: Future[Acknowledged] = Future()
        self.records.append(record)
        future.set_result(Acknowledged(record.topic, 0, len(self.records), 1))
        return future


def test_each_row_has_the_trace_that_a_worker_would_give_its_message(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    one = desk.started(crowd(tmp_path, 3))
    kept = _Kept()
    with desk.running(kept):
        desk.until(one.id, DONE)
    ids = [row_id(desk.run_of(one.id).id, number) for number in (1, 2, 3)]
    headers = [dict(record.headers) for record in kept.records]
    assert [one["traceparent"].decode() for one in headers] == [
        traceparent_of(message_id, 1.0) for message_id in ids
    ]


def test_a_campaign_that_paused_itself_is_shown_and_one_of_a_person_is_not(
    desk: CampaignDesk, tmp_path: Path
) -> None:
    file = crowd(tmp_path, 5)
    one = desk.started(file)
    file.write_text("phone,name\n+8613800000009,changed\n")
    with desk.running() as runner:
        desk.until(one.id, PAUSED)
        await_(lambda: desk.store.paused_by(BY_ITSELF) == [one.id], what="it is listed")
        telemetry = runner._parts.telemetry
        await_(lambda: list(telemetry._paused) == [one.id], what="the metric has it")
    other = desk.made(crowd(tmp_path, 1, "other.csv"), rate_per_s=1.0)
    desk.actions.start(other.id, who="li", reason="go")
    desk.actions.pause(other.id, who="li", reason="wait")
    assert desk.store.paused_by(BY_ITSELF) == [one.id]
