"""Pulling: nothing is asked for while what came before is not stored."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
import structlog

from backends.settings import ReceiptsSettings, Settings
from channels.channel import Failure, Phase
from idempotency.ledger import LedgerUnavailable
from idempotency.receipts.rules import Receipt
from receipts import puller as pull
from receipts.metrics import ReceiptMetrics
from receipts.puller import Puller
from receipts.sources import load_sources

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

    def __init__(self, *answers: Any, away: int = 0) -> None:
        self.answers = list(answers)
        self.away = away
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
            raise LedgerUnavailable("away")
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


def test_what_was_given_out_is_held_until_the_database_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pull, "_FIRST_WAIT_S", 0.001)
    provider = Provider(answer(2), answer(0), away=3)
    one = puller(provider)
    one.run_once()
    one.run_once()
    assert provider.seen == ["asked", "away", "away", "away", "stored 2", "told", "asked"]


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
