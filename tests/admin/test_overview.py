"""The overview: figures from sums, by what the person may see, and one read for all watchers."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from litestar import Litestar
from sqlalchemy import event

from admin.access import Role
from admin.pages.fleet.runbook import section
from admin.pages.overview.charts import charts_of
from admin.pages.overview.figures import SharedFigures
from admin.parts import ConsoleParts
from admin.web.languages import texts_of
from admin.web.prose import blocks_of
from admin.web.view import duration
from idempotency.alerts.windows import Raised
from idempotency.ledger import WorkerInfo
from idempotency.sums.counter import MINUTE_MS, MinuteSums, SumRow
from idempotency.sums.reading import SumsRead
from idempotency.sums.sketch import bucket_of, middle_of
from sending.alerts.notifier import RULES

SMS, MAIL = "sms.notice", "email.notice"


def add_sums(parts: ConsoleParts) -> None:
    """Two lanes, one with two accounts, over the last ten minutes."""
    sums = MinuteSums()
    begin = time.time_ns() // 1_000_000 - 10 * MINUTE_MS
    for minute in range(10):
        now = begin + minute * MINUTE_MS
        calls = [(now - 2_000, now - 1_900, now - 1_890, now - 850, now)] * 100
        sums.add(now, [(SMS, "main", "SENT")] * 100, calls)
        sums.add(now, [(SMS, "reserve", "SENT")] * 20 + [(SMS, "reserve", "REJECTED")] * 5)
        sums.add(now, [(MAIL, "post", "SENT")] * 7)
        parts.ledger.sums().put("w1/life", sums.unwritten())


def sign_in(browser: Callable[[], Any], user: Callable[..., int], *lanes: str) -> Any:
    user("lin", {Role.VIEWER: lanes})
    one = browser()
    one.sign_in("lin")
    return one


def test_figures_are_those_of_lanes_accounts_and_stages(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    add_sums(parts)
    page = sign_in(browser, user, "*").get("/?over=1h").text
    assert "1,270" in page  # sent in all
    assert "1,200" in page  # by the lane
    assert "96.21 %" in page or "96.00 %" in page  # 1,270 of 1,320; 1,200 of 1,250
    assert ">reserve</th>" in page
    assert ">post</th>" not in page  # a single account is the lane itself
    assert duration(middle_of(bucket_of(2_000))) in page  # created to sent, within 3 %
    assert 'role="img"' in page


def test_a_person_sees_figures_of_own_lanes_alone(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    add_sums(parts)
    one = sign_in(browser, user, "email.*")
    for path in ("/", "/overview/figures?over=1h"):
        page = one.get(path).text
        assert MAIL in page
        assert SMS not in page
        assert "1,270" not in page
    assert one.get(f"/?lane={SMS}").status_code == 403


def test_each_sees_the_text_of_own_lanes_and_language(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    """Texts are shared by those who see the same, whoever asked first."""
    add_sums(parts)
    for name, lanes in (("all", "*"), ("mail", "email.*"), ("sms", "sms.*")):
        user(name, {Role.VIEWER: (lanes,)})
        one = browser()
        one.sign_in(name)
        for path in ("/", "/overview/figures?over=1h"):
            page = one.get(path).text
            assert (f">{MAIL}<" in page) is (lanes != "sms.*"), (name, path)
            assert (f">{SMS}<" in page) is (lanes != "email.*"), (name, path)
        chinese = one.get("/", headers={"accept-language": "zh"}).text
        assert texts_of("zh")("overview.throughput") in chinese
        assert texts_of("zh")("overview.throughput") not in one.get("/").text


def test_one_lane_may_be_asked_for(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    add_sums(parts)
    page = sign_in(browser, user, "*").get(f"/overview/figures?over=15m&lane={MAIL}").text
    assert MAIL in page
    assert SMS not in page


def test_an_own_range_is_read_and_a_wrong_one_refused(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    add_sums(parts)
    one = sign_in(browser, user, "*")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    year = int(today[:4])
    page = one.get(f"/?since={year}-01-01T00:00&until={today}T23:59").text
    assert "1,270" in page
    assert one.get("/?since=2001-01-01T00:00&until=2001-01-02T00:00").status_code == 200
    for wrong in ("over=3y", "since=soon&until=now", "since=2026-01-02&until=2026-01-01"):
        assert one.get(f"/?{wrong}").status_code == 422, wrong
    assert one.get("/?since=1990-01-01&until=2026-01-01").status_code == 422


def test_without_sums_the_page_says_so(
    browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    assert "Nothing was settled in this time." in sign_in(browser, user, "*").get("/").text


@pytest.fixture
def statements(parts: ConsoleParts) -> Iterator[list[str]]:
    """The statements of pages, as they are sent."""
    seen: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement)

    engine = parts.databases.reads.engine
    event.listen(engine, "before_cursor_execute", note)
    yield seen
    event.remove(engine, "before_cursor_execute", note)


def test_two_hundred_watchers_cost_no_more_statements_than_one(
    parts: ConsoleParts,
    browser: Callable[[], Any],
    user: Callable[..., int],
    statements: list[str],
    app: Litestar,
) -> None:
    add_sums(parts)
    one = sign_in(browser, user, "*")
    board = app.state.parts.boards["figures-1h"]
    before = board.reads
    for _ in range(200):
        assert one.get("/overview/figures?over=1h").status_code == 200
    reads = board.reads - before
    of_sums = [one for one in statements if "minute_sums" in one]
    assert 1 <= len(of_sums) <= board.reads
    assert reads <= 12  # one every ten seconds, however many ask


def test_lanes_show_lag_and_the_oldest_uncommitted(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    info = WorkerInfo(id="w1", host="far", pid=1, lanes=[SMS], threads=4, lease_ms=60_000)
    lease = parts.ledger.register(info)
    snapshot = '{"lanes":{"sms.notice":{"lag":4321,"oldest":75.0,"rate":9.5}}}'
    parts.ledger.heartbeat(lease, "RUNNING", snapshot)
    page = sign_in(browser, user, "*").get("/").text
    assert "4,321" in page
    assert "1m 15s" in page


def test_an_alert_leads_to_its_section_of_the_runbook(
    parts: ConsoleParts, browser: Callable[[], Any], user: Callable[..., int]
) -> None:
    raised = Raised("parked", SMS, "no_account", "2 deliveries wait", 2)
    parts.ledger.alerting().note([raised], 60_000, "w1")
    one = sign_in(browser, user, "sms.*")
    found = re.search(r'href="(/alerts/parked[^"]*)"', one.get("/").text)
    assert found
    page = one.get(found[1]).text
    assert "<strong>Means.</strong>" in page
    assert "hongyan trace MESSAGE_ID" in page


def test_each_section_of_the_runbook_is_written_as_blocks() -> None:
    for rule in RULES:
        kinds = [block.kind for block in blocks_of(section(rule))]
        assert len(kinds) >= 3, rule
        assert "code" in kinds, rule


def test_equal_lanes_share_their_figures() -> None:
    rows = [SumRow(0, SMS, "main", "SENT", 3), SumRow(0, MAIL, "post", "SENT", 4)]
    shared = SharedFigures(SumsRead(0, 3 * MINUTE_MS, MINUTE_MS, rows, False))
    assert shared.of([SMS]) is shared.of([SMS, "push.notice"])
    assert shared.of([SMS]).everything.sent == 3
    assert shared.of([SMS, MAIL]).everything.sent == 7


def test_a_chart_has_a_value_or_a_gap_for_each_slot() -> None:
    rows = [SumRow(MINUTE_MS, SMS, "main", "SENT", 120, total="[20,120]", call="[7,120]")]
    figures = SharedFigures(SumsRead(0, 150_000, MINUTE_MS, rows, False)).of([SMS])
    rates, totals, calls = charts_of(figures, lambda key: key)
    assert rates.data["data"][:2] == [[0.0, 60.0], [0.0, 2.0]], "the slot under way is left out"
    assert totals.lines == [[None, 0.02], [None, 0.02]]
    assert calls.rows()[0][1:] == ["7 ms", "7 ms"]
    assert not rates.empty
