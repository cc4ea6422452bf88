"""Lost findings in the console: listed by lane, shown with their proof, resent or dismissed."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from sqlalchemy import text

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from idempotency.lost.audits import Audit, put_audits
from idempotency.lost.findings import FindingStatus
from idempotency.lost.runs import Runs
from idempotency.lost.trace_hours import TraceDouble, put_doubles
from message.states import Event
from tests.admin.conftest import Browser
from tests.idempotency.making import claimed, delivery, settle, worker

HOUR_MS = 3_600_000


def found(parts: ConsoleParts, number: int, **fields: Any) -> int:
    """Returns the id of a new finding."""
    row = {
        "subject": f"{number:032x}",
        "cause": "passed",
        "lane": "sms.notice",
        "message_id": f"m{number}",
        "receiver": "+861****01",
        "origin": f"t/0/{number}",
        "certain": 1,
        "detail": "below the committed offset",
        "first_run": 1,
        "last_run": 1,
        "found_at": parts.ledger.now_ms(),
        "status": "ASKED",
    } | fields
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    insert = text(f"INSERT INTO lost_findings ({names}) VALUES ({marks}) RETURNING id")
    with parts.ledger.database.begin() as connection:
        return int(connection.execute(insert, row).scalar_one())


def status(parts: ConsoleParts, number: int) -> FindingStatus:
    (one,) = parts.ledger.findings().named(str(number))
    return one.status


def rows_of(parts: ConsoleParts) -> list[tuple[str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    return [(r.action, r.subject, r.lane) for r in rows if r.action.startswith("lost.")]


def runs_of(parts: ConsoleParts) -> Runs:
    return Runs(parts.databases.primary, parts.databases.clock)


@pytest.fixture
def lin(browser: Callable[[], Browser], user: Callable[..., int]) -> Browser:
    user("lin", {Role.OPERATOR: ("sms.*",)})
    one = browser()
    one.sign_in("lin")
    return one


def test_findings_are_listed_by_status_cause_and_own_lanes(
    parts: ConsoleParts, lin: Browser
) -> None:
    found(parts, 1, message_id="first")
    found(parts, 2, message_id="second", cause="removed")
    found(parts, 3, message_id="third", status="RESENT")
    found(parts, 4, message_id="foreign", lane="email.notice")
    page = lin.get("/lost").text
    assert [one for one in ("first", "second", "third", "foreign") if f">{one}<" in page] == [
        "first",
        "second",
    ]
    assert ">first<" not in lin.get("/lost?cause=removed").text
    assert ">third<" in lin.get("/lost?status=RESENT").text
    assert lin.get("/lost?lane=email.notice").status_code == 422
    assert lin.get("/lost?status=nothing").status_code == 422


def test_pages_of_findings_follow_one_another(
    parts: ConsoleParts, lin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.pages.lost.findings._PER_PAGE", 2)
    for number in range(3):
        found(parts, number, message_id=f"message-{number}")
    first = lin.get("/lost").text
    assert "message-2" in first
    assert "message-0" not in first
    further = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = lin.get(further).text
    assert "message-0" in second
    assert "message-1" not in second


def test_a_finding_of_a_foreign_lane_is_as_one_that_does_not_exist(
    parts: ConsoleParts, lin: Browser
) -> None:
    foreign = found(parts, 4, lane="email.notice")
    answers = [
        lin.get(f"/lost/{foreign}"),
        lin.get("/lost/999999"),
        lin.post(f"/lost/{foreign}/dismiss", reason="x"),
        lin.post(f"/lost/{foreign}/resend", reason="x", typed=str(foreign)),
    ]
    assert [one.status_code for one in answers] == [404] * 4
    assert status(parts, foreign) is FindingStatus.ASKED


def test_a_resend_wants_number_and_reason_and_leaves_a_row(
    parts: ConsoleParts, lin: Browser
) -> None:
    one = found(parts, 1)
    assert "nothing speaks against the loss" in lin.get(f"/lost/{one}").text
    assert lin.post(f"/lost/{one}/resend", typed=str(one)).status_code == 422
    assert lin.post(f"/lost/{one}/resend", typed="77", reason="x").status_code == 422
    assert status(parts, one) is FindingStatus.ASKED
    assert rows_of(parts) == []
    answer = lin.post(f"/lost/{one}/resend", typed=str(one), reason="the customer waits")
    assert answer.status_code == 303
    assert status(parts, one) is FindingStatus.NEW
    assert rows_of(parts) == [("lost.resend", str(one), "sms.notice")]
    (row,) = parts.ledger.findings().named(str(one))
    assert (row.decided_by, row.decided_why) == ("lin", "the customer waits")


def test_of_two_orders_the_second_is_told_what_it_became(parts: ConsoleParts, lin: Browser) -> None:
    one = found(parts, 1)
    assert lin.post(f"/lost/{one}/dismiss", reason="sent by hand").status_code == 303
    for order in ("dismiss", "resend"):
        late = lin.post(f"/lost/{one}/{order}", reason="late", typed=str(one))
        assert late.status_code == 409
        assert "it is DISMISSED" in late.text
    assert rows_of(parts) == [("lost.dismiss", str(one), "sms.notice")]


def test_the_delivery_is_shown_as_the_ledger_has_it_now(parts: ConsoleParts, lin: Browser) -> None:
    parts.ledger.register(worker("w1"))
    (row,) = claimed(parts.ledger, delivery())
    assert settle(parts.ledger, row, Event.BUDGET_SPENT, reason="attempts_spent")
    one = found(parts, 1, subject=row.key)
    page = lin.get(f"/lost/{one}").text
    assert "The ledger has this delivery" in page
    assert "PARKED" in page
    nameless = found(parts, 2, subject="hongyan.dispatch.sms.notice/0/1-9", cause="hole")
    page = lin.get(f"/lost/{nameless}").text
    assert "nobody can name their deliveries" in page
    assert "/resend" not in page.partition("lost.proof")[0].partition("<main")[2]


def test_a_viewer_may_look_and_not_decide(
    parts: ConsoleParts, browser: Callable[[], Browser], user: Callable[..., int]
) -> None:
    one = found(parts, 1)
    user("wu", {Role.VIEWER: ("*",)})
    wu = browser()
    wu.sign_in("wu")
    assert wu.get(f"/lost/{one}").status_code == 200
    assert wu.post(f"/lost/{one}/dismiss", reason="x").status_code == 403
    assert status(parts, one) is FindingStatus.ASKED


def test_without_a_run_the_page_says_how_spark_is_started(
    parts: ConsoleParts, lin: Browser
) -> None:
    for path in ("/lost", "/lost/runs"):
        assert "hongyan spark run" in lin.get(path).text


def test_runs_show_watermark_figures_and_why_they_failed(parts: ConsoleParts, lin: Browser) -> None:
    runs = runs_of(parts)
    first = runs.begin("lost", "host-1")
    runs.positions(first, '{"topics": {"t": {"0": 12345}}}')
    runs.done(first, parts.ledger.now_ms(), {"rows": {"records": 4_711}, "seconds": 3.5})
    second = runs.begin("audit", "host-1")
    runs.failed(second, "the <b>warehouse</b> is away")
    page = lin.get("/lost/runs").text
    assert "4,711" in page
    assert "topics t 0" in page
    assert "the &lt;b&gt;warehouse&lt;/b&gt; is away" in page
    one = found(parts, 1, last_run=first, first_run=first)
    assert f"run {first}" in lin.get(f"/lost/{one}").text


def put_double_sends(parts: ConsoleParts, lane: str, ats: Sequence[int]) -> list[str]:
    """Writes double sends of these times. Returns their keys."""
    rows = [
        TraceDouble(sha256(f"{lane} {at}".encode()).hexdigest()[:32], lane, at, []) for at in ats
    ]
    with parts.ledger.database.begin() as connection:
        put_doubles(connection, 1, rows)
    return [one.delivery_key for one in rows]


def day_before(lin: Browser, page: str) -> str:
    earlier = page.partition('class="pager"><a class="button" href="')[2].partition('"')[0]
    return lin.get(earlier.replace("&amp;", "&")).text


def test_double_sends_are_those_of_the_day_and_of_own_lanes(
    parts: ConsoleParts, lin: Browser
) -> None:
    now = parts.ledger.now_ms()
    put_double_sends(parts, "email.notice", range(now - 60, now))
    assert "accepted twice" in lin.get("/lost/audits").text
    today, before = put_double_sends(parts, "sms.notice", [now - 10 * HOUR_MS, now - 30 * HOUR_MS])
    page = lin.get("/lost/audits").text
    assert (today in page, before in page) == (True, False)
    assert "email.notice" not in page
    page = day_before(lin, page)
    assert (today in page, before in page) == (False, True)


def test_a_list_of_double_sends_that_is_cut_says_so(parts: ConsoleParts, lin: Browser) -> None:
    now = parts.ledger.now_ms()
    keys = put_double_sends(parts, "sms.notice", range(now - 51, now))
    page = lin.get("/lost/audits").text
    assert [key in page for key in keys] == [False, *[True] * 50]
    assert "the newest 50 of this time" in page
    assert "the newest 50" not in day_before(lin, page)


def test_audits_of_a_day_show_differences_of_own_lanes(parts: ConsoleParts, lin: Browser) -> None:
    hour = parts.ledger.now_ms() // HOUR_MS * HOUR_MS
    counts = {"kafka": 4_167, "ledger": 4_160, "explained": {"ledger": {"found": 5}}}
    audits = [
        Audit(hour, "sms.notice", counts | {"open": {"ledger": 2}}, 2),
        Audit(hour - HOUR_MS, "sms.notice", counts | {"kafka": 1_234}, 0),
        Audit(hour, "email.notice", counts | {"kafka": 9_876}, 0),
        Audit(hour - 30 * HOUR_MS, "sms.notice", counts | {"kafka": 5_555}, 0),
    ]
    with parts.ledger.database.begin() as connection:
        put_audits(connection, 1, audits)
    page = lin.get("/lost/audits").text
    for shown in ("4,167", "1,234", "ledger found 5", "ledger 2"):
        assert shown in page
    for hidden in ("9,876", "5,555"):
        assert hidden not in page
    assert "1,234" not in lin.get("/lost/audits?flagged=1").text
    earlier = page.partition('class="pager"><a class="button" href="')[2].partition('"')[0]
    assert "5,555" in lin.get(earlier.replace("&amp;", "&")).text
