"""`hongyan resend jobs`: a job from its order to its cancellation, and the sentences of what is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.settings import load
from hongyan import terminal
from idempotency.resend_jobs.contract import ItemChange, ItemFate, JobState
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery
from message.states import Event
from tests.harness.databases import upgraded
from tests.hongyan.conftest import Run
from tests.hongyan.test_resend import parked
from tests.idempotency.making import claimed, delivery, settle, worker

NEW = ("resend", "jobs", "new", "--reason", "provider was down", "--author", "li@ops")
BY_STATE = ("--state", "parked", "--lane", "sms.*", "--since", "1h")


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_TRACE__KAFKA", "false")
    settings = load()
    upgraded(settings)
    ledger = open_ledger(settings)
    ledger.register(worker("w1"))
    yield ledger
    ledger.close()


def freeze(ledger: SqlLedger, job_id: str) -> None:
    """Recovery's part of a new job."""
    job = ledger.resend_jobs().get(job_id)
    assert job is not None
    while job.state is JobState.FREEZING:
        job = ledger.job_freezing().page(job)


def previewed(hongyan: Run, ledger: SqlLedger, *more: str) -> str:
    made = hongyan(*NEW, *(more or BY_STATE), "--json")
    assert (made.code, made.json["state"], made.json["author"]) == (0, "FREEZING", "li@ops")
    freeze(ledger, made.json["id"])
    job: str = made.json["id"]
    return job


def signature(hongyan: Run, job: str) -> str:
    signed: str = hongyan("resend", "jobs", "show", job, "--json").json["preview"]
    return signed


def start(hongyan: Run, job: str, count: int, author: str = "li@ops") -> tuple[int, str]:
    given = ("--preview", signature(hongyan, job), "--count", str(count), "--reason", "go")
    said = hongyan("resend", "jobs", "start", job, *given, "--author", author)
    return said.code, said.err or said.out


def test_a_job_is_ordered_previewed_started_paused_resumed_and_cancelled(
    hongyan: Run, ledger: SqlLedger
) -> None:
    items = parked(ledger, 3)
    job = previewed(hongyan, ledger)
    shown = hongyan("resend", "jobs", "show", job)
    assert "3 of 3 deliveries would go at 50 a second" in shown.out
    assert f"hongyan resend jobs start {job} --preview {signature(hongyan, job)}" in shown.out
    assert all(item.key in shown.out for item in items), "a sample"
    assert start(hongyan, job, 2) == (1, "the typed count is 2, and 3 would be sent")
    assert start(hongyan, job, 3) == (0, f"{job}  CHECKING\n")
    for order, state in (("pause", "PAUSED"), ("resume", "CHECKING"), ("cancel", "CANCELLED")):
        said = hongyan("resend", "jobs", order, job, "--reason", f"to {order}", "--json")
        assert (said.code, said.json["state"], said.json["note"]) == (0, state, f"to {order}")
    late = hongyan("resend", "jobs", "cancel", job, "--reason", "again")
    assert (late.code, late.err) == (1, f"job {job} is CANCELLED: nothing is left to cancel")


def test_another_person_approves_a_large_one(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_RESEND__APPROVE_ABOVE", "1")
    parked(ledger, 2)
    job = previewed(hongyan, ledger)
    assert "another person must approve" in start(hongyan, job, 2)[1]
    approve = ("resend", "jobs", "approve", job, "--preview", signature(hongyan, job), "--author")
    own = hongyan(*approve, "LI@ops")
    assert (own.code, "another person must approve" in own.err) == (1, True)
    assert hongyan(*approve, "zhao", "--json").json["approved_by"] == "zhao"


def test_rows_that_moved_refuse_the_start(hongyan: Run, ledger: SqlLedger) -> None:
    one, _ = parked(ledger, 2)
    job = previewed(hongyan, ledger)
    assert hongyan("resend", one.key).code == 0
    code, text = start(hongyan, job, 2)
    assert (code, "1 of the deliveries have moved since the preview" in text) == (1, True)
    assert hongyan("resend", "jobs", "show", job, "--json").json["state"] == "REFUSED"


def test_names_come_from_words_or_a_file_and_copies_and_rate_are_kept(
    hongyan: Run, ledger: SqlLedger, folder: Path
) -> None:
    one, two = parked(ledger, 2)
    (folder / "keys.txt").write_text(f"{one.key}\n\n{two.notification.id}\n")
    job = previewed(hongyan, ledger, "--file", "keys.txt", "--new-id", "--rate", "5", "--job", "j1")
    shown = hongyan("resend", "jobs", "show", job, "--json").json
    assert (job, shown["mode"], shown["eligible"]) == ("j1", "copy", 2)
    assert shown["limits"]["rate_per_s"] == 5
    assert hongyan(*NEW, one.key, "--job", "j1", "--json").json["id"] == "j1"
    listed = hongyan("resend", "jobs", "list", "--json").json
    assert [one["id"] for one in listed] == ["j1"], "the same name is one job"


def test_a_line_of_a_file_is_one_id(hongyan: Run, ledger: SqlLedger, folder: Path) -> None:
    """Blanks are part of an id, so that "order 7" never names the message "7"; editors add a mark."""
    one, two = parked(ledger, 2)
    others = [claimed(ledger, delivery(id=name))[0] for name in ("order 7", "7")]
    for other in others:
        assert settle(ledger, other, Event.BUDGET_SPENT, reason="attempts_spent")
    lines = f"\ufeff{one.key}\r\n  {two.key} \r\norder 7\r\n"
    (folder / "keys.txt").write_text(lines, "utf-8", newline="")
    job = previewed(hongyan, ledger, "--file", "keys.txt")
    items = ledger.job_items().page(job)
    assert {item.delivery_key for item in items} == {one.key, two.key, others[0].key}


def test_failures_are_printed_as_csv(hongyan: Run, ledger: SqlLedger) -> None:
    items: list[Delivery] = parked(ledger, 2)
    job = previewed(hongyan, ledger)
    written = ledger.resend_jobs().get(job)
    assert written is not None
    change = ItemChange(items[0].key, ItemFate.FAILED, "REJECTED:x")
    ledger.job_items().change(written, ItemFate.PENDING, [change])
    said = hongyan("resend", "jobs", "failures", job)
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert [(row["delivery_key"], row["why"]) for row in rows] == [(items[0].key, "REJECTED:x")]


def test_jobs_are_listed_newest_first_and_fit_a_narrow_terminal(
    hongyan: Run, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hongyan("resend", "jobs", "list").out == "no resend jobs\n"
    parked(ledger)
    jobs = [previewed(hongyan, ledger) for _ in range(2)]
    monkeypatch.setattr(terminal, "_PIPE_WIDTH", 80)
    said = hongyan("resend", "jobs", "list")
    assert all(job in said.out for job in jobs)
    assert max(map(len, said.out.splitlines())) <= 80
    cut = hongyan("resend", "jobs", "list", "--limit", "1", "--json")
    assert (len(cut.json), cut.err) == (1, "there are more: give --limit\n")


def test_an_unknown_job_is_told_so_by_every_command(hongyan: Run, ledger: SqlLedger) -> None:
    reason = ("--reason", "r")
    for words in (
        ("show", "x"),
        ("start", "x", "--preview", "s", "--count", "1", *reason),
        ("approve", "x", "--preview", "s"),
        ("pause", "x", *reason),
        ("resume", "x", *reason),
        ("cancel", "x", *reason),
        ("failures", "x"),
    ):
        said = hongyan("resend", "jobs", *words)
        assert (said.code, said.out, said.err) == (1, "", "there is no job 'x'"), words


def test_a_message_called_jobs_is_still_named(hongyan: Run, ledger: SqlLedger) -> None:
    said = hongyan("resend", "--", "jobs")
    assert (said.code, "nothing is known of 'jobs'" in said.err) == (1, True)
