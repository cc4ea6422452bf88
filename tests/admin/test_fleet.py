"""Pages of lanes, processes, accounts and alerts: what they show, and to whom, and what an order does."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app
from admin.audit.chain import JournalRow
from admin.audit.journal import AuditFilter
from admin.pages.fleet.accounts import account_row
from admin.pages.fleet.lanes import is_late
from admin.pages.fleet.runbook import section
from admin.parts import ConsoleParts
from backends.lookback_settings import BizTypeSettings, LookbackSettings
from backends.metrics.families import RECEIPTS
from backends.settings import RelaySettings, Settings
from idempotency.alerts.book import AlertBook
from idempotency.alerts.windows import AlertWindows, Raised
from idempotency.fleet.account_pauses import AccountPauses
from idempotency.fleet.controls import Controls
from idempotency.fleet.served_lanes import served_lanes
from idempotency.fleet.snapshots import (
    AccountSnapshot,
    BacklogSnapshot,
    LaneSnapshot,
    ProcessSnapshot,
    ReceiptSnapshot,
    encoded,
)
from idempotency.fleet.status import FleetStatus
from idempotency.ledger import Lease
from policy.templates.page import TemplateSource
from policy.templates.versions import TemplateVersions
from sending.alerts.notifier import RULES
from sending.runtime.heartbeat import ProcessHeartbeat
from simulator import Simulator
from tests.admin.conftest import Browser, served_with
from tests.harness.simulators import spawn
from tests.hongyan_client.outbox.places import opened as opened_outbox_place
from tests.idempotency.making import wait_until, worker

Open = Callable[[], Browser]
User = Callable[..., int]
SMS, MAIL, HOOK = "sms.notice", "email.notice", "webhook.notice"
OPERATOR = {Role.OPERATOR: ("*",)}
ACCOUNTS = {
    "main": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/secret-path?key=hush"},
    "spare": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/"},
}


def with_accounts(parts: ConsoleParts, accounts: dict[str, dict[str, str]]) -> ConsoleParts:
    settings: Settings = msgspec.structs.replace(parts.settings, accounts=accounts)
    return dataclasses.replace(parts, settings=settings)


@pytest.fixture
def app(parts: ConsoleParts) -> Litestar:
    return served_with(with_accounts(parts, ACCOUNTS))


@pytest.fixture
def lin(browser: Open, user: User) -> Browser:
    """An operator of all lanes."""
    user("lin", OPERATOR)
    one = browser()
    one.sign_in("lin")
    return one


@pytest.fixture
def bo(browser: Open, user: User) -> Browser:
    """An operator of SMS, who sees nothing else."""
    user("bo", {Role.OPERATOR: ("sms.*",)})
    one = browser()
    one.sign_in("bo")
    return one


def live(parts: ConsoleParts, name: str, lanes: list[str]) -> Lease:
    info = msgspec.structs.replace(worker(name), lanes=lanes, lease_ms=600_000)
    return parts.ledger.register(info)


def beat(
    parts: ConsoleParts,
    lease: Lease,
    lanes: dict[str, LaneSnapshot],
    accounts: dict[str, AccountSnapshot] | None = None,
    policy: int = 0,
) -> None:
    text = encoded(ProcessSnapshot(policy, lanes, accounts=accounts or {}))
    assert parts.ledger.heartbeat(lease, "RUNNING", text) is not None


def audit(parts: ConsoleParts, action: str) -> list[JournalRow]:
    return list(parts.journal.page(AuditFilter(action=action), 10))


def controls(parts: ConsoleParts) -> Controls:
    return Controls(parts.databases.primary, parts.databases.clock)


def pauses(parts: ConsoleParts) -> AccountPauses:
    return AccountPauses(parts.databases.primary, parts.databases.clock)


def raise_alert(parts: ConsoleParts, rule: str, lane: str, text: str) -> None:
    windows = AlertWindows(parts.databases.primary, parts.databases.clock)
    windows.note([Raised(rule, lane, "", text, 1, lasting=True)], 60_000, "w1")


# -- lanes --


def test_lanes_are_paused_and_resumed_with_reason_end_and_audit(
    parts: ConsoleParts, lin: Browser
) -> None:
    fields = {"csrf": lin.token(), "lane": SMS, "for": "30m"}
    assert lin.raw("/lanes/pause", fields).status_code == 422, "without a reason"
    sent = lin.client.post(
        "/lanes/pause",
        data={**fields, "lane": [SMS, MAIL], "reason": "wrong text"},
        follow_redirects=False,
    )
    assert (sent.status_code, sent.headers["location"]) == (303, "/lanes")
    made = controls(parts).pauses()
    assert {(one.lane, one.author, one.reason) for one in made} == {
        (SMS, "lin", "wrong text"),
        (MAIL, "lin", "wrong text"),
    }
    assert {one.until and one.until - one.paused_at for one in made} == {1_800_000}
    page = lin.get(f"/lanes/{SMS}").text
    assert "lin: wrong text" in page
    assert lin.post("/lanes/resume", lane=SMS, reason="mended").status_code == 303
    assert lin.post("/lanes/resume", lane=SMS, reason="again").status_code == 409
    assert [one.lane for one in controls(parts).pauses()] == [MAIL]
    assert [row.subject for row in audit(parts, "lane.pause")] == [f"{SMS}, {MAIL}"]
    assert [row.reason for row in audit(parts, "lane.resume")] == ["mended"]
    assert "mended" in lin.get(f"/lanes/{SMS}").text


@pytest.mark.parametrize(
    ("lane", "time"), [("smoke.signal", ""), ("", ""), (SMS, "soon"), (SMS, "0s")]
)
def test_a_wrong_lane_or_time_pauses_nothing(
    parts: ConsoleParts, lin: Browser, lane: str, time: str
) -> None:
    fields = {"lane": lane, "for": time, "reason": "x"}
    assert lin.post("/lanes/pause", **fields).status_code == 422
    assert controls(parts).history() == []
    assert audit(parts, "lane.pause") == []


def test_a_person_pauses_its_own_lanes_alone(parts: ConsoleParts, bo: Browser) -> None:
    token = bo.token()
    sent = bo.client.post(
        "/lanes/pause",
        data={"csrf": token, "lane": [SMS, MAIL], "reason": "x"},
        follow_redirects=False,
    )
    assert sent.status_code == 403
    assert controls(parts).history() == []
    assert bo.get(f"/lanes/{MAIL}").status_code == 404
    assert bo.get("/lanes/no.such").status_code == 404
    assert MAIL not in bo.get("/lanes").text
    assert bo.post("/lanes/pause", lane=SMS, reason="x").status_code == 303


def test_the_page_names_who_obeys_and_who_does_not(parts: ConsoleParts, lin: Browser) -> None:
    one, two = live(parts, "w1", [SMS]), live(parts, "w2", [SMS])
    controls(parts).pause([SMS], None, author="li", reason="campaign")
    beat(parts, one, {SMS: LaneSnapshot(paused=True)})
    beat(parts, two, {SMS: LaneSnapshot(in_flight=3)})
    page = lin.get("/lanes").text
    assert "Obeyed by w1" in page
    assert "Not yet reported: w2" in page
    assert "Nothing of it waits in the ledger." in page


def test_a_worker_is_late_after_five_seconds(parts: ConsoleParts) -> None:
    lease = live(parts, "w1", [SMS])
    beat(parts, lease, {SMS: LaneSnapshot()})
    controls(parts).pause([SMS], None, author="li", reason="campaign")
    (pause,) = controls(parts).pauses()
    processes = FleetStatus(parts.databases.primary, parts.databases.clock).processes()
    served = served_lanes([SMS], processes, [pause])[SMS]
    assert served.not_obeying == ["w1"]
    assert not is_late(served, [pause], pause.paused_at + 5_000)
    assert is_late(served, [pause], pause.paused_at + 5_001)
    ended = pause._replace(ended_at=pause.paused_at + 10)
    resumed = served._replace(pause=None)
    assert not is_late(resumed, [ended], pause.paused_at + 5_010)
    assert is_late(resumed, [ended], pause.paused_at + 5_011)


# -- processes --


def test_a_process_is_drained_by_an_operator_of_all_its_lanes(
    parts: ConsoleParts, lin: Browser, bo: Browser
) -> None:
    both, sms = live(parts, "w1", [SMS, MAIL]), live(parts, "w2", [SMS])
    mail = live(parts, "w3", [MAIL])
    for lease in (both, sms, mail):
        beat(parts, lease, {SMS: LaneSnapshot(in_flight=2, lag=7, open=["main"])})
    assert "w1" in bo.get("/fleet").text
    assert "w3" not in bo.get("/fleet").text
    assert bo.get("/fleet/w3").status_code == 404
    assert bo.post("/fleet/w1/drain", reason="x").status_code == 403
    assert bo.post("/fleet/w3/drain", reason="x").status_code == 404
    assert bo.post("/fleet/w2/drain").status_code == 422
    assert bo.post("/fleet/w2/drain", reason="its host is replaced").status_code == 303
    assert lin.post("/fleet/w1/drain", reason="repairs").status_code == 303
    assert controls(parts).orders("w2", 0).drain == "bo: its host is replaced"
    assert controls(parts).orders("w1", 0).drain == "lin: repairs"
    assert [row.subject for row in audit(parts, "worker.drain")] == ["w1", "w2"]


def test_a_process_that_ended_is_not_drained(parts: ConsoleParts, lin: Browser) -> None:
    lease = live(parts, "w1", [SMS])
    parts.ledger.retire(lease)
    assert lin.post("/fleet/w1/drain", reason="x").status_code == 404
    assert audit(parts, "worker.drain") == []


def test_a_process_without_lanes_is_drained_by_an_operator_of_all_lanes_alone(
    parts: ConsoleParts, lin: Browser, bo: Browser
) -> None:
    waits = BacklogSnapshot(waiting=1_234, oldest_s=90, parked=2)
    ProcessHeartbeat(parts.ledger, "lookback", "back-1", threading.Event(), lambda: waits).beat()
    page = lin.get("/fleet").text
    assert "1,234 to forward" in page
    assert "2 parked" in page
    assert "1,234 to forward" in lin.get("/fleet/back-1").text
    assert "back-1" in bo.get("/fleet").text, "it serves all lanes, so his, too"
    assert bo.post("/fleet/back-1/drain", reason="x").status_code == 403
    assert lin.post("/fleet/back-1/drain", reason="repairs").status_code == 303
    assert controls(parts).orders("back-1", 0).drain == "lin: repairs"


def test_relays_of_the_business_and_missing_kinds_are_on_the_page(
    parts: ConsoleParts, user: User, tmp_path: Path
) -> None:
    user("lin", OPERATOR)
    with opened_outbox_place(f"sqlite:///{tmp_path}/shop.db") as place:
        place.rows.beat("relay-1", "shop", 7, "ended", 0)
        place.rows.beat("relay-2", "shop", 8, "running", 0)
        relay = RelaySettings(outbox_url=place.url)
        biz_types = LookbackSettings(biz_types={"order": BizTypeSettings()})
        settings = msgspec.structs.replace(parts.settings, relay=relay, lookback=biz_types)
        with TestClient(create_app(dataclasses.replace(parts, settings=settings))) as client:
            one = Browser(client)
            one.sign_in("lin")
            page = one.get("/fleet").text
    assert "relay-2" in page
    assert "relay-1" not in page
    assert "No look-back lives" in page
    assert "No relay lives" not in page


@pytest.mark.parametrize("opened", [(), ("main",)])
def test_remarks_have_a_column_where_there_are_any(
    parts: ConsoleParts, lin: Browser, opened: tuple[str, ...]
) -> None:
    beat(parts, live(parts, "w1", [HOOK]), {HOOK: LaneSnapshot(open=list(opened))})
    page = lin.get("/fleet").text
    assert (">Remarks<" in page) is bool(opened)
    assert (f"breaker open: {HOOK} main" in page) is bool(opened)
    rows = page.split("<tr>")[1:]
    assert len({row.count("<th ") + row.count("<td") for row in rows}) == 1, "a head for each cell"


# -- accounts --


def test_an_account_is_paused_in_the_fleet_and_on_one_worker(
    parts: ConsoleParts, lin: Browser
) -> None:
    one = live(parts, "w1", [HOOK])
    shown = AccountSnapshot(breaker=2, rate=4.2, limit=10.0, token_age_s=90, token_left_s=30)
    beat(parts, one, {HOOK: LaneSnapshot()}, {"main": shown})
    assert lin.post("/accounts/main/pause").status_code == 422
    assert lin.post("/accounts/main/pause", reason="texts arrive late").status_code == 303
    fields = {"worker": "w1", "for": "1h", "reason": "its address"}
    assert lin.post("/accounts/spare/pause", **fields).status_code == 303
    assert controls(parts).orders("w1", 0).accounts.keys() == {"main", "spare"}
    assert controls(parts).orders("w2", 0).accounts == {"main": None}
    page = lin.get("/accounts/main").text
    assert "lin: texts arrive late" in page
    assert "breaker open" in page
    assert "1m 30s" in page
    assert "w1" in page
    assert lin.post("/accounts/spare/resume", reason="x").status_code == 409, "not in the fleet"
    assert lin.post("/accounts/spare/resume", worker="w1", reason="x").status_code == 303
    assert [one.account for one in pauses(parts).pauses()] == ["main"]
    subjects = [row.subject for row in audit(parts, "account.pause")]
    assert subjects == ["spare on w1", "main"]


def test_an_account_of_other_lanes_does_not_exist_for_a_person(
    parts: ConsoleParts, bo: Browser
) -> None:
    assert "/accounts/main" not in bo.get("/accounts").text
    for path in ("/accounts/main", "/accounts/no-such"):
        assert bo.get(path).status_code == 404
        assert bo.post(f"{path}/pause", reason="x").status_code == 404
        assert bo.post(f"{path}/test", reason="x", receiver="u1").status_code == 404
    assert pauses(parts).history() == []


def test_a_pause_of_an_account_needs_the_role_for_all_of_its_lanes(
    parts: ConsoleParts, browser: Open, user: User
) -> None:
    user("min", {Role.OPERATOR: ("webhook.notice",)})
    one = browser()
    one.sign_in("min")
    assert one.get("/accounts/main").status_code == 200
    assert one.post("/accounts/main/pause", reason="x").status_code == 403
    assert pauses(parts).history() == []


def test_no_path_of_an_endpoint_is_shown(lin: Browser) -> None:
    page = lin.get("/accounts/main").text + lin.get("/accounts").text
    assert "http://127.0.0.1:9" in page
    assert "secret-path" not in page
    assert "hush" not in page


def test_an_account_whose_table_is_wrong_is_listed() -> None:
    row = account_row("odd", {"endpoint": 3}, {}, [], [], [], 0)
    assert (row.provider, row.channel, row.endpoint) == ("", "", "")


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path) as provider:
        yield provider


def test_a_test_send_shows_its_exchange_and_hides_the_receiver(
    parts: ConsoleParts, user: User, provider: Simulator
) -> None:
    user("lin", OPERATOR)
    accounts = {"main": {"provider": "webhook", "endpoint": f"{provider.url}/send"}}
    with TestClient(create_app(with_accounts(parts, accounts))) as client:
        lin = Browser(client)
        lin.sign_in("lin")
        fields = {"receiver": "customer-4711", "lane": HOOK, "text": "A test"}
        assert lin.post("/accounts/main/test", **fields).status_code == 422
        answer = lin.post("/accounts/main/test", **fields, reason="is it on?")
        wrong = lin.post("/accounts/main/test", **{**fields, "lane": SMS}, reason="x")
        template = {**fields, "params": "no equals", "template": "t"}
        bad = lin.post("/accounts/main/test", **template, reason="x")
    assert answer.status_code == 200, answer.text
    assert "the provider has it" in answer.text
    assert "POST" in answer.text
    assert "customer-4711" not in answer.text
    assert "cu***11" in answer.text
    assert (wrong.status_code, bad.status_code) == (422, 422)
    (row,) = audit(parts, "account.test")
    assert (row.subject, row.lane, row.reason) == ("main to cu***11", HOOK, "is it on?")


# -- receipts and templates --


def a_receipts_process(parts: ConsoleParts, receipts: dict[str, ReceiptSnapshot]) -> None:
    info = msgspec.structs.replace(worker("r1"), lanes=[], kind=RECEIPTS, lease_ms=600_000)
    lease = parts.ledger.register(info)
    text = encoded(ProcessSnapshot(0, receipts=receipts))
    assert parts.ledger.heartbeat(lease, "RUNNING", text) is not None


def test_accounts_show_their_last_receipt_and_its_lag(parts: ConsoleParts, lin: Browser) -> None:
    shown = {"main": ReceiptSnapshot(12, last_s=75, lag_s=3.4), "spare": ReceiptSnapshot()}
    a_receipts_process(parts, shown)
    listed = lin.get("/accounts").text
    assert "1m 15s" in listed
    assert "3.40 s" in listed
    assert "none yet" in listed
    assert "3.40 s" in lin.get("/accounts/main").text
    one = lin.get("/fleet/r1").text
    assert "/accounts/main" in one
    assert "1m 15s" in one
    assert "receipts" in lin.get("/fleet").text


def test_a_receipts_process_shows_a_person_accounts_of_its_lanes_alone(
    parts: ConsoleParts, bo: Browser
) -> None:
    a_receipts_process(parts, {"main": ReceiptSnapshot(12, last_s=75)})
    page = bo.get("/fleet/r1")
    assert page.status_code == 200
    assert "/accounts/main" not in page.text
    assert "/drain" not in page.text
    assert bo.post("/fleet/r1/drain", reason="x").status_code == 403


def test_a_process_shows_a_person_accounts_of_its_lanes_alone(
    parts: ConsoleParts, bo: Browser, lin: Browser
) -> None:
    both = {SMS: LaneSnapshot(), HOOK: LaneSnapshot()}
    beat(parts, live(parts, "w1", [SMS, HOOK]), both, {"main": AccountSnapshot(rate=3.0)})
    pauses(parts).pause("main", "", None, author="lin", reason="texts arrive late")
    assert "texts arrive late" in lin.get("/fleet/w1").text
    page = bo.get("/fleet/w1")
    assert page.status_code == 200
    assert "/accounts/main" not in page.text
    assert "texts arrive late" not in page.text


def test_a_pause_warns_where_the_other_account_is_paused(parts: ConsoleParts, lin: Browser) -> None:
    warning = "the pause holds these lanes, too"
    assert warning not in lin.get("/accounts/main").text
    pauses(parts).pause("spare", "w1", None, author="lin", reason="one host")
    pauses(parts).pause("spare", "", None, author="lin", reason="a bill")
    wait_until(lambda: warning in lin.get("/accounts/main").text)


def test_a_receipts_process_is_drained_by_an_operator_of_all_lanes(
    parts: ConsoleParts, lin: Browser
) -> None:
    a_receipts_process(parts, {})
    assert lin.post("/fleet/r1/drain", reason="new version").status_code == 303
    assert controls(parts).orders("r1", 0).drain == "lin: new version"


def test_the_fleet_shows_who_follows_older_templates(parts: ConsoleParts, lin: Browser) -> None:
    versions = TemplateVersions(parts.databases.primary)
    first, second = TemplateSource("# one", {}), TemplateSource("# two", {})
    versions.add(first, "bo", base=0, before=TemplateSource("", {}))
    versions.add(second, "bo", base=1, before=first)
    one, two, three = (live(parts, name, [HOOK]) for name in ("w1", "w2", "w3"))
    for lease, number in ((one, 2), (two, 1), (three, None)):
        text = encoded(ProcessSnapshot(0, {HOOK: LaneSnapshot()}, templates=number))
        assert parts.ledger.heartbeat(lease, "RUNNING", text) is not None
    rows = lin.get("/fleet").text.split("<tr>")
    behind = {name: "1 behind" in row for row in rows for name in ("w1", "w2", "w3") if name in row}
    assert behind == {"w1": False, "w2": True, "w3": False}


# -- alerts --


def test_an_alert_is_acknowledged_until_it_comes_again(parts: ConsoleParts, lin: Browser) -> None:
    raise_alert(parts, "lag", SMS, "12,000 records wait")
    page = lin.get("/alerts").text
    assert "12,000 records wait" in page
    name = {"rule": "lag", "subject": SMS}
    assert lin.post("/alerts/acknowledge", **name).status_code == 422
    assert lin.post("/alerts/acknowledge", **name, reason="I look").status_code == 303
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    (alert,) = book.alerts()
    assert (alert.acknowledged_by, alert.acknowledged_why) == ("lin", "I look")
    assert alert.acknowledged_at is not None
    windows = AlertWindows(parts.databases.primary, parts.databases.clock)
    assert windows.upkeep(0, 1, "w1") is not None
    with parts.databases.primary.begin() as connection:
        connection.exec_driver_sql("UPDATE alerts SET state = 'cleared'")
        connection.exec_driver_sql("UPDATE alerts SET acknowledged_at = acknowledged_at - 60000")
    assert lin.post("/alerts/acknowledge", **name, reason="late").status_code == 409
    raise_alert(parts, "lag", SMS, "again")
    (alert,) = book.alerts()
    assert alert.acknowledged_at is None, "another time needs another person's look"
    assert [row.reason for row in audit(parts, "alert.acknowledge")] == ["I look"]


def test_an_alert_is_silenced_for_a_time_and_the_silence_ended(
    parts: ConsoleParts, lin: Browser
) -> None:
    raise_alert(parts, "lag", SMS, "12,000 records wait")
    book = AlertBook(parts.databases.primary, parts.databases.clock)
    name = {"rule": "lag", "subject": SMS}
    assert lin.post("/alerts/silence", **name, reason="x").status_code == 422, "without a time"
    sent = lin.post("/alerts/silence", **name, **{"for": "2h"}, reason="campaign")
    assert sent.status_code == 303
    (silence,) = book.silences()
    assert (silence.author, silence.reason) == ("lin", "campaign")
    assert silence.until - silence.made_at == 7_200_000
    assert "campaign" in lin.get(f"/alerts/lag?subject={SMS}").text
    assert lin.post("/alerts/unsilence", **name, reason="over").status_code == 303
    assert lin.post("/alerts/unsilence", **name, reason="over").status_code == 409
    assert book.silences() == []
    whole = lin.post("/alerts/silence", rule="parked", **{"for": "1h"}, reason="x")
    unknown = lin.post("/alerts/silence", rule="no_such", **{"for": "1h"}, reason="x")
    assert (whole.status_code, unknown.status_code) == (303, 422)
    assert [one.subject for one in book.silences()] == [""]
    assert lin.get("/alerts/parked").status_code == 200, "the silence has a page of its own"


def test_alerts_of_other_lanes_are_nobodys_business(parts: ConsoleParts, bo: Browser) -> None:
    raise_alert(parts, "lag", MAIL, "a secret of mail")
    raise_alert(parts, "lag", "", "the fleet")
    assert "a secret of mail" not in bo.get("/alerts").text
    assert bo.get(f"/alerts/lag?subject={MAIL}").status_code == 404
    for order in ("acknowledge", "silence"):
        fields = {"rule": "lag", "subject": MAIL, "for": "1h", "reason": "x"}
        assert bo.post(f"/alerts/{order}", **fields).status_code == 404
    fields = {"rule": "lag", "for": "1h", "reason": "x"}
    assert bo.post("/alerts/silence", **fields).status_code == 403, "a whole rule is the fleet's"
    assert bo.post("/alerts/acknowledge", rule="lag", reason="x").status_code == 403
    assert bo.post("/alerts/unsilence", rule="lag", subject=MAIL, reason="x").status_code == 403


def test_the_runbook_has_a_section_for_every_rule() -> None:
    assert [rule for rule in sorted(RULES) if not section(rule)] == []
    assert section("../etc/passwd") == ""


def test_texts_of_processes_and_alerts_are_text(parts: ConsoleParts, lin: Browser) -> None:
    evil = "<script>alert(1)</script>"
    lease = live(parts, evil, [SMS])
    beat(parts, lease, {SMS: LaneSnapshot(open=[evil])}, {"main": AccountSnapshot()})
    raise_alert(parts, "lag", SMS, evil)
    controls(parts).pause([SMS], None, author=evil, reason=evil)
    pauses(parts).pause("main", "", None, author=evil, reason=evil)
    for path in ("/lanes", f"/lanes/{SMS}", "/fleet", "/accounts", "/accounts/main", "/alerts"):
        page = lin.get(path)
        assert page.status_code == 200
        assert evil not in page.text, path
