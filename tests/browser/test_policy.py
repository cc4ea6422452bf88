"""The pages of policy, templates and archive in a real browser: a change by form, both languages, phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Watched
from tests.browser.looks import DESK, LOOKS, PHONE

PAGES = {
    "policy": "/policy",
    "policy-lane": "/policy/lanes/sms.notice",
    "policy-table": "/policy/table?name=lanes.sms.notice",
    "policy-edit": "/policy/draft",
    "templates": "/templates",
    "templates-edit": "/templates/draft",
    "archive": "/archive",
}
TEMPLATES = """[templates."order-paid"]
channel = "email"
subject = "Order {{ order }} is paid"
text = "Thank you."
[templates."order-paid".variables]
order = "string"
"""


def check(one: Watched, screen: dict[str, Any]) -> None:
    assert one.findings() == []
    wide = one.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= screen["width"]
    assert one.complaints == []


@LOOKS
def test_pages_are_without_findings(
    open_page: Callable[..., Watched],
    tmp_path: Path,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open()
    for name, path in PAGES.items():
        one.page.goto(one.address + path)
        one.page.screenshot(
            path=tmp_path / f"{name}-{language}-{theme}-{screen['width']}.png", full_page=True
        )
        check(one, screen)


def apply(page: Page, reason: str) -> None:
    """Applies the draft. The next page's request is over then: to leave earlier would break it off."""
    page.click("[data-dialog=apply]")
    page.fill("#apply-reason", reason)
    with page.expect_event("requestfinished", lambda request: request.url.endswith("/policy")):
        page.click("#apply button.primary")
    page.wait_for_url("**/policy")


@pytest.mark.parametrize("screen", [DESK, PHONE])
def test_a_lane_is_changed_by_form_and_rolled_back(
    open_page: Callable[..., Watched], tmp_path: Path, screen: dict[str, Any]
) -> None:
    one = open_page(locale="en", viewport=screen)
    one.open()
    page = one.page
    for threads in ("21", "22"):
        page.goto(f"{one.address}/policy/table?name=lanes.sms.notice")
        page.fill("[name=field_threads]", f"{threads}{screen['width'] % 7}")
        page.click("form[data-draft] button.primary")
        page.wait_for_selector("[data-dialog=apply]")
        page.screenshot(path=tmp_path / f"draft-{screen['width']}.png", full_page=True)
        check(one, screen)
        apply(page, "a busy evening")
    page.click("main table >> nth=1 >> tbody tr >> nth=1 >> a")
    page.wait_for_url("**/policy/versions/*")
    page.screenshot(path=tmp_path / f"version-{screen['width']}.png", full_page=True)
    check(one, screen)
    page.click("a.button")
    apply(page, "back")
    assert "lin" in page.inner_text("dl.facts")
    check(one, screen)


def test_templates_are_written_applied_and_previewed(
    open_page: Callable[..., Watched], tmp_path: Path
) -> None:
    one = open_page(locale="zh", viewport=PHONE)
    one.open()
    page = one.page
    page.goto(f"{one.address}/templates/draft")
    page.fill("#text", TEMPLATES)
    page.click("form[data-draft] button.primary")
    page.wait_for_selector("[data-dialog=apply]")
    check(one, PHONE)
    page.click("[data-dialog=apply]")
    page.fill("#apply-reason", "第一版")
    page.click("#apply button.primary")
    page.wait_for_url("**/templates")
    page.click("text=order-paid")
    page.wait_for_selector("[name=var_order]")
    page.fill("[name=var_order]", "<script>7</script>")
    page.click("form[action='/templates/one'] button.primary")
    page.wait_for_selector("text=Order <script>7</script> is paid")
    page.screenshot(path=tmp_path / "preview.png", full_page=True)
    check(one, PHONE)
