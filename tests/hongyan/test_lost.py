"""hongyan lost: what was found, and a person's orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from idempotency.sql_ledger import SqlLedger, open_ledger
from tests.hongyan.conftest import Run, make_ledger

KEY = "0192f3c47b1a7cc0a1b2c3d4e5f60718"


@pytest.fixture
def ledger(folder: Path, hongyan: Run) -> Iterator[SqlLedger]:
    make_ledger()
    settings = Settings(database=DatabaseSettings(url="sqlite:///hongyan.db"), base=str(folder))
    ledger = open_ledger(settings)
    yield ledger
    ledger.close()


def found(ledger: SqlLedger, number: int, **fields: Any) -> str:
    """Returns the subject of a new finding."""
    row = {
        "subject": f"{number:032x}",
        "cause": "passed",
        "lane": "sms.notice",
        "message_id": f"m{number}",
        "receiver": "+861****01",
        "origin": f"t/0/{number}",
        "certain": 1,
        "detail": "below the committed offset",
        "body": b"secret",
        "first_run": 1,
        "last_run": 1,
        "found_at": ledger.now_ms(),
        "status": "ASKED",
    } | fields
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    with ledger.database.begin() as connection:
        connection.execute(text(f"INSERT INTO lost_findings ({names}) VALUES ({marks})"), row)
    return str(row["subject"])


def test_findings_are_listed_by_what_is_asked_for(ledger: SqlLedger, hongyan: Run) -> None:
    assert hongyan("lost", "list").out == "no such findings\n"
    found(ledger, 1)
    found(ledger, 2, cause="removed", lane="email.notice", status="NEW")
    found(ledger, 3, status="RESENT")
    found(ledger, 4, found_at=ledger.now_ms() - 7_200_000)

    def ids(*flags: str) -> list[str]:
        return [one["message_id"] for one in hongyan("lost", "list", "--json", *flags).json]

    assert ids() == ["m4", "m2", "m1"]
    assert ids("--status", "resent") == ["m3"]
    assert ids("--cause", "removed,hole") == ["m2"]
    assert ids("--lane", "sms.*") == ["m4", "m1"]
    assert ids("--since", "1h") == ["m2", "m1"]
    cut = hongyan("lost", "list", "--limit", "2")
    assert "more match" in cut.err
    assert "m4" in cut.out
    assert "m1" not in cut.out
    assert "secret" not in hongyan("lost", "list", "--json").out


def test_one_is_shown_by_any_of_its_names_without_its_body(ledger: SqlLedger, hongyan: Run) -> None:
    subject = found(ledger, 7)
    for name in ("1", subject, "m7"):
        (shown,) = hongyan("lost", "show", name, "--json").json
        assert (shown["subject"], shown["body"]) == (subject, True)
    assert "below the committed offset" in hongyan("lost", "show", "1").out
    gone = hongyan("lost", "show", "9")
    assert (gone.code, "nothing was found lost as '9'" in gone.err) == (1, True)


def test_an_order_is_kept_with_its_author_and_refused_with_its_reason(
    ledger: SqlLedger, hongyan: Run
) -> None:
    able = found(ledger, 1)
    found(ledger, 2, status="RESENT")
    found(ledger, 3, cause="open")
    found(ledger, 4, subject="t/0/3-9", cause="hole")
    found(ledger, 5, origin=None, body=None)
    dry = hongyan("lost", "resend", able, "--dry-run", "--json")
    assert (dry.code, [one["result"] for one in dry.json]) == (0, ["would_order"])
    asked = ("1", "2", "3", "4", "5", "m9")
    said = hongyan(
        *("lost", "resend", *asked, "--reason", "call +8613800000001", "--author", "lin", "--json")
    )
    assert said.code == 1
    assert [one["result"] for one in said.json] == ["ordered"] + ["refused"] * 4
    assert "nothing was found lost as 'm9'" in said.err
    whys = " | ".join(one["why"] for one in said.json)
    for part in ("it is RESENT", "`hongyan resend ", "nobody can name", "nobody has its body"):
        assert part in whys
    (one,) = ledger.findings().named("1")
    assert (one.status, one.decided_by, one.is_ordered) == ("NEW", "lin", True)
    assert "13800000001" not in (one.decided_why or "")
    assert hongyan("lost", "resend", "1", "--reason", "x").code == 1, "it was ordered before"


def test_a_selection_is_dismissed_up_to_the_limit(ledger: SqlLedger, hongyan: Run) -> None:
    for number in range(5):
        found(ledger, number, cause="forgotten")
    found(ledger, 9)
    some = hongyan("lost", "dismiss", "--cause", "forgotten", "--limit", "3", "--reason", "x")
    assert (some.code, "3 dismissed" in some.out) == (1, True)
    rest = hongyan("lost", "dismiss", "--cause", "forgotten", "--reason", "x")
    assert (rest.code, "2 dismissed" in rest.out) == (0, True)
    assert [one["message_id"] for one in hongyan("lost", "list", "--json").json] == ["m9"]
    again = hongyan("lost", "dismiss", "1", "--reason", "x")
    assert (again.code, "it is DISMISSED already" in again.out) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("resend", "1"), "give --reason TEXT"),
        (("dismiss", "1"), "give --reason TEXT"),
        (("resend", "--reason", "x"), "give IDs, or choose by --cause, --lane or --since"),
        (("resend", "1", "--cause", "passed", "--reason", "x"), "give IDs, or choose"),
        (("list", "--cause", "gone"), "--cause 'gone': there are passed, removed"),
        (("list", "--status", "lost"), "--status 'LOST': there are NEW, ASKED"),
        (("list", "--lane", "fax.*"), "no lane matches"),
    ],
)
def test_wrong_words_are_one_sentence(
    ledger: SqlLedger, hongyan: Run, words: tuple[str, ...], said: str
) -> None:
    done = hongyan("lost", *words)
    assert (done.code, said in done.err) == (2, True), done.err
