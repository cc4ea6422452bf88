"""A resend job from its selection to its end, on every database."""

from functools import partial
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, event
from structlog.testing import capture_logs

from backends.kafka.clients import KafkaTrouble
from backends.settings import SettingsError
from idempotency.ledger import Settlement
from idempotency.recalls import Kind
from idempotency.recovery.contract import DueQuery
from idempotency.recovery.selection import Pick
from idempotency.resend_jobs.contract import ItemFate, JobState, ResendJob, ResendMode
from message.ids import new_token
from message.states import Event, State
from recovery.operator_actions import Operator
from recovery.operator_results import Copy, OperatorResult
from recovery.resend_jobs.actions import ResendJobActions
from recovery.resend_jobs.errors import ResendJobRefused
from recovery.resend_jobs.failures import csv_lines
from recovery.resend_jobs.handover import BATCH, MALFORMED
from recovery.resend_jobs.rules import CANARY_WAIT_MS, LAST_WAIT_MS
from tests.recovery.resend_jobs.jobfield import DAY_MS, HOUR_MS, LANE, LIMITS, JobField

AWAY = KafkaTrouble("away")
ALL = tuple(state.value for state in State if state not in (State.SENT, State.DELIVERED))


def one_of_each(field: JobField) -> dict[str, str]:
    """A row of each reason; returns reason to key."""
    rows = {
        "": field.parked()[0],
        "in_flight": field.ended(Event.CLAIM),
        "pending": field.ended(Event.NOT_SENT),
        "in_doubt": field.ended(Event.UNKNOWN),
        "sent": field.ended(Event.ACCEPTED),
    }
    recalled = field.parked()[0]
    field.ledger.recalls().announce(Kind.MESSAGE, recalled.notification.id, DAY_MS)
    return {why: row.key for why, row in rows.items()} | {"recalled": recalled.key}


def test_each_item_is_eligible_or_has_its_reason(field: JobField) -> None:
    rows = one_of_each(field)
    job = field.frozen(names=[*rows.values(), "nobody"])
    found = {i.delivery_key: i.why for i in field.items.page(job.id)}
    assert found == {key: why for why, key in rows.items()} | {"nobody": "unknown"}
    assert (job.items, job.eligible) == (7, 1)


def test_a_recall_in_a_lane_makes_its_rows_ineligible_and_no_others(field: JobField) -> None:
    gone, kept = field.parked(2)
    recalls = field.ledger.recalls()
    recalls.announce_in_lanes(gone.notification.id, {LANE}, DAY_MS)
    recalls.announce_in_lanes(kept.notification.id, {"sms.verification"}, DAY_MS)
    job = field.frozen(names=[gone.key, kept.key])
    found = {i.delivery_key: i.why for i in field.items.page(job.id)}
    assert found == {gone.key: "recalled", kept.key: ""}


def test_a_filter_lists_open_rows_and_leaves_out_what_was_sent(field: JobField) -> None:
    rows = one_of_each(field)
    job = field.frozen(states=ALL)
    found = {i.delivery_key: i.why for i in field.items.page(job.id)}
    assert found == {key: why for why, key in rows.items() if why != "sent"}


def test_what_is_past_its_time_is_eligible_only_on_demand(field: JobField) -> None:
    (late,) = field.parked()
    field.world.advance(DAY_MS)
    assert field.fates(field.frozen()) == {"INELIGIBLE:expired": 1}
    job = field.frozen(expired=True)
    assert field.keys(job, ItemFate.PENDING) == {late.key}


def test_a_filter_keeps_to_lane_window_account_and_reason(field: JobField) -> None:
    field.parked(lane="email.notice")
    (early,) = field.parked()
    field.world.advance(HOUR_MS // 100)
    since = field.world.now
    (inside,) = field.parked()
    field.ended(Event.REJECTED)
    job = field.frozen(since=since, reason="attempts_spent")
    assert field.keys(job) == {inside.key}
    job = field.frozen(until=since - 1)
    assert field.keys(job) == {early.key}
    assert field.frozen(account="other").items == 0


def test_names_are_keys_or_message_ids_and_no_row_is_twice(field: JobField) -> None:
    one, two = field.parked(2)
    job = field.frozen(names=[one.key, one.notification.id, two.notification.id])
    assert field.keys(job) == {one.key, two.key}


def test_it_is_frozen_page_by_page_and_goes_on_after_a_crash(
    field: JobField, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotency.resend_jobs.freezing.PAGE", 3)
    items = field.parked(8)
    job, freezing = field.make(), field.ledger.job_freezing()
    while job.state is JobState.FREEZING:
        read = field.jobs.get(job.id)  # nothing is kept in memory
        assert read is not None
        job = freezing.page(read)
    assert field.keys(job, ItemFate.PENDING) == {item.key for item in items}
    assert job.eligible == 8
    whole = field.items.check(job, job.place).place.digest
    assert whole == job.digest


@pytest.mark.parametrize(("of_server", "in_force"), [("0", "0"), ("1", "32"), ("64", "64")])
def test_a_page_asks_the_disk_for_many_rows_at_once(
    field: JobField, of_server: str, in_force: str
) -> None:
    if not field.world.is_postgres:
        pytest.skip("SQLite reads row by row")
    field.parked(8)
    plans: list[str] = []
    settings: set[tuple[str, ...]] = set()

    def look(_connection: Any, cursor: Any, statement: str, parameters: Any, *_more: Any) -> None:
        asked = cursor.connection.execute
        names = ["enable_indexscan", "enable_bitmapscan", "effective_io_concurrency"]
        index, bitmap, at_once = (asked(f"SHOW {name}").fetchone()[0] for name in names)
        if statement.lstrip().startswith("WITH added"):
            plans.extend(row[0] for row in asked(f"EXPLAIN {statement}", parameters))
            settings.add(("items", index, bitmap, at_once))
        elif "set_config" not in statement:
            settings.add(("others", index, bitmap))

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL effective_io_concurrency = {of_server}")

    engine = field.ledger.database.engine
    event.listen(engine, "before_cursor_execute", look)
    event.listen(engine, "begin", begin)
    try:
        job = field.frozen()
    finally:
        event.remove(engine, "begin", begin)
        event.remove(engine, "before_cursor_execute", look)
    assert job.items == 8
    assert settings == {("items", "off", "on", in_force), ("others", "on", "off")}
    own = [line for line in plans if "Scan" in line and " on deliveries_" in line]
    assert own, plans
    assert all("Bitmap" in line for line in own), own


def test_a_job_sends_each_eligible_delivery_once(field: JobField) -> None:
    items = field.parked(2 * BATCH + 7)
    job = field.started(field.frozen())
    sent: list[str] = []
    for _ in range(100):
        field.runner.run_once()
        sent += field.send()
        field.world.advance(1_000)
        if field.state(job) is JobState.DONE:
            break
    assert sorted(sent) == sorted(item.key for item in items)
    assert field.fates(job) == {"SENT": len(items)}


def test_the_canary_goes_first_and_its_ends_are_awaited(field: JobField) -> None:
    field.parked(10)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    for _ in range(5):
        field.runner.run_once()
    assert field.fates(job) == {"PENDING": 7, "APPLIED": 3}
    assert len(field.send()) == 3
    field.work(job, JobState.RUNNING)


def test_the_canary_has_ended_once_all_of_it_has(
    field: JobField, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many looks for ends it takes: a canary may have 10,000 deliveries, a look has 1,000."""
    monkeypatch.setattr(field.items, "follow", partial(field.items.follow, limit=1))
    field.parked(12)
    limits = msgspec.structs.replace(LIMITS, canary=8)
    job = field.work(field.started(field.frozen(limits=limits)), JobState.CANARY)
    field.runner.run_once()
    rows = field.ledger.recovering()
    taken = rows.take(DueQuery(LANE, 99), "w1", new_token()).taken
    items = sorted((one.delivery for one in taken), key=lambda one: one.key)
    assert len(items) == 8
    assert all(field.ledger.settle([Settlement(one, Event.ACCEPTED) for one in items[:6]]))
    field.runner.run_once()
    assert (field.state(job), field.fates(job)) == (
        JobState.CANARY,
        {"SENT": 6, "APPLIED": 2, "PENDING": 4},
    )
    assert all(field.ledger.settle([Settlement(one, Event.ACCEPTED) for one in items[6:]]))
    field.runner.run_once()
    assert field.state(job) is JobState.RUNNING


def test_a_canary_that_does_not_end_pauses_the_job(field: JobField) -> None:
    field.parked(10)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    field.world.advance(CANARY_WAIT_MS)
    field.runner.run_once()
    paused = field.actions.get(job.id)
    assert paused.state is JobState.PAUSED
    assert "3 of the first deliveries have not ended" in (paused.note or "")


@pytest.mark.parametrize("end", [Event.REJECTED, Event.UNKNOWN, Event.NOT_SENT])
def test_it_pauses_itself_on_the_error_rate_and_shows_it(field: JobField, end: Event) -> None:
    field.parked(10)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    assert len(field.send(end)) == 3
    paused = field.work(job, JobState.PAUSED)
    assert (paused.paused_from, paused.noted_by) == (JobState.CANARY, "recovery")
    shown = field.registry.get_sample_value("hongyan_resend_jobs_paused", {"job": job.id})
    assert shown == 1
    field.runner.run_once()
    assert field.keys(job, ItemFate.PENDING), "nothing more is handed over"
    field.actions.resume(job.id, who="wang", reason="provider is back")
    resumed = field.work(job, JobState.RUNNING)
    assert resumed.note == "provider is back", "what failed before is not judged again"


def test_the_rate_is_bounded_and_ramps(field: JobField) -> None:
    field.parked(100)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    field.send()
    field.work(job, JobState.RUNNING)
    handed = []
    for _ in range(4):
        left = len(field.keys(job, ItemFate.PENDING))
        field.runner.run_once()
        handed.append(left - len(field.keys(job, ItemFate.PENDING)))
        field.world.advance(1_000)
    assert handed[1:] == [10, 10, 10], "an eighth of 80 a second"


def test_a_start_wants_preview_count_and_reason(field: JobField) -> None:
    field.parked(2)
    job = field.frozen()
    signed = field.actions.preview(job.id).signature
    for typed, signature, reason, why in (
        (3, signed, "go", "the typed count is 3, and 2 would be sent"),
        (2, signed[::-1], "go", "not the preview"),
        (2, signed, "  ", "a reason is required"),
    ):
        with pytest.raises(ResendJobRefused, match=why):
            field.actions.start(job.id, signature, typed=typed, who="li", reason=reason)
    assert field.state(job) is JobState.PREVIEW


def test_an_expired_preview_is_refused(field: JobField) -> None:
    field.parked()
    job = field.frozen()
    field.world.advance(int(LIMITS.preview_s * 1_000))
    with pytest.raises(ResendJobRefused, match="expired"):
        field.started(job)
    field.work(job, JobState.LAPSED)


def test_above_the_threshold_another_person_approves(field: JobField) -> None:
    field.parked(2)
    job = field.frozen(limits=msgspec.structs.replace(LIMITS, approve_above=1))
    assert field.started(job, who="Wang").state is JobState.WAITING
    signed = field.actions.preview(job.id).signature
    for who in ("wang ", "li@ops"):
        with pytest.raises(ResendJobRefused, match="another person"):
            field.actions.approve(job.id, signed, who=who)
    with pytest.raises(ResendJobRefused, match="not the preview"):
        field.actions.approve(job.id, "x", who="zhao")
    field.runner.run_once()
    assert field.fates(job) == {"PENDING": 2}
    assert field.actions.approve(job.id, signed, who="zhao").state is JobState.CHECKING


def test_a_start_that_nobody_approves_lapses(field: JobField) -> None:
    field.parked(2)
    job = field.frozen(limits=msgspec.structs.replace(LIMITS, approve_above=1))
    field.started(job)
    field.world.advance(int(LIMITS.preview_s * 1_000))
    lapsed = field.work(job, JobState.LAPSED)
    assert lapsed.note == "nobody approved it"


def test_rows_that_moved_since_the_preview_refuse_the_start(field: JobField) -> None:
    one, _ = field.parked(2)
    job = field.frozen()
    other = field.started(field.frozen(names=[one.key]))
    field.work(other, JobState.CANARY)
    field.runner.run_once()
    with pytest.raises(ResendJobRefused, match="1 of the deliveries have moved"):
        field.started(job)
    assert field.state(job) is JobState.REFUSED


def test_every_row_is_checked_before_anything_is_sent(
    field: JobField, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = field.parked(2)
    job = field.started(field.frozen())
    field.world.rows_changed(
        f"UPDATE deliveries SET version = version + 1 WHERE delivery_key = '{one.key}'"
    )
    field.work(job, JobState.REFUSED)
    assert field.send() == []


def test_items_that_were_changed_refuse_the_job(field: JobField) -> None:
    one, two = field.parked(2)
    job = field.frozen(names=[one.key])
    field.started(job)
    field.world.rows_changed(
        f"UPDATE resend_job_items SET delivery_key = '{two.key}' WHERE job_id = '{job.id}'"
    )
    refused = field.work(job, JobState.REFUSED)
    assert refused.note == "its items are not those of the preview: nothing was sent"


def test_what_is_recalled_or_moved_meanwhile_is_not_sent(field: JobField) -> None:
    items = field.parked(6)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    waiting = field.keys(job, ItemFate.PENDING)
    recalled, moved = [item for item in items if item.key in waiting][:2]
    under_way = next(item for item in items if item.key not in waiting)
    for item in (recalled, under_way):
        field.ledger.recalls().announce(Kind.MESSAGE, item.notification.id, DAY_MS)
    field.world.rows_changed(
        f"UPDATE deliveries SET version = version + 1 WHERE delivery_key = '{moved.key}'"
    )
    sent = field.send()
    field.work(job, JobState.RUNNING)
    for _ in range(10):
        field.runner.run_once()
        sent += field.send()
        field.world.advance(1_000)
    assert field.state(job) is JobState.DONE
    assert field.fates(job) == {
        "SENT": 3,
        "REFUSED:recalled": 1,
        "REFUSED:moved": 1,
        "REFUSED:DROPPED:recalled": 1,
    }
    assert {recalled.key, moved.key, under_way.key}.isdisjoint(sent)


@pytest.mark.parametrize("mode", [ResendMode.AGAIN, ResendMode.COPY])
def test_what_is_over_by_its_turn_is_not_sent_unless_asked_for(
    field: JobField, mode: ResendMode
) -> None:
    """It was in time at the preview. A person looked at that, and another one approved."""
    field.parked(2)
    jobs = [field.frozen(mode=mode, expired=expired) for expired in (False, True)]
    jobs = [field.started(job) for job in jobs]
    field.world.advance(int(LIMITS.preview_s * 1_000))
    handed = {}
    for job in jobs:
        field.work(job, JobState.CANARY)
        field.runner.run_once()
        handed[job.wanted.expired] = field.fates(job)
    assert handed == {False: {"REFUSED:expired": 2}, True: {"APPLIED": 2}}


def test_pause_resume_and_cancel_are_obeyed(field: JobField) -> None:
    field.parked(10)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    field.actions.pause(job.id, who="zhao", reason="wait")
    field.send()
    for _ in range(3):
        field.runner.run_once()
        field.world.advance(1_000)
    assert field.fates(job) == {"PENDING": 7, "SENT": 3}
    field.actions.resume(job.id, who="zhao", reason="go on")
    field.work(job, JobState.RUNNING)
    field.actions.cancel(job.id, who="zhao", reason="enough")
    cancelled = field.work(job, JobState.CANCELLED)
    assert (cancelled.noted_by, cancelled.note) == ("zhao", "enough")
    assert field.fates(job) == {"PENDING": 7, "SENT": 3}
    with pytest.raises(ResendJobRefused, match="nothing is left to cancel"):
        field.actions.cancel(job.id, who="zhao", reason="again")


def test_a_job_is_cancelled_before_it_sent_anything(field: JobField) -> None:
    field.parked()
    job = field.frozen()
    with pytest.raises(ResendJobRefused, match="reason"):
        field.actions.cancel(job.id, who="li", reason="")
    assert field.actions.cancel(job.id, who="li", reason="no").state is JobState.CANCELLED


def test_of_two_persons_the_second_is_refused_and_told_why(
    field: JobField, monkeypatch: pytest.MonkeyPatch
) -> None:
    field.parked()
    job = field.frozen()

    def meanwhile(_job: ResendJob) -> None:
        other = ResendJobActions(field.jobs, field.items)
        other.cancel(job.id, who="zhao", reason="no")

    monkeypatch.setattr(field.actions, "_refuse_moved", meanwhile)
    with pytest.raises(ResendJobRefused, match="changed meanwhile by zhao and is CANCELLED"):
        field.started(job)
    assert field.state(job) is JobState.CANCELLED


def test_two_recoveries_hand_nothing_over_twice(field: JobField) -> None:
    items = field.parked(30)
    job = field.started(field.frozen())
    other = field.recovery("r2")
    sent: list[str] = []
    for _ in range(40):
        field.runner.run_once()
        other.run_once()
        sent += field.send()
        field.world.advance(1_000)
    assert field.state(job) is JobState.DONE
    assert sorted(sent) == sorted(item.key for item in items)
    assert field.fates(job) == {"SENT": 30}


def test_the_row_has_the_job_the_person_and_the_reason(field: JobField) -> None:
    (item,) = field.parked()
    job = field.work(field.started(field.frozen(), who="wang"), JobState.CANARY)
    field.runner.run_once()
    row = field.ledger.queries().by_key(item.key)
    assert row is not None
    assert (row.state, row.reason) == ("RETRY", f"operator:wang: {job.id}: go")


def test_the_same_id_twice_is_one_job(field: JobField) -> None:
    field.parked()
    made = [
        field.actions.make(
            ResendMode.AGAIN, job.wanted, LIMITS, who="li", reason="r", job_id=job.id
        )
        for job in [field.make()]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(field.jobs.newest(10)) == 1


def test_failures_are_csv(field: JobField) -> None:
    field.parked(2)
    job = field.work(field.started(field.frozen()), JobState.CANARY)
    field.runner.run_once()
    field.send(Event.REJECTED)
    field.runner.run_once()
    lines = list(csv_lines(field.items.failures(job.id)))
    assert len(lines) == 3
    cells = lines[1].split(",")
    assert cells[1:6] == [LANE, "", "PARKED", "FAILED", "REJECTED:x"]


# ---- copies ----------------------------------------------------------------------------------


def test_a_copy_is_a_new_notification_of_what_was_sent(field: JobField) -> None:
    item = field.ended(Event.ACCEPTED)
    job = field.frozen(mode=ResendMode.COPY, names=[item.key])
    field.work(field.started(job), JobState.CANARY)
    field.runner.run_once()
    (made,) = field.broker.produced
    assert made["resend_of"] == item.notification.id
    assert made["id"] != item.notification.id
    assert field.row(item) == "SENT"
    (one,) = field.items.page(job.id)
    assert (one.fate, one.new_id) == (ItemFate.APPLIED, made["id"])


def test_no_copy_of_what_was_recalled_is_previewed(field: JobField) -> None:
    """The handover refuses it; the number that a person types must not have it."""
    sent, recalled = field.ended(Event.ACCEPTED), field.ended(Event.ACCEPTED)
    field.ledger.recalls().announce(Kind.MESSAGE, recalled.notification.id, DAY_MS)
    job = field.frozen(mode=ResendMode.COPY, names=[sent.key, recalled.key])
    assert field.fates(job) == {"PENDING": 1, "INELIGIBLE:recalled": 1}
    assert field.actions.preview(job.id).job.eligible == 1


@pytest.mark.parametrize("away", [AWAY, None], ids=["away", "loses_reply"])
def test_a_copy_whose_reply_was_lost_is_the_same_bytes_again(
    field: JobField, away: Exception | None
) -> None:
    item = field.ended(Event.ACCEPTED)
    job = field.frozen(mode=ResendMode.COPY, names=[item.key])
    field.work(field.started(job), JobState.CANARY)
    field.broker.away, field.broker.loses_reply = away, True
    for _ in range(3):
        field.runner.run_once()
        field.world.advance(1_000)
    assert field.keys(job, ItemFate.APPLYING) == {item.key}
    field.broker.away, field.broker.loses_reply = None, False
    field.runner.run_once()
    assert field.keys(job, ItemFate.APPLIED) == {item.key}
    assert len({msgspec.json.encode(one) for one in field.broker.produced}) == 1


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (AWAY, "resend_job_waits"),
        (SettingsError("kafka.client: ssl.ca.location failed"), "resend_job_waits"),
        (KeyError("unforeseen"), "resend_job_died"),
    ],
    ids=["away", "settings", "unforeseen"],
)
def test_a_job_that_cannot_go_on_holds_up_no_younger_one(
    field: JobField, error: Exception, logged: str
) -> None:
    (item,) = field.parked()
    first = field.ended(Event.ACCEPTED)
    copying = field.frozen(mode=ResendMode.COPY, names=[first.key])
    again = field.frozen(names=[item.key])
    for job in (copying, again):
        field.started(job)
    field.work(again, JobState.CANARY)
    field.broker.away = error
    with capture_logs() as logs:
        assert field.runner.run_once() == 2
    assert logged in {line["event"] for line in logs}
    assert field.fates(again) == {"APPLIED": 1}
    field.broker.away = None
    field.runner.run_once()
    assert field.fates(copying) == {"APPLIED": 1}


def begun(field: JobField) -> ResendJob:
    """A job with three copies in Kafka whose acknowledgements were lost, and five that wait; cancelled."""
    field.parked(8)
    job = field.started(field.frozen(mode=ResendMode.COPY))
    field.work(job, JobState.CANARY)
    field.broker.loses_reply = True
    field.runner.run_once()
    assert field.fates(job) == {"APPLYING": 3, "PENDING": 5}
    field.actions.cancel(job.id, who="li", reason="enough")
    return job


def test_a_cancelled_job_follows_the_copies_that_a_worker_has(field: JobField) -> None:
    job = begun(field)
    field.broker.away = AWAY
    claim, *others = field.copies()
    field.accepted(*others)
    for _ in range(2):
        field.runner.run_once()
    assert field.fates(job) == {"SENT": 2, "APPLYING": 1, "PENDING": 5}
    field.accepted(claim)
    field.work(job, JobState.CANCELLED)
    assert field.fates(job) == {"SENT": 3, "PENDING": 5}


def test_a_cancelled_job_leaves_no_copy_in_doubt_and_begins_no_other(field: JobField) -> None:
    job = begun(field)
    field.broker.loses_reply = False
    for _ in range(3):
        field.runner.run_once()
        field.world.advance(1_000)
    assert field.fates(job) == {"APPLIED": 3, "PENDING": 5}
    assert len({msgspec.json.encode(one) for one in field.broker.produced}) == 3
    field.accepted(*field.copies())
    field.work(job, JobState.CANCELLED)
    assert field.fates(job) == {"SENT": 3, "PENDING": 5}


def test_a_cancelled_job_waits_for_kafka_no_longer_than_for_ends(field: JobField) -> None:
    job = begun(field)
    field.broker.away = AWAY
    field.runner.run_once()
    assert field.state(job) is JobState.ENDING
    field.world.advance(LAST_WAIT_MS)
    field.work(job, JobState.CANCELLED, rounds=2)


def test_a_copy_that_is_no_notification_fails_alone(
    field: JobField, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, later = (field.ended(Event.ACCEPTED) for _ in range(3))
    job = field.frozen(mode=ResendMode.COPY, names=[good.key, bad.key])
    other = field.frozen(mode=ResendMode.COPY, names=[later.key])
    made = Operator.copy

    def with_a_bad_one(self: Operator, pick: Pick, job_id: str) -> Copy | OperatorResult:
        copy = made(self, pick, job_id)
        if isinstance(copy, Copy) and pick.key == bad.key:
            return copy._replace(fields=copy.fields | {"kind": "fax"})
        return copy

    monkeypatch.setattr(Operator, "copy", with_a_bad_one)
    for one in (job, other):
        field.started(one)
    field.work(other, JobState.CANARY)
    for _ in range(2):
        field.runner.run_once()
        field.world.advance(1_000)
    sent_of = {one["resend_of"] for one in field.broker.produced}
    assert sent_of == {good.notification.id, later.notification.id}
    (failed,) = field.items.page(job.id, "", 10, ItemFate.FAILED)
    assert (failed.delivery_key, failed.why.partition(":")[0]) == (bad.key, MALFORMED)
    assert "kind" in failed.why
    assert field.keys(job, ItemFate.APPLIED) == {good.key}
