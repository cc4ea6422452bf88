"""Look-back in a real browser: both languages, light and dark, a phone's screen; and a decision."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from backends.settings import Settings
from idempotency.payload_cipher import PayloadCipher
from idempotency.sql_ledger import open_ledger
from lookback.store import LookbackStore
from message.lookback import CommitRecord, PrepareRecord
from tests.browser.conftest import Watched
from tests.browser.looks import LOOKS, PHONE
from tests.lookback.making import KIND, TERMS, tx_at

TOPIC = "hongyan.dispatch.sms.notice"
BODY = b'{"id":"m-1","content":{"text":"4711"}}'


@pytest.fixture(scope="module")
def transactions(console_settings: Settings) -> dict[str, str]:
    """Unresolved transactions, by their business id."""
    terms = replace(TERMS, check="", immunity_ms=0, deadline_ms=0, grace_ms=0)
    with closing(open_ledger(console_settings)) as ledger:
        store = LookbackStore(ledger.database, ledger.clock, PayloadCipher(""), {KIND: terms})
        made = {}
        for number, biz_id in enumerate(("order-1", "订单-7", "<b>\u202eorder", "no-body")):
            tx_id = tx_at(ledger.now_ms() - 60_000 + number)
            named: dict[str, Any] = {"biz_type": KIND, "biz_id": biz_id, "tx_id": tx_id}
            if biz_id == "no-body":
                store.take([CommitRecord(**named)])
            else:
                store.take([PrepareRecord(**named, topic=TOPIC, payload=BODY)])
            made[biz_id] = tx_id
        store.sweep()
    return made


@pytest.fixture
def one(open_page: Callable[..., Watched], transactions: dict[str, str]) -> Callable[..., Watched]:
    def signed_in(**options: Any) -> Watched:
        page = open_page(**options)
        page.open()
        return page

    return signed_in


@pytest.mark.parametrize("name", ["list", "订单-7", "no-body"])
@LOOKS
def test_a_page_of_transactions_is_without_findings(
    one: Callable[..., Watched],
    transactions: dict[str, str],
    tmp_path: Path,
    name: str,
    language: str,
    theme: str,
    screen: dict[str, Any],
) -> None:
    page = one(locale=language, color_scheme=theme, viewport=screen)
    page.page.goto(
        page.address + "/lookback" + (f"/{transactions[name]}" if name != "list" else "")
    )
    page.page.screenshot(
        path=tmp_path / f"lookback-{name}-{language}-{theme}-{screen['width']}.png"
    )
    assert page.page.inner_text("h1").startswith("回查" if language == "zh" else "Look-back")
    assert "4711" not in page.page.content()
    assert page.findings() == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    assert page.complaints == []


@pytest.mark.parametrize(
    ("language", "biz_id", "button"), [("en", "order-1", "commit"), ("zh", "no-body", "rollback")]
)
def test_a_transaction_is_found_by_its_business_id_and_decided(
    one: Callable[..., Watched],
    transactions: dict[str, str],
    language: str,
    biz_id: str,
    button: str,
) -> None:
    page = one(locale=language, viewport=PHONE)
    page.page.goto(f"{page.address}/lookback")
    page.page.fill("#name", biz_id)
    page.page.press("#name", "Enter")
    page.page.wait_for_url("**/lookback?**")
    page.page.click("tbody tr:first-child a")
    page.page.wait_for_url(f"**/lookback/{transactions[biz_id]}")
    page.page.click(f"[data-dialog={button}]")
    page.page.fill(f"#{button}-reason", "the shop said so")
    assert page.findings() == []
    page.page.click(f"#{button} button.danger")
    page.page.wait_for_selector("[data-dialog]", state="detached")
    ended = {"commit": "COMMITTED", "rollback": "ROLLED_BACK"}[button]
    assert ended in page.page.inner_text("h1")
    assert "lin: the shop said so" in page.page.inner_text("main")
    assert page.complaints == []
