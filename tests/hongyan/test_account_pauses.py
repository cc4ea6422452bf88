"""hongyan accounts pause, resume, pauses: an account in the fleet or on one worker, and who obeys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from backends.settings import DatabaseSettings, Settings
from hongyan.commands import accounts as accounts_command
from idempotency.fleet.snapshots import AccountSnapshot, ProcessSnapshot, encoded
from idempotency.sql_ledger import SqlLedger, open_ledger
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import worker


@pytest.fixture
def ledger(folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_ACCOUNTS__MAIN__PROVIDER", "webhook")
    monkeypatch.setenv("HONGYAN_ACCOUNTS__MAIN__ENDPOINT", "http://127.0.0.1:9/")
    monkeypatch.setattr(accounts_command, "OBEYED_S", 0.0)
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def beat(ledger: SqlLedger, name: str, *, paused: bool) -> None:
    lease = ledger.register(msgspec.structs.replace(worker(name), lease_ms=600_000))
    shown = ProcessSnapshot(accounts={"main": AccountSnapshot(paused=paused)})
    assert ledger.heartbeat(lease, "RUNNING", encoded(shown))


def test_an_account_is_paused_for_a_time_and_resumed(ledger: SqlLedger, hongyan: Run) -> None:
    asked = ("--reason", "late", "--for", "30m", "--author", "lin")
    said = hongyan("accounts", "pause", "main", *asked)
    assert (said.code, said.out.strip()) == (0, "main is paused in the fleet"), said.err
    (pause,) = ledger.account_pauses().pauses()
    assert (pause.author, pause.reason, pause.worker) == ("lin", "late", "")
    assert pause.until == pause.paused_at + 1_800_000
    assert "by lin: late" in hongyan("accounts", "pauses").out
    assert hongyan("accounts", "pauses", "--json").json[0]["account"] == "main"
    again = hongyan("accounts", "pause", "main", "--reason", "x")
    assert "replaces the pause of lin (late)" in again.err
    assert hongyan("accounts", "resume", "main", "--reason", "mended").code == 0
    assert hongyan("accounts", "pauses").out.strip() == "no account is paused"
    twice = hongyan("accounts", "resume", "main")
    assert (twice.code, "is not paused in the fleet" in twice.err) == (1, True)


def test_a_process_that_does_not_obey_is_named_and_the_order_stays(
    ledger: SqlLedger, hongyan: Run
) -> None:
    beat(ledger, "w1", paused=False)
    beat(ledger, "w2", paused=False)
    said = hongyan("accounts", "pause", "main", "--worker", "w2", "--reason", "x", "--json")
    assert said.code == 1
    assert "w2 did not report" in said.err
    assert said.json["not_obeying"] == ["w2"], "the pause is not for w1"
    assert ledger.controls().orders("w2", 0).accounts == {"main": None}
    beat(ledger, "w2", paused=True)
    assert hongyan("accounts", "resume", "main", "--worker", "w2").code == 1


def test_a_pause_needs_a_reason_a_known_account_and_a_time_that_passes(
    ledger: SqlLedger, hongyan: Run
) -> None:
    for asked, text in (
        (("main",), "--reason TEXT"),
        (("main", "--reason", "x", "--for", "0s"), "a pause lasts longer"),
        (("other", "--reason", "x"), "there is no account 'other'; hongyan.toml has main"),
    ):
        said = hongyan("accounts", "pause", *asked)
        assert (said.code, text in said.err) == (2, True), said.err
    assert ledger.account_pauses().history() == []
