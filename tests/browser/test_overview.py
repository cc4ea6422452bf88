"""The overview with figures of two hours in a real browser: both languages, light and dark, a phone."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Route

from admin.parts import ConsoleParts
from idempotency.alerts.windows import Raised
from idempotency.fleet.snapshots import LaneSnapshot, ProcessSnapshot, encoded
from idempotency.ledger import WorkerInfo
from idempotency.sums.counter import MINUTE_MS, MinuteSums
from message.states import Event
from tests.browser.conftest import Watched, served_console
from tests.browser.looks import DESK, LOOKS
from tests.harness.waiting import await_
from tests.idempotency.making import claimed, deliveries, settle

LANES = {
    "sms.verification": ("aliyun", "tencent"),
    "email.notice": ("mail",),
    "push.marketing": ("apns",),
}


def _sums(parts: ConsoleParts) -> None:
    sums, luck = MinuteSums(), random.Random(4)
    begin = time.time_ns() // 1_000_000 - 120 * MINUTE_MS
    for minute in range(120):
        now = begin + minute * MINUTE_MS
        for lane, accounts in LANES.items():
            for account in accounts:
                trouble = lane == "sms.verification" and 70 < minute < 95
                number = luck.randint(180, 240) // (3 if trouble else 1)
                calls = [_moments(now, luck, trouble) for _ in range(number)]
                sums.add(now, [(lane, account, "SENT")] * number, calls)
                sums.add(
                    now, [(lane, account, "REJECTED")] * (40 if trouble else luck.randint(0, 1))
                )
                sums.add(now, [(lane, account, "DELIVERED")] * (number - 6))
                sums.add(now, [(lane, account, "UNKNOWN")] * (5 if trouble else 0))
        parts.ledger.sums().put("w1/life", sums.unwritten())
    parts.ledger.sum_rollup().run()


def _moments(now: int, luck: random.Random, trouble: bool) -> tuple[int, int, int, int, int]:
    took = int(luck.lognormvariate(7 if trouble else 4.5, 0.5))
    started = now - took
    return (
        started - 900,
        started - luck.randint(20, 60),
        started - luck.randint(2, 15),
        started,
        now,
    )


def _fleet(parts: ConsoleParts) -> None:
    lanes = {
        "sms.verification": LaneSnapshot(12, 3, 4_210, 6, 212.4, ["tencent"], oldest=14.2),
        "email.notice": LaneSnapshot(2, 0, 0, 6, 31.0),
    }
    for name in ("worker-1", "worker-2"):
        info = WorkerInfo(name, "far", 1, [*LANES], 64, 3_600_000, program="1.0")
        lease = parts.ledger.register(info)
        parts.ledger.heartbeat(lease, "RUNNING", encoded(ProcessSnapshot(7, lanes)))
    ledger: Any = parts.ledger
    for item in claimed(
        ledger, *deliveries(receivers=("+8613800000001", "+8613800000002")), owner="worker-1"
    ):
        settle(ledger, item, Event.PARK, reason="unproven: no proof")


def _alerts(parts: ConsoleParts) -> None:
    raised = [
        Raised(
            "breaker_open", "sms.verification", "tencent", "5 of the last 10 calls failed", 1, True
        ),
        Raised("parked", "sms.notice", "unproven", "2 deliveries wait for a person", 2),
    ]
    parts.ledger.alerting().note(raised, 3_600_000, "worker-1")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a console with two hours behind it."""

    def seed(parts: ConsoleParts) -> None:
        _sums(parts)
        _fleet(parts)
        _alerts(parts)

    url = f"sqlite:///{tmp_path_factory.mktemp('overview') / 'hongyan.db'}"
    with served_console(url, seed) as address:
        yield address


@LOOKS
@pytest.mark.parametrize("path", ["/", "/?over=6h&lane=sms.verification"])
def test_the_overview_is_without_findings(
    open_page: Callable[..., Watched],
    tmp_path: Path,
    language: str,
    theme: str,
    screen: dict[str, Any],
    path: str,
) -> None:
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open(path)
    one.page.wait_for_selector(".chart canvas")
    one.page.screenshot(path=tmp_path / "overview.png", full_page=True)
    assert one.findings() == []
    assert one.page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    assert one.complaints == []


def test_figures_are_renewed_and_a_table_stays_unfolded(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/?over=1h")
    one.page.wait_for_selector(".chart canvas")
    one.page.click("#table-totals summary")
    with one.page.expect_response("**/overview/figures?over=1h"):
        one.page.evaluate("htmx.ajax('GET', '/overview/figures?over=1h', '#figures')")
    one.page.wait_for_selector("#table-totals[open]")
    one.page.wait_for_selector(".chart canvas")
    assert one.complaints == []


def test_a_range_and_a_lane_are_two_clicks(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    one.page.click("nav.tabs >> text=6h")
    one.page.wait_for_url("**/?over=6h")
    one.page.click("#figures >> text=sms.verification")
    one.page.wait_for_url("**/?over=6h&lane=sms.verification")
    assert one.page.is_visible("#figures >> text=tencent")
    assert not one.page.is_visible("#figures >> text=email.notice")
    assert one.complaints == []


COUNTED = """() => {
    window.updates = {asked: 0, done: 0};
    document.addEventListener("htmx:sseBeforeMessage", () => { window.updates.asked += 1; });
    document.addEventListener("htmx:sseMessage", () => { window.updates.done += 1; });
}"""
LINK = "[sse-swap] a[href='/lanes/sms.verification']"


@pytest.fixture
def counted(open_page: Callable[..., Watched]) -> Watched:
    """The overview, which counts its updates in `window.updates`."""
    one = open_page(locale="en", viewport=DESK)
    one.open()
    one.page.evaluate(COUNTED)
    return one


def pressed(one: Watched, button: Literal["left", "right"]) -> int:
    """Presses a button on the link, and returns the updates that were shown before."""
    one.page.locator(LINK).first.hover()  # which waits for one that no update replaces meanwhile
    one.page.mouse.down(button=button)
    return int(one.page.evaluate("window.updates.done"))


def test_a_link_of_the_live_part_may_be_pressed_while_updates_come(counted: Watched) -> None:
    page, before = counted.page, pressed(counted, "left")
    await_(lambda: page.evaluate("window.updates.asked") > before + 1, what="two updates come")
    assert page.evaluate("window.updates.done") == before, "no update while the button is down"
    page.mouse.up()
    page.wait_for_url("**/lanes/sms.verification")
    assert counted.complaints == []


def test_a_link_of_the_live_part_leads_to_its_page_while_updates_come(counted: Watched) -> None:
    page, before = counted.page, int(counted.page.evaluate("window.updates.asked"))

    held: list[Route] = []
    page.route("**/lanes/sms.verification", lambda route: held.append(route))
    page.locator(LINK).first.click(no_wait_after=True)
    await_(lambda: page.evaluate("window.updates.asked") > before + 2, what="updates come")
    assert held, "the answer is still to come"
    held[0].continue_()
    page.wait_for_url("**/lanes/sms.verification")
    assert counted.complaints == []


@pytest.mark.parametrize("button", ["left", "right"])
def test_a_button_whose_release_is_never_told_holds_no_update_for_long(
    counted: Watched, button: Literal["left", "right"]
) -> None:
    page, before = counted.page, pressed(counted, button)
    await_(lambda: page.evaluate("window.updates.done") > before, what="an update is shown")


def test_the_focus_stays_on_its_link_through_updates(counted: Watched) -> None:
    page = counted.page
    page.locator(LINK).first.focus()
    await_(lambda: page.evaluate("window.updates.done") > 1, what="two updates are shown")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/lanes/sms.verification"
    page.keyboard.press("Enter")
    page.wait_for_url("**/lanes/sms.verification")


def test_charts_that_were_replaced_leave_nothing_behind(open_page: Callable[..., Watched]) -> None:
    """A page that stayed open kept all of them: three canvases and 2,700 nodes every ten seconds."""
    one = open_page(locale="en", viewport=DESK)
    one.open("/?over=1h")
    page = one.page
    page.wait_for_selector(".chart canvas")
    debugger = page.context.new_cdp_session(page)

    def renewed(times: int) -> dict[str, int]:
        for _ in range(times):
            page.evaluate("htmx.ajax('GET', '/overview/figures?over=1h', '#figures')")
        page.wait_for_timeout(200)
        debugger.send("HeapProfiler.collectGarbage")
        counted: dict[str, int] = debugger.send("Memory.getDOMCounters")
        return counted

    first, last = renewed(3), renewed(12)
    assert page.locator(".chart canvas").count() == 3
    assert last["jsEventListeners"] - first["jsEventListeners"] < 100
    assert last["nodes"] - first["nodes"] < 10_000
    assert one.complaints == []
