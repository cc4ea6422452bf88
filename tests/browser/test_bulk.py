"""Resend jobs and lost findings in a real browser: both languages, light and dark, a phone's screen; and a
job from its form to its end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from admin.parts import ConsoleParts, open_parts
from backends.settings import DatabaseSettings, Settings
from idempotency.lost.audits import Audit, put_audits
from idempotency.lost.runs import Runs
from idempotency.resend_jobs.contract import JobFilter, JobLimits, JobState, ResendMode
from message.states import Event
from recovery.resend_jobs.factory import actions_on
from tests.browser.conftest import Watched
from tests.browser.looks import DESK, LOOKS, PHONE
from tests.idempotency.making import claimed, delivery, settle, worker

HOUR_MS = 3_600_000
PAGES = {
    "jobs": "/resend",
    "new": "/resend/new",
    "names": "/resend/new?by=names",
    "preview": "/resend/rj-preview",
    "paused": "/resend/rj-paused",
    "items": "/resend/rj-paused/items",
    "lost": "/lost",
    "finding": "/lost/1",
    "runs": "/lost/runs",
    "audits": "/lost/audits",
}


@pytest.fixture(scope="module")
def parts(console: str, database: str) -> Iterator[ConsoleParts]:
    """The console's database, with two jobs, findings, runs and audits."""
    with ExitStack() as stack:
        settings = Settings(database=DatabaseSettings(url=database))
        opened = open_parts(settings, stack)
        seed(opened)
        yield opened


def seed(parts: ConsoleParts) -> None:
    ledger = parts.ledger
    ledger.register(worker("w1"))
    for lane in ("sms.notice", "email.notice"):
        for row in claimed(ledger, *(delivery(lane=lane) for _ in range(5))):
            assert settle(ledger, row, Event.BUDGET_SPENT, reason="attempts_spent")
    made(parts, "rj-preview", above=3)
    job = made(parts, "rj-paused")
    job = ledger.resend_jobs().advance(job, state=JobState.CHECKING)
    job = ledger.resend_jobs().advance(job, state=JobState.CANARY, started_by="mei")
    note: dict[str, Any] = {"noted_by": "recovery", "note": "12 of 20 failed or are in doubt (60%)"}
    ledger.resend_jobs().advance(job, state=JobState.PAUSED, paused_from=JobState.CANARY, **note)
    findings(parts)


def made(parts: ConsoleParts, job_id: str, above: int = 1_000) -> Any:
    wanted = JobFilter(states=["PARKED"], lanes=["sms.notice", "email.notice"])
    limits = JobLimits(approve_above=above)
    reason = "the provider <b>was</b> down"
    actions = actions_on(parts.ledger)
    job = actions.make(ResendMode.AGAIN, wanted, limits, who="mei", reason=reason, job_id=job_id)
    return frozen(parts, job.id)


def frozen(parts: ConsoleParts, job_id: str) -> Any:
    job = actions_on(parts.ledger).get(job_id)
    while job.state is JobState.FREEZING:
        job = parts.ledger.job_freezing().page(job)
    return job


def findings(parts: ConsoleParts) -> None:
    now = parts.ledger.now_ms()
    runs = Runs(parts.databases.primary, parts.databases.clock)
    run = runs.begin("lost", "host-1")
    runs.positions(run, '{"topics": {"hongyan.dispatch.sms.notice": {"0": 12345}}}')
    runs.done(run, now - 60_000, {"rows": {"records": 4_711}, "seconds": 3.5})
    runs.failed(runs.begin("audit", "host-1"), "the warehouse is away")
    insert = text(
        "INSERT INTO lost_findings (subject, cause, lane, message_id, receiver, origin, certain, detail,"
        " first_run, last_run, found_at, status) VALUES (:subject, :cause, 'sms.notice', :message,"
        " '+861****01', 't/0/1', 1, 'below the committed offset', :run, :run, :now, 'ASKED')"
    )
    counts = {"kafka": 4_167, "ledger": 4_160, "explained": {"ledger": {"found": 5}}}
    audit = Audit(now // HOUR_MS * HOUR_MS, "sms.notice", counts | {"open": {"ledger": 2}}, 2)
    with parts.ledger.database.begin() as connection:
        for number, cause in enumerate(("passed", "removed", "silent"), 1):
            values = {"subject": f"{number:032x}", "cause": cause, "message": f"m{number}"}
            connection.execute(insert, values | {"run": run, "now": now})
        put_audits(connection, run, [audit])


@pytest.mark.parametrize("name", PAGES)
@LOOKS
def test_a_page_is_without_findings(
    parts: ConsoleParts,
    open_page: Callable[..., Watched],
    tmp_path: Path,
    name: str,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open(PAGES[name])
    one.page.wait_for_load_state()
    one.page.screenshot(
        path=tmp_path / f"{name}-{language}-{theme}-{screen['width']}.png", full_page=True
    )
    assert one.findings() == []
    wide = one.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= screen["width"]
    assert one.complaints == []


def test_a_job_goes_from_its_form_to_its_start_in_the_browser(
    parts: ConsoleParts, open_page: Callable[..., Watched]
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    page = one.page
    page.click("nav a[href='/resend']")
    page.click("a[href='/resend/new']")
    page.check("input[name=lane][value='email.notice']")
    page.fill("#since", "30d")
    page.fill("#reason", "the provider is back")
    page.click("button.primary")
    page.wait_for_url("**/resend/rj-*")
    page.wait_for_selector("text=Recovery lists the deliveries")
    job = frozen(parts, page.url.rpartition("/")[2])
    page.wait_for_selector("[data-dialog=start]")  # the page loads itself again
    page.click("[data-dialog=start]")
    page.fill("#start-typed", str(job.eligible + 1))
    page.fill("#start-reason", "go")
    page.click("#start button.danger")
    assert actions_on(parts.ledger).get(job.id).state is JobState.PREVIEW  # the browser refuses
    page.fill("#start-typed", str(job.eligible))
    page.click("#start button.danger")
    page.wait_for_selector("text=Every delivery is compared")
    assert actions_on(parts.ledger).get(job.id).state is JobState.CHECKING
    assert one.complaints == []


def test_a_finding_is_resent_in_the_browser(
    parts: ConsoleParts, open_page: Callable[..., Watched]
) -> None:
    one = open_page(locale="zh", viewport=PHONE)
    one.open("/lost/2")
    one.page.click("[data-dialog=resend]")
    one.page.fill("#resend-typed", "2")
    one.page.fill("#resend-reason", "客户在等")
    one.page.click("#resend button.danger")
    one.page.wait_for_selector("text=lin 已要求重发")
    (found,) = parts.ledger.findings().named("2")
    assert found.is_ordered
    assert one.complaints == []


def test_a_job_that_moves_shuts_no_dialog(
    open_page: Callable[..., Watched], parts: ConsoleParts
) -> None:
    """Its page was loaded again while a person typed why it must stop."""
    job = made(parts, "rj-moves")
    one = open_page(locale="en", viewport=DESK)
    one.open(f"/resend/{job.id}")
    page = one.page
    page.click("[data-dialog=cancel]")
    page.fill("#cancel-reason", "the wrong tem")
    job = parts.ledger.resend_jobs().advance(job, state=JobState.CHECKING)
    with page.expect_response(lambda got: got.headers.get("hx-refresh") == "true"):
        pass
    page.wait_for_timeout(300)
    page.type("#cancel-reason", "plate")
    assert page.input_value("#cancel-reason") == "the wrong template"
    page.click("#cancel [data-close]")
    page.wait_for_selector("h1 :text('CHECKING')")
    assert one.complaints == []
