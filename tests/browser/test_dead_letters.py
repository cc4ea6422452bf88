"""Dead letters in a real browser: both languages, light and dark, a phone's screen; and a discard."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backends.settings import Settings
from idempotency.dead_letters.rows import LetterEntry
from idempotency.sql_ledger import open_ledger
from tests.browser.conftest import Watched
from tests.browser.looks import DESK, LOOKS

ORIGIN = "hongyan.dispatch.sms.notice/0/{}"
PAGES = {
    "list": "/dead",
    "letter": f"/dead/letter?origin={ORIGIN.format(1)}",
    "many": "/dead/many?reason=bad_ttl",
}


@pytest.fixture(scope="module")
def letters(console_settings: Settings) -> None:
    """Thirty letters in the index; Kafka is away."""
    details = {
        "bad_ttl": "$.ttl_ms: above 0",
        "not_json": "it is no JSON <b>\u202e",
        "unknown_account": "$.account: there is no account of that name",
    }
    with closing(open_ledger(console_settings)) as ledger:
        index = ledger.letter_index()
        index.look("topic", {0: (0, 30)})
        entries = [
            LetterEntry(
                origin=ORIGIN.format(n),
                partition=0,
                place=n,
                at=1_790_000_000_000 + n * 61_000,
                reason=list(details)[n % 3],
                detail=details[list(details)[n % 3]],
                lane="sms.notice",
                message_id=f"01JDEAD{n:04}",
                size=300 + n,
                form="STUB" if n % 10 == 7 else "WHOLE",
                digest="0" * 32,
            )
            for n in range(30)
        ]
        index.enter("topic", entries, {0: (0, 30)})


@pytest.fixture
def one(open_page: Callable[..., Watched], letters: None) -> Callable[..., Watched]:
    def signed_in(**options: Any) -> Watched:
        page = open_page(**options)
        page.open()
        return page

    return signed_in


@pytest.mark.parametrize("name", PAGES)
@LOOKS
def test_a_page_of_dead_letters_is_without_findings(
    one: Callable[..., Watched],
    tmp_path: Path,
    name: str,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    page = one(locale=language, color_scheme=theme, viewport=screen)
    page.page.goto(page.address + PAGES[name])
    page.page.screenshot(path=tmp_path / f"dead-{name}-{language}-{theme}-{screen['width']}.png")
    assert page.findings() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    assert page.complaints == []


def test_a_letter_is_found_and_discarded_in_three_clicks(one: Callable[..., Watched]) -> None:
    page = one(locale="en", viewport=DESK)
    page.page.keyboard.press("g")
    page.page.keyboard.press("x")
    page.page.wait_for_url("**/dead")
    page.page.click("tbody tr:first-child a")
    page.page.wait_for_url("**/dead/letter?**")
    page.page.click("[data-dialog=discard]")
    page.page.fill("#discard-reason", "a test of theirs")
    page.page.click("#discard button.danger")
    page.page.wait_for_selector("p.line.good")
    assert "discarded" in page.page.inner_text("h1")
    assert page.complaints == []
