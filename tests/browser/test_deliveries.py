"""Search, one delivery and doubts in a real browser: both languages, a phone, keys, actions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from admin.parts import open_parts
from backends.settings import DatabaseSettings, Settings
from tests.admin.delivering import RECEIVER, Stock, stock
from tests.browser.conftest import Watched
from tests.browser.looks import DESK, LOOKS


@pytest.fixture(scope="module")
def stocked(console: str, database: str) -> Iterator[Stock]:
    """Deliveries in the ledger of the console."""
    with ExitStack() as stack:
        parts = open_parts(Settings(database=DatabaseSettings(url=database)), stack)
        yield stock(parts)


@pytest.mark.parametrize("page", ["search", "results", "delivery", "doubt"])
@LOOKS
def test_a_page_of_deliveries_is_without_findings(
    open_page: Callable[..., Watched],
    stocked: Stock,
    tmp_path: Path,
    page: str,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    paths = {
        "search": "/search",
        "results": "/search?q=lane:sms.*",
        "delivery": f"/deliveries/{stocked.parked.key}",
        "doubt": "/doubt",
    }
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open(paths[page])
    one.page.wait_for_selector("main h1")
    one.page.screenshot(
        path=tmp_path / f"{page}-{language}-{theme}-{screen['width']}.png", full_page=True
    )
    assert one.findings() == []
    assert one.page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    assert one.complaints == []


def test_a_line_is_completed_by_keys(open_page: Callable[..., Watched], stocked: Stock) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/search")
    one.page.type("#line", "sta")
    one.page.wait_for_selector("#line-options li")
    one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press("Enter")
    one.page.wait_for_selector("#line-options code:text('UNKNOWN')")
    assert one.page.input_value("#line") == "state:"
    one.page.type("#line", "PARK")
    one.page.wait_for_function("() => document.querySelectorAll('#line-options li').length === 1")
    one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press("Tab")
    assert one.page.input_value("#line") == "state:PARKED "
    one.page.wait_for_function(
        "() => document.querySelector('#line-words').textContent.includes('now PARKED')"
    )
    assert one.findings() == []
    one.page.keyboard.press("Escape")
    one.page.keyboard.press("Enter")
    one.page.wait_for_url("**/search?q=state%3APARKED*")
    assert one.complaints == []


def test_a_receiver_typed_in_the_header_is_in_no_address(
    open_page: Callable[..., Watched], stocked: Stock
) -> None:
    one = open_page(locale="en", viewport=DESK)
    asked: list[str] = []
    one.page.on("request", lambda request: asked.append(request.url))
    one.open()
    one.page.keyboard.press("/")
    one.page.keyboard.type(RECEIVER)
    one.page.keyboard.press("Enter")
    one.page.wait_for_url("**/search*")
    assert not [url for url in asked if "13800000001" in url]


def test_a_doubt_is_decided_and_the_list_goes_on(
    open_page: Callable[..., Watched], stocked: Stock
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/doubt")
    key = stocked.doubted.key
    one.page.click(f"[data-dialog=arrived-{key}]")
    one.page.fill(f"#arrived-{key}-reason", "the customer has it")
    one.page.click(f"#arrived-{key} button.primary")
    one.page.wait_for_selector("p.empty")
    assert one.page.url.endswith("/doubt?lane=sms.notice")
    assert one.complaints == []


def test_content_is_shown_by_request_and_not_after_a_reload(
    open_page: Callable[..., Watched], stocked: Stock
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    path = f"{one.address}/deliveries/{stocked.parked.key}"
    one.page.goto(path)
    assert "hello" not in one.page.content()
    one.page.click("[data-dialog=reveal-content]")
    one.page.fill("#reveal-content-reason", "a ticket")
    one.page.click("#reveal-content button.primary")
    one.page.wait_for_selector("text=hello")
    assert one.page.url == path
    one.page.reload()
    assert "hello" not in one.page.content()
    assert one.complaints == []
