"""Lanes, fleet, accounts and alerts in a real browser: orders by hand, and pages without findings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from admin.access import Role
from admin.parts import open_parts
from admin.process import run_console
from backends.metrics.families import RECEIPTS
from backends.settings import ConsoleSettings, DatabaseSettings, Settings
from idempotency.alerts.windows import AlertWindows, Raised
from idempotency.fleet.snapshots import (
    AccountSnapshot,
    LaneSnapshot,
    ProcessSnapshot,
    ReceiptSnapshot,
    encoded,
)
from idempotency.sql_ledger import SqlLedger, open_ledger
from policy.templates.page import TemplateSource
from policy.templates.versions import TemplateVersions
from simulator import Simulator, read_ledger, spawn
from tests.browser.conftest import PASSWORD, Watched
from tests.browser.looks import DESK, LOOKS, PHONE
from tests.harness.databases import upgraded
from tests.idempotency.making import worker

SMS, HOOK = "sms.verification", "webhook.notice"
PAGES = {
    "lanes": "/lanes",
    "lane": f"/lanes/{HOOK}",
    "fleet": "/fleet",
    "process": "/fleet/worker-2",
    "receipts": "/fleet/receipts-1",
    "template": "/templates/one?name=login",
    "accounts": "/accounts",
    "account": "/accounts/hook-main",
    "alerts": "/alerts",
    "alert": f"/alerts/lag?subject={SMS}",
}
LOGIN = """[templates."login"]
channel = "webhook"
text = "Your code is {{ code }}"
[templates."login".variables]
code = "int"
"""


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulator]:
    with spawn(tmp_path_factory.mktemp("provider")) as provider:
        yield provider


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, provider: Simulator) -> Settings:
    url = f"sqlite:///{tmp_path_factory.mktemp('fleet') / 'hongyan.db'}"
    settings = Settings(
        database=DatabaseSettings(url=url),
        console=ConsoleSettings(health_address="127.0.0.1:0"),
        accounts={
            "hook-main": {"provider": "webhook", "endpoint": f"{provider.url}/send"},
            "hook-spare": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/other"},
        },
    )
    upgraded(settings)
    return settings


@pytest.fixture(scope="module")
def ledger(settings: Settings) -> Iterator[SqlLedger]:
    """Two workers, one of which obeys a pause; a receipts process; a template; alerts."""
    with closing(open_ledger(settings)) as ledger:
        lanes, lane = [SMS, HOOK], LaneSnapshot(in_flight=3, lag=1_200, partitions=4, rate=21.5)
        main = AccountSnapshot(rate=12.5, limit=50.0, token_age_s=3_200, token_left_s=4_000)
        shut = AccountSnapshot(breaker=2, shut_s=40.0, login_refused=True)
        for number in (1, 2):
            info = msgspec.structs.replace(worker(f"worker-{number}"), lanes=lanes)
            lease = ledger.register(msgspec.structs.replace(info, lease_ms=600_000))
            of_lanes = {SMS: lane, HOOK: msgspec.structs.replace(lane, paused=number == 1)}
            accounts = {"hook-main": main, "hook-spare": shut}
            text = encoded(ProcessSnapshot(1, of_lanes, accounts=accounts, templates=number - 1))
            assert ledger.heartbeat(lease, "RUNNING", text)
        info = msgspec.structs.replace(worker("receipts-1"), lanes=[], threads=0, kind=RECEIPTS)
        lease = ledger.register(msgspec.structs.replace(info, lease_ms=600_000))
        taken = ReceiptSnapshot(1_204, last_s=75, lag_s=3.4, asked_s=9)
        receipts = {"hook-main": taken, "hook-spare": ReceiptSnapshot()}
        assert ledger.heartbeat(lease, "RUNNING", encoded(ProcessSnapshot(1, receipts=receipts)))
        nothing, source = TemplateSource("", {}), TemplateSource(LOGIN, {})
        TemplateVersions(ledger.database).add(source, "mei", base=0, before=nothing)
        ledger.controls().pause([HOOK], None, author="mei", reason="the provider repairs")
        ledger.account_pauses().pause("hook-spare", "", None, author="mei", reason="slow")
        windows = AlertWindows(ledger.database, ledger.controls().clock)
        windows.note(
            [
                Raised("lag", SMS, "", "12,000 records wait for 90 s", 1, lasting=True),
                Raised("breaker_open", HOOK, "hook-spare", "its breaker is open", 3, lasting=True),
            ],
            60_000,
            "worker-1",
        )
        yield ledger


@pytest.fixture(scope="module")
def console(settings: Settings, ledger: SqlLedger) -> Iterator[str]:
    """The address of a console over that fleet."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        parts = open_parts(settings, stack)
        with parts.databases.primary.begin() as connection:
            number = parts.people.users.add(connection, "lin", by="test", password=PASSWORD)
            parts.people.users.set_roles(connection, number, dict.fromkeys(Role, ("*",)))
    stop = threading.Event()
    thread = threading.Thread(target=run_console, args=(settings, stop, f"127.0.0.1:{port}"))
    thread.start()
    yield f"http://127.0.0.1:{port}"
    stop.set()
    thread.join(20)


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
    one.page.wait_for_selector("main h1")
    one.page.screenshot(
        path=tmp_path / f"{name}-{language}-{theme}-{screen['width']}.png", full_page=True
    )
    assert one.findings() == []
    wide = one.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= screen["width"]
    assert one.complaints == []


def test_a_lane_is_paused_in_few_clicks_and_the_page_tells_who_does_not_obey(
    open_page: Callable[..., Watched], ledger: SqlLedger
) -> None:
    one = open_page(locale="en", viewport=PHONE)
    one.open("/lanes")
    one.page.click("[data-dialog=pause-lanes]")
    one.page.check(f"#pause-lanes input[value='{SMS}']")
    one.page.select_option("#pause-lanes-for", "30m")
    one.page.fill("#pause-lanes-reason", "wrong text in the campaign")
    assert one.findings() == []
    one.page.click("#pause-lanes button.danger")
    one.page.wait_for_selector(f"tr:has(a[href='/lanes/{SMS}']) >> text=wrong text in the campaign")
    one.page.wait_for_selector(
        f"tr:has(a[href='/lanes/{SMS}']) >> text=Does not obey after five seconds: worker-1"
    )
    one.page.click("[data-dialog=resume-lanes]")
    one.page.check(f"#resume-lanes input[value='{SMS}']")
    one.page.fill("#resume-lanes-reason", "mended")
    one.page.click("#resume-lanes button.primary")
    one.page.wait_for_selector(
        f"tr:has(a[href='/lanes/{SMS}']) >> text=wrong text in the campaign", state="detached"
    )
    assert [one.lane for one in ledger.controls().pauses()] == [HOOK]
    assert one.complaints == []


def test_an_account_is_paused_on_one_worker_and_an_alert_acknowledged(
    open_page: Callable[..., Watched], ledger: SqlLedger
) -> None:
    one = open_page(locale="zh", viewport=DESK)
    one.open("/accounts/hook-main")
    one.page.click("[data-dialog=pause]")
    one.page.select_option("#pause-worker", "worker-2")
    one.page.fill("#pause-reason", "its address is not allowed")
    one.page.click("#pause button.danger")
    one.page.wait_for_url("**/accounts")
    found = [(p.account, p.worker) for p in ledger.account_pauses().pauses()]
    assert ("hook-main", "worker-2") in found
    one.page.goto(f"{one.address}/alerts/lag?subject={SMS}")
    one.page.click("[data-dialog=acknowledge]")
    one.page.fill("#acknowledge-reason", "I look")
    one.page.click("#acknowledge button.primary")
    one.page.wait_for_selector("main >> text=I look")
    assert one.complaints == []


@pytest.mark.parametrize(
    ("language", "sent"), [("en", "the provider has it"), ("zh", "供应商已接收")]
)
def test_a_template_is_sent_for_a_test_from_its_page(
    open_page: Callable[..., Watched],
    provider: Simulator,
    tmp_path: Path,
    language: str,
    sent: str,
) -> None:
    one = open_page(locale=language, viewport=PHONE)
    one.open("/templates/one?name=login")
    one.page.fill("[name=var_code]", "4711")
    one.page.click("form[action='/templates/one'] button.primary")
    one.page.wait_for_selector("text=Your code is 4711")
    one.page.click("[data-dialog=test]")
    one.page.select_option("#test-through", f"{HOOK} hook-main")
    one.page.fill("#test-receiver", f"customer-{language}-4711")
    one.page.fill("#test-reason", "new text")
    one.page.screenshot(path=tmp_path / f"ask-{language}.png", full_page=True)
    dialog = "document.querySelector('#test')"
    assert one.page.evaluate(f"{dialog}.scrollWidth <= {dialog}.clientWidth"), "nothing is cut off"
    assert one.findings() == []
    one.page.click("#test button.primary")
    one.page.wait_for_selector(f"text={sent}")
    one.page.screenshot(path=tmp_path / f"sent-{language}.png", full_page=True)
    assert f"customer-{language}" not in one.page.content()
    assert one.findings() == []
    assert one.complaints == []
    receivers = [record.receiver for record in read_ledger(provider.ledger)]
    assert f"customer-{language}-4711" in receivers
