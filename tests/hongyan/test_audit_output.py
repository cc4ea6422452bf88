"""The table of `hongyan spark audit` fits 80 columns, and each difference has its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from hongyan import terminal
from hongyan.output.audit import audit_table, double_lines, explanations
from hongyan.spark.audit import show
from idempotency.lost.audits import Audit, Audits, StoredDouble, put_audits
from idempotency.sql_ledger import clock_of, open_ledger
from tests.harness.databases import upgraded

HOUR_MS = 3_600_000
HOUR = 498_611 * HOUR_MS
COUNTS = {
    "kafka": 4_166_667,
    "ledger": 4_166_600,
    "dead": 60,
    "waiting": 0,
    "traced": 4_166_666,
    "sent": 4_166_000,
    "receipts": 4_100_000,
    "holes": 7,
    "explained": {"ledger": {"found": 5, "elsewhere": 1}, "trace": {"gap": 1}},
    "open": {"ledger": 1},
}
ATTEMPT = {"answered_at": HOUR, "attempt": 1, "worker": "w1", "account": "main", "provider_id": "p"}


def lines_of(*audits: Audit) -> list[str]:
    console = Console(width=80, highlight=False)
    with console.capture() as captured:
        console.print(audit_table(audits))
    return captured.get().splitlines()


@pytest.mark.parametrize("lane", ["sms.notice", "wechat_official.verification"])
def test_the_table_fits_80_columns_and_cuts_no_number(lane: str) -> None:
    lines = lines_of(Audit(HOUR, lane, COUNTS, 12_345))
    assert max(map(cell_len, lines)) <= 80
    shown = " ".join(lines)
    assert lane in shown
    for number in ("4,166,667", "4,166,600", "60", "4,166,666", "4,166,000", "12,345"):
        assert number in shown


def test_small_counts_are_a_row_and_a_lane_without_a_ledger_has_no_number() -> None:
    small = COUNTS | {"kafka": 5, "ledger": None, "traced": 5, "sent": 5, "receipts": 5}
    head, row = lines_of(Audit(HOUR, "sms.notice", small, 0))
    assert head.split()[:4] == ["hour", "lane", "kafka", "ledger"]
    assert row.split()[2:] == ["sms.notice", "5", "–", "60", "0", "5", "5", "5", "0"]


def test_every_difference_has_its_causes() -> None:
    (line,) = explanations([Audit(HOUR, "sms.notice", COUNTS, 1), Audit(HOUR, "x", {}, 0)])
    assert line.endswith(
        "sms.notice  ledger: 5 found, 1 elsewhere; trace: 1 gap; unexplained: 1 ledger; gone before"
        " they were read: 7 offsets"
    )


def test_a_double_send_shows_both_attempts() -> None:
    second = ATTEMPT | {"attempt": 2, "worker": "w2", "provider_id": "q"}
    head, one, two = double_lines([StoredDouble("k", "sms.notice", HOUR, [ATTEMPT, second])])
    assert head == "sent twice  sms.notice  k"
    assert one.endswith("attempt 1  by w1  account main  provider id p")
    assert two.endswith("attempt 2  by w2  account main  provider id q")


def test_the_newest_day_of_audits_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(database=DatabaseSettings(url=f"sqlite:///{tmp_path}/l.db"))
    upgraded(settings)
    ledger = open_ledger(settings)
    terminal.out.cache_clear()
    show(ledger.database)
    assert "no hour is audited yet" in capsys.readouterr().out
    terminal.out.cache_clear()
    with ledger.database.begin() as connection:
        put_audits(
            connection,
            1,
            [Audit(HOUR, "new.lane", COUNTS, 1), Audit(HOUR - 24 * HOUR_MS, "old.lane", COUNTS, 1)],
        )
        connection.execute(
            text("INSERT INTO trace_doubles VALUES ('key', 'new.lane', :at, :attempts, 1)"),
            {"at": HOUR + 1, "attempts": '[{"attempt":1,"at":5}]'},
        )
    show(ledger.database)
    shown = capsys.readouterr().out
    assert "new.lane" in shown
    assert "old.lane" not in shown
    assert "sent twice  new.lane  key" in shown
    assert len(Audits(ledger.database, clock_of(ledger.database)).doubles(HOUR + 2, 5)) == 0
    ledger.close()
    terminal.out.cache_clear()
