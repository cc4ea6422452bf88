"""`hongyan campaign`: the life of a campaign at the command line, and the sentences of what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from backends.settings import load
from idempotency.sql_ledger import SqlLedger, open_ledger
from producer.campaigns import creation
from producer.campaigns.run_store import runs_of
from producer.campaigns.store import campaigns_of
from tests.harness.databases import upgraded
from tests.hongyan.conftest import Run

NEW = ("campaign", "new", "crowd.csv", "--lane", "sms.marketing", "--template", "sale")
WHY = ("--reason", "autumn sale", "--author", "li@ops")
TEMPLATES = """
[templates.sale]
channel = "sms"
variables.name = {type = "string"}
variables.amount = {type = "int"}
content.text = "Dear {{ name }}, {{ amount }} off"
"""


@pytest.fixture
def ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlLedger]:
    monkeypatch.setenv("HONGYAN_TRACE__KAFKA", "false")
    (folder / "templates.toml").write_text(TEMPLATES)
    (folder / "crowd.csv").write_text(
        "receiver,nick,amount\n+8613800000001,Li,5\n+8613800000002,Wang,x\n"
    )
    settings = load()
    upgraded(settings)
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def test_a_campaign_is_made_started_paused_resumed_and_cancelled(
    ledger: SqlLedger, hongyan: Run
) -> None:
    made = hongyan(*NEW, "--map", "name=nick", *WHY)
    assert made.code == 0
    assert "1 of the first 2 rows are bad" in made.err
    assert "line 3:" in made.err
    (campaign,) = (one.id for one in campaigns_of(ledger).newest(10))
    assert f"hongyan campaign start {campaign}" in made.out
    for order, state in (
        *(("start", "SCHEDULED"), ("pause", "PAUSED"), ("resume", "SCHEDULED")),
        ("cancel", "CANCELLED"),
    ):
        done = hongyan("campaign", order, campaign, *WHY)
        assert (done.code, done.out.split()[1].rstrip(";")) == (0, state)
    again = hongyan("campaign", "resume", campaign, *WHY)
    assert again.code == 1
    assert "is CANCELLED, and not paused" in again.err
    shown = hongyan("campaign", "show", campaign, "--json").json
    assert (shown["state"], shown["crowd"]["rows"], shown["runs"]) == ("CANCELLED", 2, [])
    assert hongyan("campaign", "list", "--json").json[0]["id"] == campaign
    assert campaign in hongyan("campaign", "list").out
    assert "2 rows" in hongyan("campaign", "show", campaign).out


def test_a_cron_shows_its_next_time_on_the_zones_clock(ledger: SqlLedger, hongyan: Run) -> None:
    cron = ("--cron", "0 9 * * *", "--zone", "Europe/Berlin", "--hours", "09:00-21:00")
    made = hongyan(*NEW, "--set", "name=you", *cron, *WHY, "--json").json["campaign"]
    done = hongyan("campaign", "start", made["id"], *WHY)
    assert "09:00:00 CE" in done.out
    assert "within 09:00-21:00 Europe/Berlin" in hongyan("campaign", "show", made["id"]).out


def test_bad_rows_of_the_last_run_are_csv(ledger: SqlLedger, hongyan: Run) -> None:
    made = hongyan(*NEW, "--set", "name=you", *WHY, "--json").json["campaign"]["id"]
    hongyan("campaign", "start", made, *WHY)
    campaign = campaigns_of(ledger).get(made)
    assert campaign is not None
    run = runs_of(ledger).open(campaign, 1_000).run_id
    with ledger.database.begin() as connection:
        insert = "INSERT INTO campaign_bad_rows VALUES (:run, 3, 'variable_type', 'amount: expected int')"
        connection.execute(text(insert), {"run": run})
    said = hongyan("campaign", "bad-rows", made)
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert rows == [{"line": "3", "code": "variable_type", "detail": "amount: expected int"}]
    assert hongyan("campaign", "bad-rows", made, "--json").json[0]["line"] == 3


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ((), 1, "wants 'name'"),
        (("--map", "name=nick", "--map", "shop=nick"), 1, "has no variable 'shop'"),
        (("--map", "name=title"), 1, "has no column 'title'"),
        (("--set", "name=you", "--at", "2020-01-01 09:00"), 1, "the time is over"),
        (("--set", "name=you", "--at", "tomorrow"), 1, "is no time"),
        (("--set", "name=you", "--at", "0001-01-01"), 1, "give a year from 2000 to 9998"),
        (("--set", "name=you", "--at", "9999-12-31 23:59-12:00"), 1, "from 2000 to 9998"),
        (("--set", "name=you", "--zone", "Mars/Base"), 1, "there is no time zone"),
        (("--at", "2030-01-01 09:00", "--cron", "0 9 * * *"), 2, "either --at or --cron"),
        (("--encoding", "latin1"), 2, "--encoding is utf-8 or gb18030"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    ledger: SqlLedger, hongyan: Run, flags: tuple[str, ...], code: int, says: str
) -> None:
    said = hongyan(*NEW, *flags, *WHY)
    assert said.code == code
    assert says in said.err
    assert not campaigns_of(ledger).newest(10)


def test_orders_want_a_reason_and_a_known_campaign(ledger: SqlLedger, hongyan: Run) -> None:
    assert hongyan("campaign", "start", "cm-1").code == 2
    unknown = hongyan("campaign", "start", "cm-1", *WHY)
    assert unknown.code == 1
    assert "there is no campaign 'cm-1'" in unknown.err


def test_a_column_that_only_a_later_row_has_may_be_named(
    ledger: SqlLedger, hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(creation, "CHECKED_ROWS", 2)
    rows = [{"receiver": f"+8613800000{n:03d}", "name": "n", "amount": 1} for n in range(9)]
    rows[5] |= {"nick": "Li", "order": "o-1"}
    (folder / "crowd.jsonl").write_text("\n".join(map(json.dumps, rows)))
    new = ("campaign", "new", "crowd.jsonl", *NEW[3:])
    made = hongyan(*new, "--biz-id", "order", *WHY)
    assert made.code == 0, made.err
    refused = hongyan(*new, "--map", "name=title", *WHY)
    assert "has no column 'title'; it has receiver, name, amount, nick, order" in refused.err


def test_the_same_order_under_a_name_is_one_campaign_and_another_is_refused(
    ledger: SqlLedger, hongyan: Run, folder: Path
) -> None:
    named = (*NEW, "--campaign", "weekly", "--set", "name=you", *WHY)
    assert hongyan(*named).code == 0
    again = hongyan(*NEW, "--campaign", "weekly", "--set", "name=you", "--reason", "lost answer")
    assert (again.code, again.out.split()[0]) == (0, "weekly")
    (folder / "same.csv").write_bytes((folder / "crowd.csv").read_bytes())
    moved = ("campaign", "new", "same.csv", *named[3:])
    assert hongyan(*moved).code == 0
    for further, other in (
        (("--set", "name=me"), "other columns"),
        (("--cron", "0 9 * * *"), "other times"),
        (("--zone", "Europe/Berlin"), "other times"),
        (("--rate", "3"), "other limits"),
        (("--once-per-receiver",), "other limits"),
        (("--lane", "sms.notice"), "another lane"),
    ):
        refused = hongyan(*named, *further)
        assert refused.code == 1
        assert f"there is a campaign weekly already, with {other}" in refused.err
    with (folder / "crowd.csv").open("a") as file:
        file.write("+8613800000003,Zhao,5\n")
    assert "with another crowd file" in hongyan(*named).err
    (stored,) = campaigns_of(ledger).newest(10)
    assert (stored.crowd.rows, stored.reason) == (2, "autumn sale")


@pytest.mark.parametrize("name", [".", "..", "-x", "a b", "a/b", "wöchentlich", "x" * 65, "a\n"])
def test_a_name_that_does_not_fit_is_one_sentence(
    ledger: SqlLedger, hongyan: Run, name: str
) -> None:
    said = hongyan(*NEW, f"--campaign={name}", "--set", "name=you", *WHY)
    assert said.code == 1
    assert "is no name of a campaign: write at most 64 letters" in " ".join(said.err.split())
    assert not campaigns_of(ledger).newest(10)


def test_a_time_that_no_clock_shows_does_not_end_the_listing(
    ledger: SqlLedger, hongyan: Run
) -> None:
    """An older program took it."""
    made = hongyan(*NEW, "--set", "name=you", *WHY, "--json").json["campaign"]["id"]
    hongyan("campaign", "start", made, *WHY)
    with ledger.database.begin() as connection:
        connection.execute(text("UPDATE campaigns SET next_at = 253402343940000"))
    listed = hongyan("campaign", "list", "--json")
    assert listed.code == 0
    shown = hongyan("campaign", "list")
    assert shown.code == 0
    assert "253402343940000 ms" in " ".join(shown.out.split())
