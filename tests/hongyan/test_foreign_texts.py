"""Texts that others chose are printed as they are: brackets are no styles, and `:key:` is no picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from backends.settings import DatabaseSettings, Settings
from hongyan import terminal
from idempotency.payload_cipher import PayloadCipher
from idempotency.sql_ledger import SqlLedger, open_ledger
from lookback.store import LookbackStore
from message.lookback import PrepareRecord
from message.states import Event
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import claimed, delivery, settle
from tests.lookback.making import KIND, TERMS, tx_at

LEDGER = "ledger.db"
IDS = ("orders[/2026]/1001", "batch[a1]-7", "order:key:17", "[bold]x[/bold]", "back\\[slash]\\")


@pytest.fixture
def ledger(folder: Path) -> Iterator[SqlLedger]:
    (folder / "hongyan.toml").write_text(
        f'[database]\nurl = "sqlite:///{LEDGER}"\n[trace]\nkafka = false\n'
    )
    make_ledger()
    settings = Settings(database=DatabaseSettings(url=f"sqlite:///{LEDGER}"), base=str(folder))
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


@pytest.mark.parametrize("name", IDS)
def test_a_recall_shows_the_ids_that_it_cancelled(
    ledger: SqlLedger, hongyan: Run, name: str
) -> None:
    (item,) = claimed(ledger, delivery(id=name, biz_id=name))
    settle(ledger, item, Event.NOT_SENT, reason="busy")
    said = hongyan("recall", "--biz-id", name, "--wait", "0")
    assert (said.code, said.err) == (0, "")
    assert name in said.out
    assert "cancelled" in said.out


def test_transactions_that_wait_are_listed_by_their_business_ids(
    ledger: SqlLedger, hongyan: Run
) -> None:
    terms = replace(TERMS, check="", immunity_ms=0, deadline_ms=0, grace_ms=0)
    store = LookbackStore(ledger.database, ledger.clock, PayloadCipher(""), {KIND: terms})
    for name in IDS:
        tx_id = tx_at(ledger.now_ms() - 1_000)
        topic = "hongyan.dispatch.sms.notice"
        one = PrepareRecord(biz_type=KIND, biz_id=name, tx_id=tx_id, topic=topic, payload=b"x")
        store.take([one])
    store.sweep()
    said = hongyan("lookback", "unresolved", "list")
    assert (said.code, said.err) == (0, "")
    assert [name for name in IDS if name not in said.out] == []


@pytest.mark.parametrize("author", IDS)
def test_an_author_is_shown_as_it_was_given(
    ledger: SqlLedger, hongyan: Run, folder: Path, author: str
) -> None:
    (folder / "policy.toml").write_text('[lanes."sms.*"]\nthreads = 33\n')
    applied = hongyan("policy", "apply", "policy.toml", "--author", author)
    assert (applied.code, applied.err) == (0, "")
    assert f"by {author}" in applied.out
    assert author in hongyan("policy", "history").out


@pytest.mark.parametrize("text", IDS)
def test_a_line_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], text: str) -> None:
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    terminal.out().print(text)
    terminal.err().print(text)
    terminal.out.cache_clear()
    terminal.err.cache_clear()
    assert tuple(capsys.readouterr()) == (f"{text}\n", f"{text}\n")
