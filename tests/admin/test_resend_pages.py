"""Resend jobs in the console: made, previewed, started, approved and stopped, each by who may."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.pages.resend.jobs import PER_PAGE
from admin.pages.resend.moments import moment_ms
from admin.pages.resend.names import decoded, read_names
from admin.parts import ConsoleParts
from admin.web.forms import WrongForm
from idempotency.resend_jobs.contract import (
    ItemChange,
    ItemFate,
    JobFilter,
    JobLimits,
    JobState,
    ResendJob,
    ResendMode,
)
from message.delivery import Delivery
from message.states import Event
from recovery.resend_jobs.factory import actions_on
from tests.admin.conftest import Browser
from tests.idempotency.making import claimed, delivery, settle, worker

ALL = {Role.OPERATOR: ("*",), Role.APPROVER: ("*",)}
FORM = {"by": "filter", "state": "PARKED", "lane": "sms.notice", "since": "1h", "reason": "outage"}


def parked(parts: ConsoleParts, count: int = 1, lane: str = "sms.notice") -> list[Delivery]:
    parts.ledger.register(worker("w1"))
    made = claimed(parts.ledger, *(delivery(lane=lane) for _ in range(count)))
    for one in made:
        assert settle(parts.ledger, one, Event.BUDGET_SPENT, reason="attempts_spent")
    return made


def frozen(parts: ConsoleParts, job_id: str) -> ResendJob:
    """Recovery's part of a new job."""
    job = parts.ledger.resend_jobs().get(job_id)
    while job is not None and job.state is JobState.FREEZING:
        job = parts.ledger.job_freezing().page(job)
    assert job is not None
    return job


def made(parts: ConsoleParts, who: str = "lin", above: int = 1_000, **wanted: Any) -> ResendJob:
    names = wanted.pop("names", ())
    chosen = {} if names else {"states": ("PARKED",), "lanes": ("sms.notice",)}
    job = actions_on(parts.ledger).make(
        ResendMode.AGAIN,
        JobFilter(**(chosen | wanted)),
        JobLimits(approve_above=above),
        who=who,
        reason="outage",
        names=names,
    )
    return frozen(parts, job.id)


def preview(parts: ConsoleParts, job: ResendJob) -> dict[str, str]:
    found = actions_on(parts.ledger).preview(job.id)
    return {"signature": found.signature, "typed": str(job.eligible), "reason": "it is back"}


def state(parts: ConsoleParts, job: ResendJob) -> JobState:
    return actions_on(parts.ledger).get(job.id).state


def actions(parts: ConsoleParts) -> list[tuple[str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    return [(r.person, r.action, r.subject) for r in rows if r.action.startswith("resend.")]


@pytest.fixture
def lin(browser: Callable[[], Browser], user: Callable[..., int]) -> Browser:
    user("lin", ALL)
    one = browser()
    one.sign_in("lin")
    return one


def test_a_job_goes_from_the_form_over_its_preview_to_its_start(
    parts: ConsoleParts, lin: Browser
) -> None:
    parked(parts, 3)
    answer = lin.post("/resend", **FORM)
    assert answer.status_code == 303
    job = frozen(parts, answer.headers["location"].rpartition("/")[2])
    page = lin.get(f"/resend/{job.id}").text
    assert job.eligible == 3
    assert 'data-typed="3"' in page
    assert "The preview expires in" in page
    signed = re.search(r'name="signature" value="(\w+)"', page)
    assert signed
    fields = {"signature": signed[1], "typed": "3", "reason": "it is back"}
    assert lin.post(f"/resend/{job.id}/start", **fields).status_code == 303
    assert state(parts, job) is JobState.CHECKING
    assert actions(parts) == [
        ("lin", "resend.start", job.id),
        ("lin", "resend.make", job.id),
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"typed": "2"}, "typed count"), ({"signature": "0" * 32}, "not the preview")],
)
def test_a_start_with_another_count_or_signature_does_nothing_and_says_why(
    parts: ConsoleParts, lin: Browser, wrong: dict[str, str], says: str
) -> None:
    parked(parts, 3)
    job = made(parts)
    answer = lin.post(f"/resend/{job.id}/start", **(preview(parts, job) | wrong))
    assert answer.status_code == 409
    assert says in answer.text
    assert state(parts, job) is JobState.PREVIEW
    assert actions(parts) == []


def test_rows_that_moved_refuse_the_start_and_the_audit_has_it(
    parts: ConsoleParts, lin: Browser
) -> None:
    rows = parked(parts, 2)
    job = made(parts)
    fields = preview(parts, job)
    with parts.ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE deliveries SET version = version + 1 WHERE delivery_key = '{rows[0].key}'"
        )
    answer = lin.post(f"/resend/{job.id}/start", **fields)
    assert answer.status_code == 409
    assert "have moved since the preview" in answer.text
    assert "/resend/new?states=PARKED" in answer.text
    assert state(parts, job) is JobState.REFUSED
    (row, *_) = parts.journal.page(AuditFilter(action="resend.start"), 10)
    assert row.reason.startswith("REFUSED: ")


def test_nobody_approves_an_own_job_and_a_second_person_does(
    parts: ConsoleParts, lin: Browser, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    parked(parts, 3)
    job = made(parts, above=2)
    fields = preview(parts, job)
    lin.post(f"/resend/{job.id}/start", **fields)
    assert state(parts, job) is JobState.WAITING
    assert f"/resend/{job.id}/approve" not in lin.get(f"/resend/{job.id}").text
    own = lin.post(f"/resend/{job.id}/approve", signature=fields["signature"], reason="me")
    assert own.status_code == 409
    assert state(parts, job) is JobState.WAITING

    user("bo", {Role.OPERATOR: ("*",)})
    user("Mei", {Role.APPROVER: ("*",)})
    bo, mei = browser(), browser()
    bo.sign_in("bo")
    mei.sign_in("Mei")
    approve = {"signature": fields["signature"], "reason": "seen"}
    assert bo.post(f"/resend/{job.id}/approve", **approve).status_code == 403
    assert f"/resend/{job.id}/approve" in mei.get(f"/resend/{job.id}").text
    assert mei.post(f"/resend/{job.id}/approve", **approve).status_code == 303
    assert state(parts, job) is JobState.CHECKING
    assert actions(parts)[0] == ("Mei", "resend.approve", job.id)


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_an_own_job_is_one_for_a_name_of_any_length(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    name = "lin." * 20 + "li@example.com"  # a job keeps 64 characters of it
    user(name, {Role.OPERATOR: ("*",), Role.APPROVER: ("*",)})
    lin = browser()
    lin.sign_in(name)
    parked(parts, 3)
    job = made(parts, above=2)
    lin.post(f"/resend/{job.id}/start", **preview(parts, job))
    assert state(parts, job) is JobState.WAITING
    assert f"/resend/{job.id}/approve" not in lin.get(f"/resend/{job.id}").text


def test_pause_resume_and_cancel_want_a_reason_and_leave_their_rows(
    parts: ConsoleParts, lin: Browser
) -> None:
    parked(parts, 3)
    job = made(parts)
    lin.post(f"/resend/{job.id}/start", **preview(parts, job))
    assert lin.post(f"/resend/{job.id}/pause").status_code == 422
    for order, target in (
        ("pause", JobState.PAUSED),
        ("resume", JobState.CHECKING),
        ("cancel", JobState.CANCELLED),
    ):
        assert lin.post(f"/resend/{job.id}/{order}", reason="so").status_code == 303
        assert state(parts, job) is target
    late = lin.post(f"/resend/{job.id}/pause", reason="so")
    assert late.status_code == 409
    assert "CANCELLED" in late.text
    assert [action for _, action, _ in actions(parts)] == [
        "resend.cancel",
        "resend.resume",
        "resend.pause",
        "resend.start",
    ]


def test_a_job_that_touches_a_foreign_lane_is_neither_made_nor_operated(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    parked(parts, lane="email.notice")
    job = made(parts, lanes=("sms.notice", "email.notice"))
    user("bo", {Role.OPERATOR: ("sms.*",), Role.VIEWER: ("*",)})
    user("wu", {Role.OPERATOR: ("sms.*",)})
    bo, wu = browser(), browser()
    bo.sign_in("bo")
    wu.sign_in("wu")
    assert bo.post("/resend", **(FORM | {"lane": "email.notice"})).status_code == 403
    assert bo.get(f"/resend/{job.id}").status_code == 200
    assert bo.post(f"/resend/{job.id}/start", **preview(parts, job)).status_code == 403
    for path in ("", "/items", "/live", "/failures.csv"):
        assert wu.get(f"/resend/{job.id}{path}").status_code == 404
    assert wu.post(f"/resend/{job.id}/cancel", reason="x").status_code == 404
    assert job.id not in wu.get("/resend").text
    assert job.id in bo.get("/resend").text
    assert state(parts, job) is JobState.PREVIEW


def test_an_id_of_a_foreign_lane_is_unknown_as_one_that_does_not_exist(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    (own,), (foreign,) = parked(parts), parked(parts, lane="email.notice")
    user("bo", {Role.OPERATOR: ("sms.*",)})
    bo = browser()
    bo.sign_in("bo")
    lines = f"{own.key}\n{foreign.key}\n{foreign.notification.id}\nnobody"
    answer = bo.post("/resend", by="names", names=lines, reason="asked")
    job = frozen(parts, answer.headers["location"].rpartition("/")[2])
    found = {i.delivery_key: (i.why, i.lane) for i in parts.ledger.job_items().page(job.id)}
    assert found.pop(own.key) == ("", "sms.notice")
    assert set(found.values()) == {("unknown", "")}
    assert len(found) == 3
    assert bo.get(f"/resend/{job.id}").status_code == 200


def test_an_uploaded_file_is_read_and_each_wrong_line_is_named(
    parts: ConsoleParts, lin: Browser
) -> None:
    (row,) = parked(parts)
    fields = {"csrf": lin.token(), "by": "names", "reason": "asked"}
    bad = b"delivery_key,lane\n" + b"x" * 65 + b"\n<script>alert(1)</script>\xe2\x80\xae\n"
    wrong = lin.client.post("/resend", data=fields, files={"file": ("a.csv", bad)})
    assert wrong.status_code == 422
    assert "Line 2:" in wrong.text
    assert "Line 3:" in wrong.text
    assert "<script>alert" not in wrong.text
    good = f"delivery_key,lane\n{row.key},sms.notice\n".encode()
    answer = lin.client.post(
        "/resend", data=fields, files={"file": ("a.csv", good)}, follow_redirects=False
    )
    assert answer.status_code == 303
    assert frozen(parts, answer.headers["location"].rpartition("/")[2]).eligible == 1


def test_the_same_form_sent_twice_is_one_job_and_a_changed_one_another(
    parts: ConsoleParts, lin: Browser
) -> None:
    once = {**FORM, "once": "abc"}
    first, second = (lin.post("/resend", **once).headers["location"] for _ in range(2))
    other = lin.post("/resend", **(once | {"mode": "copy"})).headers["location"]
    assert first == second != other
    assert [action for _, action, _ in actions(parts)] == ["resend.make"] * 2


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"since": ""}, "Say since when"),
        ({"since": "soon"}, "soon is no time"),
        ({"state": ""}, "at least one state and one lane"),
        ({"rate": "fast"}, "above 0.01"),
        ({"reason": ""}, "Give a reason"),
        ({"state": "SENT"}, "no state"),
    ],
)
@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_refused_form_comes_back_as_it_was_with_a_sentence(
    lin: Browser, fields: dict[str, str], says: str
) -> None:
    answer = lin.post("/resend", **({**FORM, "account": "main<b>"} | fields))
    assert answer.status_code == 422
    assert says in answer.text
    assert "main&lt;b&gt;" in answer.text


def test_a_link_fills_the_form_in(parts: ConsoleParts, lin: Browser) -> None:
    page = lin.get(
        "/resend/new?states=REJECTED,EXPIRED&lanes=email.notice&since=1790000000000&code=http_500"
    ).text
    ticked = re.findall(r'value="([^"]+)" checked', page)
    assert ticked == ["REJECTED", "EXPIRED", "email.notice", "again"]
    assert 'value="1790000000000"' in page
    assert 'value="http_500"' in page


def test_items_are_paged_and_filtered_by_fate_and_failures_are_csv(
    parts: ConsoleParts, lin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.pages.resend.job._PER_PAGE", 2)
    rows = parked(parts, 3)
    job = made(parts)
    items = parts.ledger.job_items()
    change = ItemChange(rows[0].key, ItemFate.FAILED, "=cmd|' /C calc'!A0")
    assert items.change(job, ItemFate.PENDING, [change])
    first = lin.get(f"/resend/{job.id}/items").text
    further = re.search(r'rel="next" href="([^"]+)"', first)
    assert further
    second = lin.get(further[1].replace("&amp;", "&")).text
    shown = [key.key for key in rows if key.key in first], [r.key for r in rows if r.key in second]
    assert sorted(shown[0] + shown[1]) == sorted(r.key for r in rows)
    failed = lin.get(f"/resend/{job.id}/items?fate=FAILED").text
    assert rows[0].key in failed
    assert rows[1].key not in failed
    sheet = lin.get(f"/resend/{job.id}/failures.csv")
    assert sheet.headers["content-type"].startswith("text/csv")
    assert sheet.text.count("\n") == 2
    assert "'=cmd|" in sheet.text


def test_the_progress_loads_the_page_again_once_the_state_changed(
    parts: ConsoleParts, lin: Browser
) -> None:
    parked(parts)
    job = made(parts)
    path = f"/resend/{job.id}/live?version={job.version}&was=PREVIEW"
    assert "hx-refresh" not in lin.get(path).headers
    old = f"/resend/{job.id}/live?version={job.version - 1}&was=FREEZING"
    assert lin.get(old).headers["hx-refresh"] == "true"


@pytest.mark.parametrize("parts", ["sqlite"], indirect=True)
def test_a_paused_job_says_who_paused_it_and_why(parts: ConsoleParts, lin: Browser) -> None:
    parked(parts)
    job = made(parts)
    store = parts.ledger.resend_jobs()
    job = store.advance(job, state=JobState.CHECKING)
    note: dict[str, Any] = {"noted_by": "recovery", "note": "12 of 20 failed or are in doubt (60%)"}
    store.advance(job, state=JobState.PAUSED, paused_from=JobState.CHECKING, **note)
    for path in ("/resend", f"/resend/{job.id}"):
        assert "recovery: 12 of 20 failed" in lin.get(path).text


def test_names_are_the_first_cells_of_lines() -> None:
    given = read_names("id\nabc\n  'def' ;x\n\nabc,1\na b\n")
    assert given.names == ["abc", "def"]
    assert [one.number for one in given.wrong] == [6]
    assert decoded("\ufeffabc".encode()) == "abc"
    assert decoded(b"\x89PNG\x00\xff") is None


def test_moments_are_ages_dates_or_epochs() -> None:
    now = 1_790_000_000_000
    assert moment_ms("2h", now, "since") == now - 7_200_000
    assert moment_ms("", now, "since") == 0
    assert moment_ms("1790000000000", now, "since") == now
    assert moment_ms("2026-09-21 13:33:20", now, "since") == 1_789_997_600_000
    with pytest.raises(WrongForm):
        moment_ms("yesterday", now, "since")


def test_a_page_with_jobs_of_other_lanes_alone_says_so(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    """It said that there is no job, above the link to the next page."""
    for _ in range(PER_PAGE + 1):
        made(parts)
    user("bo", {Role.VIEWER: ("email.*",)})
    bo = browser()
    bo.sign_in("bo")
    page = bo.get("/resend").text
    assert "There is nothing of your lanes on this page." in page
    further = re.search(r'rel="next" href="([^"]*)"', page)
    assert further
    assert "There is no resend job." in bo.get(further[1]).text
