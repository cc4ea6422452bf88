"""hongyan policy apply and history, for people and for programs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.hongyan.conftest import Run, make_ledger

ACCOUNTS = '[accounts.demo]\nprovider = "webhook"\nendpoint = "http://127.0.0.1:9/send"\n'
THREE = "[defaults]\nthreads = 3\n"
FOUR = '[defaults]\nthreads = 3\n[lanes."webhook.notice"]\nthreads = 4\n'


@pytest.fixture
def ready(folder: Path, hongyan: Run) -> Path:
    (folder / "hongyan.toml").write_text(ACCOUNTS)
    (folder / "policy.toml").write_text(THREE)
    (folder / "new.toml").write_text(FOUR)
    make_ledger()
    return folder


def execute(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "hongyan.db") as connection:
        connection.execute(statement)
    connection.close()


def entered(folder: Path, state: str, attempt: int) -> None:
    execute(
        folder,
        "INSERT INTO deliveries (delivery_key, day, token, created_at, updated_at, expires_at,"
        " attempt, owner_epoch, state, lane, owner, message_id, receiver, body_digest,"
        f" policy_version) VALUES (hex(randomblob(16)), 1, 1, 1, 1, 1, {attempt}, 1, '{state}',"
        " 'webhook.notice', 'w', 'm', x'00', x'00', 'v')",
    )


def test_a_dry_run_shows_what_would_change_and_changes_nothing(ready: Path, hongyan: Run) -> None:
    said = hongyan("policy", "apply", "new.toml", "--dry-run")
    assert (said.code, said.out) == (0, "threads: 3 → 4  webhook.notice\n")
    assert "nothing was applied" in said.err
    assert "no policy was ever applied" in hongyan("policy", "history").out


def test_what_deserves_a_look_is_told_and_applied(ready: Path, hongyan: Run) -> None:
    (ready / "new.toml").write_text(THREE + "[defaults.smtp]\nfinal_ms = 5_000\n")
    said = hongyan("policy", "apply", "new.toml", "--dry-run", "--json")
    assert (said.code, [one["key"] for one in said.json["warnings"]]) == (
        0,
        ["defaults.smtp.final_ms"],
    )
    told = hongyan("policy", "apply", "new.toml")
    assert (told.code, "applied v1:" in told.out) == (0, True)
    assert "warning: new.toml:4: defaults.smtp.final_ms: 5000 is below" in told.err


def test_what_is_applied_counts_and_the_file_no_more(ready: Path, hongyan: Run) -> None:
    said = hongyan("policy", "apply", "new.toml", "--author", "li")
    assert said.code == 0
    assert "applied v1:" in said.out
    assert "by li" in said.out
    shown = hongyan("policy", "show", "--json")
    assert shown.json["lanes"]["webhook.notice"]["threads"] == 4
    assert shown.json["version"].startswith("v1:")
    assert "the file differs from v1:" in shown.err
    again = hongyan("policy", "apply", "new.toml")
    assert (again.code, "says so already" in again.out) == (0, True)


def test_the_history_tells_who_changed_what_and_gives_the_text_back(
    ready: Path, hongyan: Run
) -> None:
    hongyan("policy", "apply", "policy.toml", "--author", "li")
    hongyan("policy", "apply", "new.toml", "--author", "wang")
    table = hongyan("policy", "history").out.splitlines()
    assert [line.split()[3:] for line in table[1:]] == [["wang", "+2", "−0"], ["li", "+0", "−0"]]
    assert '+[lanes."webhook.notice"]' in hongyan("policy", "history", "2").out
    assert hongyan("policy", "history", "2", "--text").out == FOUR
    assert [v["author"] for v in hongyan("policy", "history", "--json").json] == ["wang", "li"]
    assert hongyan("policy", "history", "9").code == 2


def test_what_waits_is_counted(ready: Path, hongyan: Run) -> None:
    for attempt in (1, 2, 3):
        entered(ready, "RETRY", attempt)
    (ready / "new.toml").write_text(THREE + "retry = { attempts = 2 }\n")
    said = hongyan("policy", "apply", "new.toml", "--dry-run")
    assert "2 waiting in webhook.notice: are parked when they are due: 2 attempts" in said.out
    told = hongyan("policy", "apply", "new.toml", "--dry-run", "--json").json
    assert [(e["lane"], e["rows"]) for e in told["effects"]] == [("webhook.notice", 2)]
    assert (told["applied"], told["dry_run"], told["refusals"]) == (None, True, [])


def test_a_change_that_a_lane_at_work_cannot_make_is_refused(ready: Path, hongyan: Run) -> None:
    (ready / "new.toml").write_text(f'{THREE}ordering = "key"\n')
    entered(ready, "UNKNOWN", 1)
    said = hongyan("policy", "apply", "new.toml")
    assert said.code == 1
    assert "lane webhook.notice: ordering cannot go from none to key" in said.err
    assert "1 delivery open" in said.err
    assert "no policy was ever applied" in hongyan("policy", "history").out
    execute(ready, "DELETE FROM deliveries")
    assert hongyan("policy", "apply", "new.toml").code == 0


def test_a_wrong_policy_is_not_applied_and_the_error_names_the_line(
    ready: Path, hongyan: Run
) -> None:
    (ready / "new.toml").write_text('[defaults]\naccounts = ["nobody"]\n')
    said = hongyan("policy", "apply", "new.toml")
    assert said.code == 2
    assert "new.toml:2: defaults.accounts: account 'nobody' is not in hongyan.toml" in said.err


def test_without_a_database_the_file_is_shown_and_nothing_is_made(
    folder: Path, hongyan: Run
) -> None:
    (folder / "policy.toml").write_text(THREE)
    assert hongyan("policy", "show", "--json").json["version"].startswith("file:")
    assert hongyan("policy", "apply", "policy.toml").code == 2
    assert not (folder / "hongyan.db").exists()


def test_only_the_expected_version_is_replaced_and_who_came_first_is_named(
    ready: Path, hongyan: Run
) -> None:
    assert hongyan("policy", "apply", "policy.toml", "--author", "li", "--expect", "v0").code == 0
    assert hongyan("policy", "apply", "new.toml", "--author", "wang", "--expect", "1").code == 0
    (ready / "third.toml").write_text(FOUR.replace("threads = 4", "threads = 5"))
    late = hongyan("policy", "apply", "third.toml", "--expect", "v1")
    assert late.code == 1
    assert "v1 is expected, but wang applied v2:" in late.err
    assert "hongyan policy history 2" in late.err
    assert len(hongyan("policy", "history", "--json").json) == 2
    name = hongyan("policy", "history", "--json").json[0]["name"]
    assert hongyan("policy", "apply", "third.toml", "--expect", name).code == 0
    for wrong in ("newest", "v", "v\u0663"):
        assert hongyan("policy", "apply", "new.toml", "--expect", wrong).code == 2


def test_a_dry_run_says_which_version_to_expect(ready: Path, hongyan: Run) -> None:
    hongyan("policy", "apply", "policy.toml")
    assert "--expect v1" in hongyan("policy", "apply", "new.toml", "--dry-run").err
    assert hongyan("policy", "apply", "new.toml", "--dry-run", "--json").json["expected"] == "v1"


@pytest.mark.parametrize("text", ["", "# nothing\n", THREE, FOUR.replace(THREE, "")])
def test_dropped_tables_need_a_yes_and_are_named(ready: Path, hongyan: Run, text: str) -> None:
    assert hongyan("policy", "apply", "new.toml").code == 0
    (ready / "less.toml").write_text(text)
    assert hongyan("policy", "apply", "less.toml", "--dry-run").code == 1
    said = hongyan("policy", "apply", "less.toml", "--json")
    assert (said.code, said.json["applied"]) == (1, None)
    gone = [table for table in ("[defaults]", '[lanes."webhook.notice"]') if table not in text]
    assert said.json["dropped"] == gone
    assert "give --yes" in said.json["refusals"][0]
    assert "threads" in {reset["key"] for reset in said.json["resets"]}
    assert len(hongyan("policy", "history", "--json").json) == 1
    assert hongyan("policy", "apply", "less.toml", "--yes").code == 0


def test_a_table_that_moves_without_a_change_needs_no_yes(ready: Path, hongyan: Run) -> None:
    assert hongyan("policy", "apply", "policy.toml").code == 0
    kinds = ("verification", "notice", "marketing")
    (ready / "moved.toml").write_text("".join(f"[defaults.{k}]\nthreads = 3\n" for k in kinds))
    assert hongyan("policy", "apply", "moved.toml").code == 0
