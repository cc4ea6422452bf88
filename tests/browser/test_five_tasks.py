"""An operator's five tasks in a real browser, each in at most five clicks from the overview.

A click, and Enter in a field, count alike; typing does not.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from admin.parts import ConsoleParts, open_parts
from backends.settings import DatabaseSettings, Settings
from idempotency.resend_jobs.contract import JobState
from policy.versions import Versions
from recovery.resend_jobs.factory import actions_on
from tests.admin.delivering import RECEIVER, Stock, stock
from tests.browser.conftest import Watched, served_console
from tests.browser.looks import DESK

MOST = 5
LANE = "sms.notice"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('tasks') / 'hongyan.db'}"


@pytest.fixture(scope="module")
def console(url: str) -> Iterator[str]:
    """A console of its own: the tasks change its ledger."""
    with served_console(url) as address:
        yield address


@pytest.fixture(scope="module")
def parts(console: str, url: str) -> Iterator[ConsoleParts]:
    with ExitStack() as stack:
        yield open_parts(Settings(database=DatabaseSettings(url=url)), stack)


@pytest.fixture(scope="module")
def stocked(parts: ConsoleParts) -> Stock:
    """Deliveries of each kind, and two versions of the policy."""
    versions = Versions(parts.ledger.database)
    first, second = "[defaults]\nthreads = 7\n", "[defaults]\nthreads = 9\n"
    versions.add(first, "mei", base=0, before="")
    versions.add(second, "mei", base=1, before=first)
    return stock(parts)


class Operator:
    """Somebody at the overview, and the clicks since."""

    def __init__(self, one: Watched) -> None:
        self.page = one.page
        self.watched = one
        self.clicks = 0

    def click(self, selector: str) -> None:
        self.clicks += 1
        self.page.click(selector)

    def find(self, line: str) -> None:
        """Types into the box of the header, and presses Enter."""
        self.page.fill("#find", line)
        self.clicks += 1
        self.page.press("#find", "Enter")

    def text(self) -> str:
        return str(self.page.inner_text("main"))

    def done(self) -> None:
        assert self.clicks <= MOST, f"{self.clicks} clicks"
        assert self.watched.complaints == []


@pytest.fixture
def operator(stocked: Stock, open_page: Callable[..., Watched]) -> Operator:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    one.page.wait_for_selector(f"text={LANE}")
    return Operator(one)


def test_find_a_customers_code(operator: Operator, stocked: Stock) -> None:
    operator.find(f"biz:{stocked.sent.notification.biz_id}")
    operator.page.wait_for_url("**/deliveries/*")
    assert "SENT" in operator.text()
    assert RECEIVER not in operator.page.content()
    operator.done()


def test_explain_one_delivery(operator: Operator, stocked: Stock) -> None:
    operator.find(stocked.parked.notification.id)
    operator.page.wait_for_url(f"**/deliveries/{stocked.parked.key}")
    said = operator.text()
    assert "PARKED" in said
    assert "attempts_spent" in said
    operator.done()


def test_resend_the_losses_of_a_lane(operator: Operator, parts: ConsoleParts) -> None:
    page = operator.page
    operator.click("td.bad a[href*=PARKED]")
    page.wait_for_url("**/search**")
    operator.click("a[href^='/resend/new']")
    page.wait_for_url("**/resend/new**")
    page.fill("#reason", "the provider is back")
    operator.click("form[action='/resend'] button.primary")
    page.wait_for_url("**/resend/rj-*")
    job = actions_on(parts.ledger).get(page.url.rpartition("/")[2])
    while job.state is JobState.FREEZING:  # recovery's part
        job = parts.ledger.job_freezing().page(job)
    assert (job.state, job.eligible) == (JobState.PREVIEW, 1)
    page.wait_for_selector("[data-dialog=start]")
    operator.click("[data-dialog=start]")
    page.fill("#start-typed", "1")
    page.fill("#start-reason", "the provider is back")
    operator.click("#start button.danger")
    page.wait_for_selector("text=CHECKING")
    assert actions_on(parts.ledger).get(job.id).state is JobState.CHECKING
    operator.done()


def test_pause_a_lane(operator: Operator, parts: ConsoleParts) -> None:
    page = operator.page
    operator.click(f"main a[href='/lanes/{LANE}']")
    page.wait_for_url(f"**/lanes/{LANE}")
    operator.click("[data-dialog=pause]")
    page.fill("#pause-reason", "the provider repairs")
    operator.click("#pause button.danger")
    page.wait_for_selector(".badge:text-is('PAUSED')")  # the form has the word, too
    assert [one.lane for one in parts.ledger.controls().pauses()] == [LANE]
    operator.done()


def test_roll_a_policy_back(operator: Operator, parts: ConsoleParts) -> None:
    page = operator.page
    operator.click("nav a[href='/policy']")
    page.wait_for_url("**/policy")
    operator.click("main a[href='/policy/versions/1']")
    page.wait_for_url("**/policy/versions/1")
    operator.click("main a[href^='/policy/draft']")
    page.wait_for_selector("[data-dialog=apply]")
    operator.click("[data-dialog=apply]")
    page.fill("#apply-reason", "it was right before")
    operator.click("#apply button[class]:not([data-close])")
    page.wait_for_url("**/policy")
    newest: Any = Versions(parts.ledger.database).newest()
    assert (newest.number, newest.text) == (3, "[defaults]\nthreads = 7\n")
    operator.done()
