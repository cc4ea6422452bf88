"""The frame in a real browser: both languages, light and dark, a phone's screen, keys."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route
from sqlalchemy import text

from admin.app import MOST_BODY
from admin.audit.journal import AuditRefused, Journal
from backends.settings import Settings
from idempotency.sql_ledger import open_ledger
from policy.versions import Versions
from tests.browser.conftest import PASSWORD, Watched
from tests.browser.looks import DESK, LOOKS, PHONE
from tests.idempotency.making import worker

STREAM = "document.querySelector('[sse-connect]')['htmx-internal-data'].sseEventSource"
"""The live stream of a page."""

PAGES = {
    "overview": "/",
    "people": "/people",
    "keys": "/keys",
    "audit": "/audit",
    "account": "/account",
}


@pytest.mark.parametrize("name", PAGES)
@LOOKS
def test_a_page_is_without_findings(
    open_page: Callable[..., Watched],
    tmp_path: Path,
    name: str,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    one = open_page(locale=language, color_scheme=theme, viewport=screen)
    one.open(PAGES[name])
    one.page.wait_for_timeout(200)
    one.page.screenshot(path=tmp_path / f"{name}-{language}-{theme}-{screen['width']}.png")
    assert one.findings() == []
    wide = one.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= screen["width"]
    assert one.complaints == []


def test_keys_lead_through_the_pages(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    one.page.keyboard.press("g")
    one.page.keyboard.press("u")
    one.page.wait_for_url("**/audit")
    assert one.page.title().startswith("Audit")
    one.page.keyboard.press("?")
    assert one.page.is_visible("#keys")
    assert one.complaints == []


def test_a_new_api_key_is_shown_once(open_page: Callable[..., Watched], tmp_path: Path) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/keys")
    one.page.click("[data-dialog=add-key]")
    one.page.fill("#key-name", "shop")
    one.page.fill("#key-lanes", "sms.*")
    one.page.locator("dialog[open] [name=reason]").fill("the new shop")
    one.page.locator("dialog[open] button.primary").click()
    one.page.wait_for_selector("text=New secret of shop")
    one.page.screenshot(path=tmp_path / "key-made.png", full_page=True)
    assert "hyk_" in one.page.inner_text("main")
    assert not one.page.is_visible("dialog[open]")
    one.page.reload()
    assert "hyk_" not in one.page.inner_text("main")
    one.page.goto(one.address + "/keys")
    one.page.screenshot(path=tmp_path / "keys.png", full_page=True)
    assert "hyk_" not in one.page.inner_text("main")
    assert one.findings() == []
    assert one.complaints == []


def test_the_overview_is_live(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    first = one.page.get_attribute("main p.quiet time", "datetime")
    one.page.wait_for_function(
        "at => document.querySelector('main p.quiet time').dateTime !== at", arg=first
    )
    assert one.complaints == []


def test_what_was_typed_survives_a_session_that_ended(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/people")
    one.page.click("[data-dialog=add-user]")
    one.page.fill("#new-name", "bo")
    one.page.fill("#new-password", "a password of bo")
    one.page.fill("#add-user-reason", "new in the team")
    one.page.context.clear_cookies()
    one.page.click("#add-user button.primary")
    one.page.wait_for_url("**/login?next=/people")
    one.page.fill("#name", "lin")
    one.page.fill("#password", "correct horse battery")
    one.page.press("#password", "Enter")
    one.page.wait_for_url("**/people")
    assert one.page.input_value("#add-user-reason") == "new in the team"
    assert one.page.input_value("#new-password") == ""
    assert one.page.is_visible("#add-user"), "where it was sent from"
    one.page.reload()
    one.page.click("[data-dialog=add-user]")
    assert one.page.input_value("#add-user-reason") == "", "this session goes on"


def test_what_a_cancelled_or_abandoned_form_had_does_not_come_back(
    open_page: Callable[..., Watched],
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/people")
    page, tick = one.page, one.page.locator("[name=role_admin]").first
    roles = page.locator("[data-dialog^=roles]").first

    def untick() -> None:
        roles.click()
        assert tick.is_checked(), "as the server wrote it"
        tick.uncheck()

    untick()
    page.click("dialog[open] [data-close]")
    untick()
    page.keyboard.press("Escape")
    untick()
    page.reload()
    untick()
    page.keyboard.press("Escape")
    page.click("nav a[href='/audit']")
    page.wait_for_url("**/audit")
    page.click("nav a[href='/people']")
    page.wait_for_url("**/people")
    untick()
    assert one.complaints == []


def test_after_a_session_that_ended_what_makes_sure_is_asked_for_anew(
    open_page: Callable[..., Watched],
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/resend/new?lanes=sms.notice")
    page = one.page
    page.check("[name=lane][value='email.notice']")
    page.uncheck("[name=lane][value='sms.notice']")
    page.check("[name=expired]")
    page.fill("#reason", "the provider was away")
    page.context.clear_cookies()
    page.click("main form button.primary")
    page.wait_for_url("**/login?next=/resend/new**")
    page.fill("#name", "lin")
    page.fill("#password", "wrong")
    page.press("#password", "Enter")
    page.wait_for_selector("[role=alert]")
    page.fill("#password", "correct horse battery")
    page.press("#password", "Enter")
    page.wait_for_url("**/resend/new?lanes=sms.notice")
    assert page.input_value("#reason") == "the provider was away"
    assert page.is_checked("[name=lane][value='email.notice']")
    assert not page.is_checked("[name=lane][value='sms.notice']")
    assert not page.is_checked("[name=expired]")


def test_a_page_that_was_loaded_after_a_new_sign_in_has_forms_that_are_taken(
    open_page: Callable[..., Watched],
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/people")
    one.page.context.clear_cookies()
    other = Watched(one.page.context.new_page(), one.address)
    other.sign_in()
    one.page.click("nav a[href='/search']")
    one.page.wait_for_url("**/search")
    one.page.fill("#line", "")
    one.page.type("#line", "sta")
    one.page.wait_for_selector("#line-options li")
    one.page.fill("[data-find]", "state:PARKED")
    with one.page.expect_response("**/search") as answer:
        one.page.press("[data-find]", "Enter")
    assert answer.value.status != 403
    one.page.wait_for_url("**/search?*")
    assert one.complaints == []


def test_a_long_name_does_not_widen_the_page_of_a_phone(
    open_page: Callable[..., Watched], console_settings: Settings
) -> None:
    name = f"worker-{'7f9c8d6b5' * 7}"
    with closing(open_ledger(console_settings)) as ledger:
        ledger.register(worker(name))
        assert ledger.views().save("lin", "n" * 80, "state:PARKED", shared=False)
    one = open_page(locale="en", viewport=PHONE)
    for path in (f"/fleet/{name}", "/search"):
        one.open(path)
        assert one.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    with (
        closing(open_ledger(console_settings)) as ledger,
        ledger.database.begin() as connection,
    ):
        connection.execute(text("DELETE FROM workers WHERE id = :id"), {"id": name})
        connection.execute(text("DELETE FROM console_views"))


def sign_in_here(page: Page) -> None:
    page.fill("#name", "lin")
    page.fill("#password", PASSWORD)
    page.press("#password", "Enter")
    page.wait_for_selector("header.top")


def test_fields_that_come_filled_in_are_as_they_were_left(
    open_page: Callable[..., Watched],
) -> None:
    """A window of 30m came back as 1h, and a silence of a day as one of 15 minutes."""
    one = open_page(locale="en", viewport=DESK)
    one.open("/resend/new?lanes=sms.notice")
    page = one.page
    page.fill("#since", "30m")
    page.fill("#reason", "the provider was away")
    page.context.clear_cookies()
    page.click("main form button.primary")
    page.wait_for_url("**/login?next=/resend/new**")
    sign_in_here(page)
    assert page.input_value("#since") == "30m"
    page.goto(one.address + "/alerts")
    page.click("[data-dialog=silence-rule]")
    page.select_option("#silence-rule select[name=for]", "1d")
    page.fill("#silence-rule-reason", "a known bug")
    page.context.clear_cookies()
    page.click("#silence-rule button.danger")
    page.wait_for_url("**/login?next=/alerts")
    sign_in_here(page)
    assert page.input_value("#silence-rule select[name=for]") == "1d"


def test_a_text_comes_back_over_the_version_that_it_was_made_from_alone(
    open_page: Callable[..., Watched], console_settings: Settings
) -> None:
    """Over a newer version it would take that version's changes back."""
    one = open_page(locale="en", viewport=DESK)
    one.open()
    page = one.page
    for newer in (False, True):
        if not newer:
            put_in_force(console_settings, "[defaults]\nthreads = 3\n")
        page.goto(one.address + "/policy/draft")
        page.fill("#text", "[defaults]\nthreads = 7\n")
        page.context.clear_cookies()
        page.click("form[action='/policy/draft'] button")
        page.wait_for_url("**/login?next=/policy/draft")
        if newer:
            put_in_force(console_settings, "[defaults]\nthreads = 5\n")
        sign_in_here(page)
        assert page.input_value("#text") == f"[defaults]\nthreads = {5 if newer else 7}\n"


def put_in_force(settings: Settings, content: str) -> None:
    with closing(open_ledger(settings)) as ledger:
        versions = Versions(ledger.database)
        newest = versions.newest()
        before = (newest.number, newest.text) if newest else (0, "")
        versions.add(content, "mei", base=before[0], before=before[1])


def test_a_hidden_tab_takes_no_connection_from_the_others(
    open_page: Callable[..., Watched],
) -> None:
    """A browser has six connections to a console. The seventh live page was never loaded."""
    first = open_page(locale="en", viewport=DESK)
    first.open("/alerts")
    context, address = first.page.context, first.address
    first.page.wait_for_function(f"() => {STREAM}.readyState === EventSource.OPEN")
    show(first.page, False)
    first.page.wait_for_function(f"() => {STREAM}.source === null")
    hide = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})"
    context.add_init_script(hide)
    others = [Watched(context.new_page(), address) for _ in range(7)]
    for one in others:
        one.page.goto(f"{address}/alerts", timeout=10_000)
    show(others[-1].page, True)
    others[-1].page.wait_for_function(f"() => {STREAM}.readyState === EventSource.OPEN")
    others[-1].page.wait_for_function(
        "() => new Date(document.querySelector('main p.quiet time').dateTime) > Date.now() - 5000"
    )
    assert others[-1].page.is_hidden("#stale")
    assert first.complaints == [] == others[-1].complaints


def show(page: Page, shown: bool) -> None:
    """Shows or hides a tab. A headless browser shows all of them."""
    page.evaluate(
        "hidden => { Object.defineProperty(document, 'hidden', {configurable: true, get: () => hidden});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        not shown,
    )


def test_an_order_whose_answer_was_lost_is_not_sent_again_by_itself(
    open_page: Callable[..., Watched],
) -> None:
    """htmx kept the second click, and sent it after the first answer."""
    one = open_page(locale="en", viewport=DESK)
    one.open("/lanes/sms.notice")
    page, sent = one.page, []

    def lose(route: Route) -> None:
        sent.append(route.request.url)
        page.wait_for_timeout(300)
        route.abort("connectionrefused")

    page.route("**/lanes/pause", lose)
    page.click("[data-dialog=pause]")
    page.fill("#pause-reason", "a bad evening")
    page.dblclick("#pause button.danger")
    page.wait_for_selector("#stale:visible")
    page.wait_for_timeout(500)
    assert len(sent) == 1
    page.unroute_all()
    page.click("[data-dialog=pause]")
    page.click("#pause button.danger")
    page.wait_for_url("**/lanes")


def test_a_page_of_a_refusal_can_be_loaded_again(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/lanes/sms.notice")
    page = one.page
    page.click("[data-dialog=pause]")
    page.fill("#pause-reason", "a bad evening")
    page.evaluate("document.querySelector('#pause option:last-child').value = 'soon'")
    page.select_option("#pause select", "soon")
    page.click("#pause button.danger")
    page.wait_for_selector("main .line.bad")
    answer = page.reload()
    assert answer is not None
    assert (answer.status, page.url) == (200, f"{one.address}/lanes/sms.notice")
    page.go_back()
    page.wait_for_selector("[data-dialog=pause]")
    assert page.url == f"{one.address}/lanes/sms.notice"


def test_a_live_page_says_that_it_is_no_longer_updated(open_page: Callable[..., Watched]) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/alerts")
    stream = f"{STREAM}.source"
    one.page.wait_for_function(f"() => {stream}.readyState === EventSource.OPEN")
    one.page.evaluate(f"{stream}.dispatchEvent(new Event('error'))")
    assert one.page.is_hidden("#stale"), "the browser opens a stream that has ended again"
    cookies = one.page.context.cookies()
    one.page.context.clear_cookies()
    with one.page.expect_response(lambda got: "/live/" in got.url and got.status == 401):
        # htmx opens a stream again that the server has closed for good, and is refused
        one.page.evaluate(f"{stream}.close(); {stream}.dispatchEvent(new Event('error'))")
    one.page.wait_for_selector("#stale:visible")
    assert "session has ended" in one.page.inner_text("#stale")
    one.page.context.add_cookies(cookies)  # type: ignore[arg-type]
    one.page.wait_for_selector("#stale", state="hidden")


def audit_refuses(*_: object, **__: object) -> None:
    raise AuditRefused("audit.other_key")


def add_user(one: Watched, name: str) -> None:
    one.page.click("[data-dialog=add-user]")
    one.page.fill("#new-name", name)
    one.page.fill("#new-password", "a password of bo")
    one.page.fill("#add-user-reason", "new in the team")
    one.page.click("#add-user button.primary")


def test_an_error_s_page_is_shown(
    open_page: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/people")
    monkeypatch.setattr(Journal, "record", audit_refuses)
    add_user(one, "eve")
    one.page.wait_for_selector("main .line.bad")
    assert "Nothing was done" in one.page.inner_text("main")
    assert one.page.title().startswith("This did not work")
    monkeypatch.undo()
    one.page.goto(one.address + "/resend/new?by=names")
    one.page.fill("#reason", "a ticket")
    ids = tmp_path / "ids.csv"
    ids.write_bytes(b"a" * (MOST_BODY + 1))
    one.page.set_input_files("#file", ids)
    one.page.click("main form button.primary")
    one.page.wait_for_selector("main .line.bad")
    assert "too long" in one.page.inner_text("main")


@pytest.mark.parametrize("broken", ["no_connection", "a_proxy_s_text"])
def test_a_page_without_an_answer_stays_and_says_so(
    open_page: Callable[..., Watched], broken: str
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open("/people")
    one.page.route("**/people", lambda route: break_(route, broken))
    one.page.route("**/account", lambda route: break_(route, broken))
    add_user(one, "eve")
    one.page.wait_for_selector("#stale:visible")
    assert "look, before you send it again" in one.page.inner_text("#stale")
    assert not one.page.is_visible("dialog[open]"), "it would hide the banner"
    one.page.click(".who a[href='/account']")
    one.page.wait_for_function(
        "() => document.querySelector('#stale').textContent.includes('last state')"
    )
    one.page.unroute_all()
    one.page.click(".who a[href='/account']")
    one.page.wait_for_url("**/account")
    assert one.page.is_hidden("#stale")


def break_(route: Route, broken: str) -> None:
    if broken == "no_connection":
        route.abort("connectionrefused")
    else:
        route.fulfill(status=502, content_type="text/plain", body="bad gateway")


def test_a_part_that_gets_an_error_keeps_its_page_and_what_is_open(
    open_page: Callable[..., Watched],
) -> None:
    one = open_page(locale="en", viewport=DESK)
    one.open()
    one.page.keyboard.press("?")
    ask = "over => htmx.ajax('GET', `/overview/figures?over=${over}`, '#figures')"
    one.page.evaluate(ask, "never")
    one.page.wait_for_function("() => !document.querySelector('#stale').hidden")
    assert one.page.locator("#main").count() == 1, "no page within the page"
    assert one.page.is_visible("#keys")
    one.page.evaluate(ask, "1h")
    one.page.wait_for_function("() => document.querySelector('#stale').hidden")
    one.page.keyboard.press("Escape")
    one.page.route("**/search", lambda route: route.abort("connectionrefused"))
    one.page.fill("[data-find]", "state:PARKED")
    one.page.press("[data-find]", "Enter")
    one.page.wait_for_selector("#stale:visible")
    said = one.page.inner_text("#stale")
    for over in ("1h", "never", "1h"):
        one.page.evaluate(ask, over)  # until its answer was handled
        assert one.page.inner_text("#stale") == said, "a part says nothing about what was sent"
