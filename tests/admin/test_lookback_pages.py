"""`/lookback` in the console: the queue by lane, and one decision with reason and audit."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from admin.access import Role
from admin.audit.journal import AuditFilter
from admin.parts import ConsoleParts
from idempotency.payload_cipher import PayloadCipher
from lookback.desk import SqlLookbackDesk
from lookback.store import LookbackStore
from message.lookback import CommitRecord, PrepareRecord
from tests.admin.conftest import Browser
from tests.lookback.making import KIND, TERMS, tx_at

SMS, EMAIL = "hongyan.dispatch.sms.notice", "hongyan.dispatch.email.notice"
Waiting = Callable[..., str]


@pytest.fixture
def waiting(parts: ConsoleParts) -> Waiting:
    """Makes an unresolved transaction; returns its tx_id."""
    terms = replace(TERMS, check="", immunity_ms=0, deadline_ms=0, grace_ms=0)
    database, clock = parts.ledger.database, parts.ledger.clock
    store = LookbackStore(database, clock, PayloadCipher(""), {KIND: terms})

    def make(topic: str = SMS, biz_id: str = "order-1", *, body: bool = True) -> str:
        tx_id = tx_at(parts.ledger.now_ms() - 1_000)
        name: dict[str, Any] = {"biz_type": KIND, "biz_id": biz_id, "tx_id": tx_id}
        if body:
            store.take([PrepareRecord(**name, topic=topic, payload=b'{"secret": "body"}')])
        else:
            store.take([CommitRecord(**name)])
        store.sweep()
        assert state(parts, tx_id) == "UNRESOLVED"
        return tx_id

    return make


def state(parts: ConsoleParts, tx_id: str) -> str:
    store = LookbackStore(parts.ledger.database, parts.ledger.clock, PayloadCipher(""), {})
    (found,) = SqlLookbackDesk(store).find(tx_id)
    return found.state.value


def audited(parts: ConsoleParts) -> list[tuple[str, str, str, str]]:
    rows = parts.journal.page(AuditFilter(), 100)
    found = [one for one in rows if one.action.startswith("lookback.")]
    return [(one.action, one.subject, one.lane, one.reason) for one in found]


@pytest.fixture
def lin(browser: Callable[[], Browser], user: Callable[..., int]) -> Browser:
    user("lin", {Role.OPERATOR: ("sms.*",)})
    one = browser()
    one.sign_in("lin")
    return one


@pytest.fixture
def everywhere(browser: Callable[[], Browser], user: Callable[..., int]) -> Browser:
    user("eva", {Role.OPERATOR: ("*",)})
    one = browser()
    one.sign_in("eva")
    return one


def test_the_queue_has_the_transactions_of_ones_own_lanes(
    waiting: Waiting, lin: Browser, everywhere: Browser
) -> None:
    mine, foreign, none = waiting(SMS), waiting(EMAIL), waiting("orders.events")
    page = lin.get("/lookback").text
    assert [one in page for one in (mine, foreign, none)] == [True, False, False]
    page = everywhere.get("/lookback").text
    assert [one in page for one in (mine, foreign, none)] == [True, True, True]


def test_one_is_found_by_its_business_id_and_shown_without_its_body(
    waiting: Waiting, lin: Browser
) -> None:
    tx_id = waiting(biz_id="订单-7")
    assert tx_id in lin.get("/lookback", params={"name": "订单-7"}).text
    page = lin.get(f"/lookback/{tx_id}").text
    assert "订单-7" in page
    assert "secret" not in page


@pytest.mark.parametrize(
    ("decision", "ended"), [("COMMIT", "COMMITTED"), ("ROLLBACK", "ROLLED_BACK")]
)
def test_a_decision_wants_a_reason_and_leaves_a_row(
    parts: ConsoleParts, waiting: Waiting, lin: Browser, decision: str, ended: str
) -> None:
    tx_id = waiting()
    path = f"/lookback/{tx_id}/decide"
    assert lin.post(path, decision=decision).status_code == 422
    assert lin.post(path, decision="MAYBE", reason="x").status_code == 422
    assert state(parts, tx_id) == "UNRESOLVED"
    assert audited(parts) == []

    answer = lin.post(path, decision=decision, reason="the shop said so")

    assert (answer.status_code, answer.headers["location"]) == (303, f"/lookback/{tx_id}")
    assert state(parts, tx_id) == ended
    assert audited(parts) == [
        (f"lookback.{decision.lower()}", tx_id, "sms.notice", "the shop said so")
    ]
    page = lin.get(f"/lookback/{tx_id}").text
    assert "the shop said so" in page
    assert "/decide" not in page


def test_the_second_of_two_people_changes_nothing_and_leaves_no_row(
    parts: ConsoleParts, waiting: Waiting, lin: Browser
) -> None:
    tx_id = waiting()
    lin.post(f"/lookback/{tx_id}/decide", decision="COMMIT", reason="first")
    answer = lin.post(f"/lookback/{tx_id}/decide", decision="ROLLBACK", reason="second")
    assert answer.status_code == 409
    assert state(parts, tx_id) == "COMMITTED"
    assert len(audited(parts)) == 1


def test_one_without_a_body_cannot_be_committed(
    parts: ConsoleParts, waiting: Waiting, everywhere: Browser
) -> None:
    tx_id = waiting(body=False)
    assert 'value="COMMIT"' not in everywhere.get(f"/lookback/{tx_id}").text
    path = f"/lookback/{tx_id}/decide"
    assert everywhere.post(path, decision="COMMIT", reason="x").status_code == 409
    assert state(parts, tx_id) == "UNRESOLVED"


def test_one_of_a_foreign_lane_is_as_one_that_does_not_exist(
    parts: ConsoleParts, waiting: Waiting, lin: Browser
) -> None:
    for topic in (EMAIL, "orders.events"):
        tx_id = waiting(topic)
        assert lin.get(f"/lookback/{tx_id}").status_code == 404
        answer = lin.post(f"/lookback/{tx_id}/decide", decision="COMMIT", reason="x")
        assert answer.status_code == 404
        assert state(parts, tx_id) == "UNRESOLVED"


def test_a_viewer_sees_it_and_decides_nothing(
    parts: ConsoleParts,
    waiting: Waiting,
    browser: Callable[[], Browser],
    user: Callable[..., int],
) -> None:
    user("vic", {Role.VIEWER: ("sms.*",)})
    vic = browser()
    vic.sign_in("vic")
    tx_id = waiting()
    assert "/decide" not in vic.get(f"/lookback/{tx_id}").text
    answer = vic.post(f"/lookback/{tx_id}/decide", decision="COMMIT", reason="x")
    assert answer.status_code == 403
    assert state(parts, tx_id) == "UNRESOLVED"


def test_pages_follow_one_another(
    waiting: Waiting, lin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.pages.lookback.unresolved._PER_PAGE", 2)
    names = [waiting() for _ in range(3)]
    page, seen = lin.get("/lookback").text, 0
    seen += sum(one in page for one in names)
    further = page.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    seen += sum(one in lin.get(further).text for one in names)
    assert seen == 3


def test_ones_own_are_found_behind_pages_of_other_lanes(
    waiting: Waiting, lin: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page said that no transaction waits."""
    monkeypatch.setattr("admin.pages.lookback.unresolved._PER_PAGE", 2)
    for _ in range(5):
        waiting(EMAIL)
    mine = waiting(SMS)
    assert mine in lin.get("/lookback").text
    monkeypatch.setattr("admin.pages.lookback.unresolved._MOST_PAGES", 2)
    page = lin.get("/lookback").text
    assert "There is nothing of your lanes on this page" in page
    assert "No transaction waits" not in page
    assert 'rel="next"' in page
