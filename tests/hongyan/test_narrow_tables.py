"""Every listing on a terminal of 80 columns: no line is longer, and no value is cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from backends.kafka.topics import TopicReport
from backends.settings import DatabaseSettings, Settings
from hongyan import terminal
from hongyan.commands import dead, topics
from hongyan.tables import listing
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.states import Event
from sending.alerts.rules import parked
from sending.dead_letters.reader import DeadLetter
from tests.hongyan.conftest import Run, make_ledger
from tests.idempotency.making import settle, worker
from tests.idempotency.test_lines import LANES, head_and_followers

WIDTH = 80
FILE = """\
[trace]
kafka = false
[accounts.a-webhook-with-a-long-name]
provider = "webhook"
endpoint = "https://hooks.example.com/notifications/of/a/long/path/send"
rate_per_s = 1000
"""
TEMPLATES = """\
[templates."order-paid-with-a-long-name"]
channel = "email"
description = "Tells a customer that the order was paid and when the parcel will be sent"
subject = "Order {{ number }}"
text = "Order {{ number }} is paid."
[templates."order-paid-with-a-long-name".variables]
number = { type = "string" }
"""
COMMANDS = [
    ("accounts", "list"),
    ("alerts", "list"),
    ("config", "show", "--all"),
    ("deliveries", "list"),
    ("policy", "history"),
    ("policy", "show"),
    ("recall", "--biz-id", "order-1", "--wait", "0"),
    ("status",),
    ("templates", "show"),
    ("trace", "--help"),
]


@pytest.fixture
def ledger(folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    """A ledger with something to show in each listing, on a narrow terminal."""
    monkeypatch.setattr(terminal, "_PIPE_WIDTH", WIDTH)
    (folder / "hongyan.toml").write_text(FILE)
    (folder / "templates.toml").write_text(TEMPLATES)
    (folder / "policy.toml").write_text('[lanes."sms.*"]\nthreads = 33\n')
    make_ledger()
    assert (
        hongyan("policy", "apply", "policy.toml", "--author", "a person of a long name").code == 0
    )
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    ledger.register(worker("worker-0.of-a-long-host-name.example.com-1234-5f3a"))
    head, *_ = head_and_followers(ledger, "customer 17", 4)
    settle(ledger, head, Event.UNKNOWN, LANES, reason="timeout")
    ledger.alerting().note([parked("sms.notice", "unproven").raised(3, 0)], 60_000, "w1")
    yield ledger
    ledger.close()


def fits(text: str) -> None:
    assert text.strip()
    for line in text.splitlines():
        assert cell_len(line) <= WIDTH, line
        assert "…" not in line


def test_every_listing_fits(ledger: SqlLedger, hongyan: Run) -> None:
    for command in COMMANDS:
        said = hongyan(*command)
        assert said.code in (0, 1), (command, said)
        if "--help" not in command:
            fits(said.out)


def test_nothing_of_a_key_or_an_id_is_lost(ledger: SqlLedger, hongyan: Run) -> None:
    found = hongyan("deliveries", "list", "--json").json
    shown = hongyan("deliveries", "list").out
    assert found
    for one in found:
        assert one["delivery_key"] in shown
        assert one["message_id"] in shown
    assert "worker-0.of-a-long-host-name.example.com-1234-5f3a" in hongyan("status").out


def test_listings_of_kafka_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "_PIPE_WIDTH", WIDTH)
    terminal.out.cache_clear()
    name = "hongyan.dispatch.wechat_official.verification"
    report = TopicReport(name=name, status="created", partitions=12, replication=3)
    topics._show([report], dry_run=False)
    dead._table([letter()])
    terminal.out.cache_clear()
    text = capsys.readouterr().out
    fits(text)
    assert name in text
    assert f"{name}/11/123456789" in text


def letter() -> DeadLetter:
    return DeadLetter(
        place="hongyan.dead/0/1",
        origin="hongyan.dispatch.wechat_official.verification/11/123456789",
        at=1_795_000_000_000,
        reason="unknown_account",
        detail="a sentence that explains at length what is wrong with the notification",
        lane="wechat_official.verification",
        key=None,
        value=None,
        headers=[("hongyan-id", b"0192f3c47b1a7cc0a1b2c3d4e5f60718")],
        truncated=0,
    )


def rendered(width: int) -> str:
    console = Console(width=width, record=True, highlight=False)
    table = listing(("NAME", "COUNT", "TEXT", "EMPTY"), right=("COUNT",), whole=("NAME",))
    table.add_row("n" * 30, "17", "some words that may go on to the next line of a cell", "")
    table.add_row("[b]short[/]", "1,000", Text.from_markup("[b]styled[/]"), "x")
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_a_table_that_fits_is_a_table() -> None:
    lines = [line.rstrip() for line in rendered(120).splitlines()]
    assert lines[0].split() == ["NAME", "COUNT", "TEXT", "EMPTY"]
    assert lines[1].split()[:2] == ["n" * 30, "17"]
    assert lines[2].split() == ["[b]short[/]", "1,000", "styled", "x"]


def test_a_table_that_does_not_fit_is_a_block_of_lines_per_row() -> None:
    lines = [line.rstrip() for line in rendered(40).splitlines()]
    assert lines[0] == "n" * 30
    assert lines[1:4] == [
        "  count 17",
        "  text some words that may go on to the",
        "  next line of a cell",
    ]
    assert lines[4:] == ["[b]short[/]", "  count 1,000  text styled  empty x"]
