"""The endpoints as a provider meets them, over a real ledger."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from litestar.testing import TestClient
from structlog.testing import capture_logs

from backends.settings import ReceiptsSettings, Settings, SettingsError
from idempotency.ledger import LedgerUnavailable
from idempotency.receipts.rules import Receipt, ReceiptState
from idempotency.receipts.sql import open_receipts
from idempotency.receipts.store import Receipts
from idempotency.sql_ledger import SqlLedger
from message.states import Event
from receipts.group_commit import MOST, Full, GroupCommit
from receipts.http_app import MAX_BODY, ReceiptEndpoint, build_app
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from receipts.sources import load_sources
from tests.idempotency.making import World, claimed, delivery, settle
from tracing.events import NoRecorder, TraceEvent

ACCOUNTS = {
    "ali": {
        "provider": "aliyun_sms",
        "access_key_id": "id",
        "access_key_secret": "key",
        "sign_name": "x",
    },
    "hook": {"provider": "webhook", "endpoint": "https://example.com/hook"},
}
SECRETS = {"ali": {"secret": "s3cret-of-ali"}}
REPORT = {
    "phone_number": "13800000001",
    "success": True,
    "biz_id": "biz-1",
    "report_time": "2017-01-01 00:00:00",
}


class Recorded(NoRecorder):
    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.events += events


class Parts:
    """The process's parts without its process; the matcher goes round when a test says so."""

    def __init__(self, world: World, ledger: SqlLedger) -> None:
        settings = Settings(accounts=ACCOUNTS, receipts=ReceiptsSettings(accounts=SECRETS))
        self.receipts: Receipts = open_receipts(ledger, world.settings, lambda: world.now)
        self.metrics, self.recorder, self.away = ReceiptMetrics(), Recorded(), False
        self.matcher = Matcher(self.receipts, self.recorder, self.metrics, every_s=1, keep_days=1)
        self.metrics.show_waiting(self.matcher.waiting)
        intake = GroupCommit(self.store, self.matcher.wake, self.metrics)
        self.desk = ReceiptEndpoint(load_sources(settings), intake, self.metrics)
        self.client = TestClient(build_app(self.desk, self.matcher, self.metrics))

    def store(self, receipts: Sequence[Receipt]) -> int:
        if self.away:
            raise LedgerUnavailable("the database is away")
        return self.receipts.store(receipts)

    def push(self, *reports: Any, account: str = "ali", secret: str = "s3cret-of-ali") -> Any:
        return self.client.post(f"/receipts/{account}", params={"secret": secret}, json=reports)


@pytest.fixture
def parts(world: World, ledger: SqlLedger) -> Iterator[Parts]:
    parts = Parts(world, ledger)
    with parts.client:
        yield parts


def test_a_push_is_answered_once_it_is_durable_and_moves_its_delivery(
    parts: Parts, world: World, ledger: SqlLedger
) -> None:
    (item,) = claimed(ledger, delivery(biz_id="order-1"))
    item.account = "ali"
    settle(ledger, item, Event.ACCEPTED, provider_id="biz-1")
    answer = parts.push(REPORT)
    assert (answer.status_code, answer.json()) == (200, {"code": 0, "msg": "接收成功"})
    assert world.rows("SELECT count(*) FROM receipts") == [(1,)]
    parts.matcher.run_once()
    assert world.states() == {item.key: "DELIVERED"}
    (event,) = parts.recorder.events
    assert (event.stage, event.state, event.biz_id) == ("receipt", "DELIVERED", "order-1")
    assert event.receiver == "+86138***0001"


@pytest.mark.parametrize("secret", ["", "wrong", "s3cret-of-al"])
def test_without_the_secret_nothing_is_kept(parts: Parts, world: World, secret: str) -> None:
    assert parts.push(REPORT, secret=secret).status_code == 401
    assert world.rows("SELECT count(*) FROM receipts") == [(0,)]


def test_accounts_that_take_no_receipts_are_not_found(parts: Parts) -> None:
    assert parts.push(REPORT, account="nobody").status_code == 404
    assert parts.push(REPORT, account="hook").status_code == 404


def test_what_cannot_be_read_is_answered_with_a_sentence(parts: Parts) -> None:
    answer = parts.client.post("/receipts/ali?secret=s3cret-of-ali", content=b"{")
    assert answer.status_code == 400
    assert "JSON list" in answer.json()["error"]


def test_a_body_over_the_limit_is_refused_unread(parts: Parts) -> None:
    answer = parts.client.post("/receipts/ali?secret=s3cret-of-ali", content=b" " * (MAX_BODY + 1))
    assert answer.status_code == 413


def test_while_the_database_is_away_providers_are_asked_to_come_again(
    parts: Parts, world: World
) -> None:
    parts.away = True
    answer = parts.push(REPORT)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    parts.away = False
    assert parts.push(REPORT).status_code == 200
    assert world.rows("SELECT count(*) FROM receipts") == [(1,)]


def test_refusals_are_logged_once_a_minute_without_a_secret_or_a_receiver(parts: Parts) -> None:
    with capture_logs() as logs:
        for _ in range(20):
            parts.push(REPORT, secret="stolen-s3cret")
        parts.push({"phone_number": "13800000001", "biz_id": 7}, REPORT)
    assert [entry["event"] for entry in logs] == ["push_refused", "entries_unreadable"]
    for hidden in ("s3cret", "stolen", "13800000001"):
        assert hidden not in str(logs)


def test_health_and_metrics_tell_how_it_goes(parts: Parts) -> None:
    parts.push(REPORT)
    parts.matcher.run_once()
    assert parts.client.get("/healthz").status_code == 200
    assert parts.client.get("/readyz").status_code == 200
    shown = parts.client.get("/metrics").text
    assert 'hongyan_receipts_received_total{account="ali",said="DELIVERED"} 1.0' in shown
    assert "hongyan_receipts_waiting 1.0" in shown
    parts.matcher.away = "no route"
    assert parts.client.get("/readyz").status_code == 503


def test_concurrent_pushes_share_statements() -> None:
    sizes: list[int] = []
    first, held = threading.Event(), threading.Event()

    def store(receipts: Sequence[Receipt]) -> int:
        sizes.append(len(receipts))
        first.set()
        assert held.wait(10)
        return len(receipts)

    async def run() -> None:
        intake = GroupCommit(store, lambda: None, ReceiptMetrics())
        pushes = [asyncio.create_task(intake.keep([Receipt("a", ReceiptState.SENT, "0")]))]
        await asyncio.to_thread(first.wait, 10)
        receipts = [[Receipt("a", ReceiptState.SENT, str(n))] * 3 for n in range(1, 101)]
        pushes += [asyncio.create_task(intake.keep(one)) for one in receipts]
        await asyncio.sleep(0)
        assert not any(one.done() for one in pushes)
        held.set()
        await asyncio.gather(*pushes)

    asyncio.run(run())
    assert sizes == [1, 300]


def test_a_statement_that_fails_is_told_to_every_push_and_the_next_one_runs() -> None:
    outcomes = iter([LedgerUnavailable("away"), None])

    def store(receipts: Sequence[Receipt]) -> int:
        if (failed := next(outcomes)) is not None:
            raise failed
        return len(receipts)

    async def run() -> None:
        intake = GroupCommit(store, lambda: None, ReceiptMetrics())
        one = [Receipt("a", ReceiptState.SENT, "1")]
        both = await asyncio.gather(intake.keep(one), intake.keep(one), return_exceptions=True)
        assert [type(result) for result in both] == [LedgerUnavailable] * 2
        await intake.keep(one)
        with pytest.raises(Full):
            await intake.keep(one * (MOST + 1))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({}, "name the accounts"),
        ({"nobody": {"secret": "x"}}, "receipts.accounts.nobody: there is no account"),
        ({"hook": {"secret": "x"}}, "webhook sends no receipts"),
        ({"ali": {}}, "receipts.accounts.ali: object missing required field secret"),
        ({"ali": {"secret": 7}}, "receipts.accounts.ali.secret: must be a text"),
        ({"ali": {"secret": " "}}, "receipts.accounts.ali.secret: must be a text"),
        ({"ali": {"secret": "hidden", "more": "x"}}, "unknown field more"),
        ({"ali": {"pull": True}}, "receipts.accounts.ali.pull: only tencent_sms"),
        ({"ali": {"secret": "hidden", "pull": "maybe"}}, "must be true or false"),
    ],
)
def test_what_is_wrong_with_the_configuration_is_named_by_its_key(
    tables: dict[str, Any], said: str
) -> None:
    settings = Settings(accounts=ACCOUNTS, receipts=ReceiptsSettings(accounts=tables))
    with pytest.raises(SettingsError, match=r"receipts\.accounts") as caught:
        load_sources(settings)
    assert said in str(caught.value)
    assert "hidden" not in str(caught.value)
