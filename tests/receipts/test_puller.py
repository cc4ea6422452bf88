"""Pulling: nothing is asked for while what came before is not stored."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
import structlog

from backends.settings import ReceiptsSettings, Settings
from channels.channel import Failure, Phase
from idempotency.ledger import LedgerError, LedgerOutdated, LedgerUnavailable
from idempotency.receipts.rules import Receipt
from idempotency.receipts.sql import open_receipts
from idempotency.sql_ledger import SqlLedger
from receipts import puller as pull
from receipts.metrics import ReceiptMetrics
from receipts.parsers.tencent_sms import pulled
from receipts.puller import Puller, stop_all
from receipts.sources import load_sources
from sending.runtime.threads import ThreadGroup
from tests.idempotency.making import World

ACCOUNT = {
    "provider": "tencent_sms",
    "secret_id": "id",
    "secret_key": "key",
    "sdk_app_id": "1400006666",
}
EVERY_S = 10.0


def answer(count: int) -> httpx.Response:
    reports = [
        {"PhoneNumber": f"+8613800{n:06}", "SerialNo": str(n), "ReportStatus": "SUCCESS"}
        for n in range(count)
    ]
    return httpx.Response(
        200, content=json.dumps({"Response": {"PullSmsSendStatusSet": reports}}).encode()
    )


class Provider:
    """Gives these answers, one a question; notes what happened in which order."""

    def __init__(self, *answers: Any, away: int = 0, error: Exception | None = None) -> None:
        self.answers = list(answers)
        self.away = away
        self.error = error or LedgerUnavailable("away")
        self.seen: list[str] = []

    def send(self, request: Any) -> Any:
        assert request.headers["X-TC-Action"] == "PullSmsSendStatus"
        assert request.extensions["timeout"]["total"] > 0
        self.seen.append("asked")
        return self.answers.pop(0)

    def store(self, receipts: Sequence[Receipt]) -> int:
        if self.away:
            self.away -= 1
            self.seen.append("away")
            raise self.error
        self.seen.append(f"stored {len(receipts)}")
        return len(receipts)


def puller(provider: Provider) -> Puller:
    settings = Settings(
        accounts={"tencent": ACCOUNT},
        receipts=ReceiptsSettings(accounts={"tencent": {"pull": True}}),
    )
    return Puller(
        load_sources(settings)["tencent"],
        provider,
        provider.store,
        every_s=EVERY_S,
        on_stored=lambda: provider.seen.append("told"),
        metrics=ReceiptMetrics(),
    )


def test_a_full_answer_is_followed_by_the_next_question_at_once() -> None:
    provider = Provider(answer(100), answer(3))
    one = puller(provider)
    assert [one.run_once(), one.run_once()] == [0.0, EVERY_S]
    assert provider.seen == ["asked", "stored 100", "told", "asked", "stored 3", "told"]


def test_an_empty_queue_stores_nothing_and_waits() -> None:
    provider = Provider(answer(0))
    assert puller(provider).run_once() == EVERY_S
    assert provider.seen == ["asked"]


@pytest.mark.parametrize(
    "error",
    [LedgerUnavailable("away"), LedgerOutdated("no schema"), RuntimeError("a bug")],
    ids=["away", "outdated", "bug"],
)
def test_what_was_given_out_is_held_until_the_database_is_back(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "_FIRST_WAIT_S", 0.001)
    provider = Provider(answer(2), answer(0), away=3, error=error)
    one = puller(provider)
    one.run_once()
    one.run_once()
    assert provider.seen == ["asked", "away", "away", "away", "stored 2", "told", "asked"]


def test_receipts_are_held_while_their_table_is_away(
    world: World, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "_FIRST_WAIT_S", 0.001)
    receipts = open_receipts(ledger, world.settings, lambda: world.now)
    provider = Provider(answer(2))
    tries: list[Exception] = []

    def store(given: Sequence[Receipt]) -> int:
        try:
            return receipts.store(given)
        except LedgerError as exc:
            tries.append(exc)
            if len(tries) == 2:  # as at the end of a restore
                rename_table(ledger, "receipts_away", "receipts")
            raise

    monkeypatch.setattr(provider, "store", store)
    rename_table(ledger, "receipts", "receipts_away")
    assert puller(provider).run_once() == EVERY_S
    assert [type(one) for one in tries] == [LedgerOutdated, LedgerOutdated]
    assert world.rows("SELECT count(*) FROM receipts") == [(2,)]


def test_a_time_that_no_database_takes_costs_no_receipt(world: World, ledger: SqlLedger) -> None:
    receipts = open_receipts(ledger, world.settings, lambda: world.now)
    reports = json.loads(answer(2).content)["Response"]["PullSmsSendStatusSet"]
    reports[1]["UserReceiveTime"] = 10**18
    content = json.dumps({"Response": {"PullSmsSendStatusSet": reports}}).encode()
    parsed = pulled("tencent", content)
    assert receipts.store(parsed.receipts) == 2
    assert world.rows("SELECT at FROM receipts") == [(0,), (0,)]


def rename_table(ledger: SqlLedger, before: str, after: str) -> None:
    with ledger.database.connection() as connection:
        connection.execute(f"ALTER TABLE {before} RENAME TO {after}")


def test_one_report_that_cannot_be_read_costs_the_others_nothing() -> None:
    mixed = {
        "Response": {
            "PullSmsSendStatusSet": [
                {"SerialNo": 1},
                json.loads(answer(1).content)["Response"]["PullSmsSendStatusSet"][0],
            ]
        }
    }
    provider = Provider(httpx.Response(200, content=json.dumps(mixed).encode()))
    one = puller(provider)
    with structlog.testing.capture_logs() as entries:
        one.run_once()
    assert provider.seen == ["asked", "stored 1", "told"]
    left_out = one._metrics.unreadable.labels("tencent")._value.get()
    assert left_out == 1
    (told,) = [entry for entry in entries if entry["event"] == "receipts_unreadable"]
    assert (told["account"], told["receipts"]) == ("tencent", 1)


def test_a_full_answer_counts_what_cannot_be_read_in_it() -> None:
    reports = json.loads(answer(99).content)["Response"]["PullSmsSendStatusSet"]
    mixed = {"Response": {"PullSmsSendStatusSet": [*reports, {"SerialNo": 1}]}}
    provider = Provider(httpx.Response(200, content=json.dumps(mixed).encode()))
    assert puller(provider).run_once() == 0.0


def test_failures_make_the_questions_rarer_and_a_success_ends_that() -> None:
    lost = Failure(Phase.WRITTEN, "timeout")
    refused = httpx.Response(
        200, content=b'{"Response":{"Error":{"Code":"InternalError","Message":""}}}'
    )
    provider = Provider(lost, refused, httpx.Response(502, content=b"<html>"), answer(0), lost)
    one = puller(provider)
    assert [one.run_once() for _ in range(5)] == [20.0, 40.0, 60.0, EVERY_S, 20.0]


def test_a_provider_that_hangs_keeps_no_other_puller_from_its_end() -> None:
    """Each may wait for its answer: one after the other they would outlast the orchestrator's patience."""
    second = puller(Provider(answer(0)))
    ended: list[bool] = []

    class Hanging(Provider):
        def send(self, request: Any) -> Any:
            asked.set()
            thread = second._thread
            assert thread is not None
            thread.join(5.0)
            ended.append(not thread.is_alive())
            return super().send(request)

    asked, threads = threading.Event(), ThreadGroup()
    first = puller(Hanging(answer(0)))
    for one in (second, first):
        one.start(threads)
    assert asked.wait(5.0)
    stop_all([first, second])
    assert ended == [True]
    assert threads.failure is None
