"""hongyan alerts: what is open, and who keeps it quiet."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import open_ledger
from sending.alerts.rules import parked
from tests.hongyan.conftest import Run, make_ledger


@pytest.fixture
def ready(folder: Path, hongyan: Run) -> Path:
    make_ledger()
    return folder


def note(folder: Path) -> None:
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    for count in (3, 4):
        ledger.alerting().note([parked("sms.notice", "unproven").raised(count, 0)], 60_000, "w1")
    ledger.close()


def test_open_alerts_are_listed_with_their_runbook(ready: Path, hongyan: Run) -> None:
    assert hongyan("alerts", "list").out == "no open alerts\n"
    note(ready)
    said = hongyan("alerts", "list")
    assert "parked" in said.out
    assert "docs/runbook.md#parked" in said.out
    (alert,) = hongyan("alerts", "list", "--json").json["alerts"]
    assert (alert["rule"], alert["subject"]) == ("parked", "sms.notice unproven")
    assert (alert["state"], alert["kept"], alert["runbook"]) == (
        "firing",
        4,
        "docs/runbook.md#parked",
    )


def test_a_silence_is_made_listed_and_ended(ready: Path, hongyan: Run) -> None:
    note(ready)
    named = ("parked", "sms.notice unproven")
    said = hongyan(
        "alerts", "silence", *named, "--for", "2h", "--reason", "known", "--author", "lin"
    )
    assert said.code == 0
    assert "silenced until" in said.out
    assert said.out.rstrip().endswith("by lin: known")
    listed = hongyan("alerts", "list", "--json").json
    (silence,) = listed["silences"]
    assert (silence["rule"], silence["subject"], silence["author"]) == (*named, "lin")
    assert silence["until"] - silence["made_at"] == 7_200_000
    (alert,) = listed["alerts"]
    assert alert["silenced_why"] == "known"
    assert "known" in hongyan("alerts", "list").out
    assert hongyan("alerts", "unsilence", *named).code == 0
    again = hongyan("alerts", "unsilence", *named)
    assert again.code == 1
    assert "there is no silence of parked 'sms.notice unproven'" in again.err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("parkd", "--for", "2h", "--reason", "x"), "there is no rule 'parkd'"),
        (("parked", "--reason", "x"), "give --for TIME and --reason TEXT"),
        (("parked", "--for", "2h"), "give --for TIME and --reason TEXT"),
        (("parked", "--for", "soon", "--reason", "x"), "--for 'soon'"),
        (("parked", "--for", "0m", "--reason", "x"), "lasts longer"),
    ],
)
def test_a_silence_without_an_end_a_reason_or_a_rule_is_refused(
    ready: Path, hongyan: Run, flags: tuple[str, ...], said: str
) -> None:
    answer = hongyan("alerts", "silence", *flags)
    assert answer.code == 2
    assert said in answer.err
