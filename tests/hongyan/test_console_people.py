"""`hongyan console user` and `hongyan console audit`, with the console's secret and without it."""

from pathlib import Path

import pytest
from argon2 import PasswordHasher

from admin.people import passwords
from tests.hongyan.conftest import Run, make_ledger

SECRET = "a secret of the tests, long enough"


@pytest.fixture(autouse=True)
def _ledger(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "hongyan.toml").write_text('[database]\nurl = "sqlite:///ledger.db"\n')
    make_ledger()
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_HASHER", quick)


def add(hongyan: Run, name: str) -> tuple[int, str]:
    password = ["--password-file", "-"]
    done = hongyan("console", "user", "add", name, *password, stdin=b"correct horse battery\n")
    return done.code, done.err


def test_a_command_without_the_consoles_secret_changes_nothing(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_CONSOLE__SECRET", SECRET)
    assert add(hongyan, "lin") == (0, "")
    monkeypatch.delenv("HONGYAN_CONSOLE__SECRET")
    code, said = add(hongyan, "bo")
    assert code == 1
    assert "console.secret" in said
    assert [one["name"] for one in hongyan("console", "user", "list", "--json").json] == ["lin"]
    monkeypatch.setenv("HONGYAN_CONSOLE__SECRET", SECRET)
    whole = hongyan("console", "audit", "verify")
    assert (whole.code, whole.out) == (0, "1 rows, none removed or changed\n")


def test_a_secret_that_is_set_later_begins_with_a_command(
    hongyan: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rekey = ["console", "audit", "rekey", "--author", "lin", "--reason", "set [/x]"]
    assert add(hongyan, "lin") == (0, "")
    assert "set console.secret" in hongyan(*rekey).err
    monkeypatch.setenv("HONGYAN_CONSOLE__SECRET", SECRET)
    early = hongyan("console", "audit", "verify")
    assert early.code == 1
    assert "not written under this console.secret: 1" in early.err
    assert add(hongyan, "bo")[0] == 1
    begun = hongyan(*rekey)
    assert begun.code == 0
    assert "row 2 begins" in begun.out
    assert "set [/x]; the rows before were: whole, without a secret" in " ".join(begun.out.split())
    assert "nothing to do" in hongyan(*rekey).out
    assert add(hongyan, "bo") == (0, "")
    whole = hongyan("console", "audit", "verify")
    assert whole.code == 0
    assert "rows up to 1 are as they were when lin wrote row 2" in " ".join(whole.out.split())
    found = hongyan("console", "audit", "verify", "--json").json
    assert (found["rows"], found["faults"], found["key_row"]["number"]) == (3, [], 2)
