"""A campaign in a real browser: made from a file, started, and looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Watched
from tests.browser.looks import DESK, PHONE

CROWD = "receiver,name\n+8613800000001,Li\n+8613800000002,Wang\n"


@pytest.mark.parametrize(
    ("language", "theme", "screen"), [("en", "light", DESK), ("zh", "dark", PHONE)]
)
def test_a_campaign_is_made_and_started_without_findings(
    open_page: Callable[..., Watched],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)  # the console keeps uploads beside its configuration
    file = tmp_path / "crowd.csv"
    file.write_text(CROWD)
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open()
    page = one.page

    def looked_at(name: str) -> None:
        page.screenshot(path=tmp_path / f"{name}-{language}.png", full_page=True)
        assert one.findings() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= screen["width"]

    page.goto(f"{one.address}/campaigns/new")
    looked_at("new")
    page.select_option("#lane", "sms.marketing")
    page.fill("#template", "SMS_9")
    page.set_input_files("#file", file)
    page.fill("#reason", "autumn sale")
    page.click("form.wide button.primary")
    page.wait_for_url("**/campaigns/cm-*")
    looked_at("made")
    page.click('button[data-dialog="start"]')
    page.fill("#start-reason", "checked")
    page.click("#start button.danger")
    page.wait_for_selector('button[data-dialog="pause"]')
    looked_at("started")
    page.goto(f"{one.address}/campaigns")
    assert page.locator("table a.code").count() >= 1
    looked_at("listing")
    assert one.complaints == []
