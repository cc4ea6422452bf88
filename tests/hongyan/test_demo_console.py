"""`hongyan console --demo`: the demo's ledger alone, on loopback alone, with operators of every role."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import httpx
import pytest

from admin.access import Role
from backends.settings import DatabaseSettings, Settings
from hongyan.commands import demo
from hongyan.demo.folder import LEDGER, is_marked, new_folder, set_mark
from hongyan.dev.environment import locked
from hongyan.errors import NotDone, WrongUsage
from simulator import read_ledger
from tests.harness.databases import upgraded
from tests.harness.waiting import await_
from tests.hongyan.conftest import PROGRAM, Run

FEW = 60
_ADDRESS = re.compile(r"http://(127\.0\.0\.1:\d+)")
_TOKEN = re.compile(r'name="csrf" value="(\w+)"')


@contextmanager
def console(folder: Path, *arguments: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the address of a demo console and the passwords that it printed; ends it by Ctrl-C."""
    process = subprocess.Popen(
        [str(PROGRAM), "console", "--demo", "--listen", "127.0.0.1:0", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HONGYAN_DATABASE__URL": "sqlite:///elsewhere.db"},
    )
    assert process.stdout is not None
    try:
        address, passwords = "", {}
        for line in process.stdout:
            if found := _ADDRESS.search(line):
                address = found[1]
            words = line.split()
            if words and words[0] in {*Role}:
                passwords[words[0]] = words[1]
            if len(passwords) == len(Role):
                break
        yield f"http://{address}", passwords
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
    finally:
        if process.poll() is None:  # a kill would leave its provider and recovery behind
            process.terminate()
            process.wait(60)
        process.stdout.close()


@contextmanager
def signed_in(address: str, name: str, password: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, trust_env=False) as client:
        token = _TOKEN.search(client.get("/login").text)
        assert token
        answer = client.post("/login", data={"csrf": token[1], "name": name, "password": password})
        assert answer.status_code == 303
        yield client


@pytest.mark.timeout(180)
@pytest.mark.soak(small="::test_a_new_run_waits_for_no_console_that_still_serves_the_last_one")
def test_the_demo_leaves_its_ledger_to_a_console_that_sends_again(
    program: Run, folder: Path
) -> None:
    few = folder / "few.jsonl"
    with demo.examples().open("rb") as lines:
        few.write_bytes(b"".join(islice(lines, FEW)))
    ended = program("demo", "--file", str(few))
    assert ended.code == 0, ended.err
    [offer] = [line for line in ended.out.splitlines() if "--demo" in line]
    assert offer.endswith("hongyan console --demo")

    kept = folder / "hongyan-demo"
    with console(folder) as (address, passwords):
        for role in Role:
            with signed_in(address, role, passwords[role]) as client:
                assert client.get("/").status_code == 200
                assert client.get("/people").status_code == (200 if role is Role.ADMIN else 403)
        with closing(sqlite3.connect(kept / LEDGER)) as ledger:
            [(key,)] = ledger.execute("SELECT delivery_key FROM deliveries LIMIT 1").fetchall()
        before = len(list(read_ledger(kept / "provider.jsonl")))
        order = ("resend", key, "--new-id", "--reason", "the customer asks")
        assert program(*order, HONGYAN_CONFIG=str(kept / "hongyan.toml")).code == 0
        await_(
            lambda: len(list(read_ledger(kept / "provider.jsonl"))) == before + 1,
            what="the copy at the provider",
        )
    with console(folder, "--folder", str(kept)) as (_address, others):
        assert not {*passwords.values()} & {*others.values()}
    assert not list(kept.glob("*.pid"))
    assert not (folder / "elsewhere.db").exists()


def test_no_other_ledger_is_served(hongyan: Run, folder: Path) -> None:
    absent = hongyan("console", "--demo")
    assert absent.code == 1
    assert absent.err.startswith("hongyan-demo has no ledger of `hongyan demo`; run it first")
    other = folder / "hongyan-demo"
    other.mkdir()
    upgraded(Settings(database=DatabaseSettings(url=f"sqlite:///{other / LEDGER}")))
    assert hongyan("console", "--demo").err == absent.err
    (other / LEDGER).write_text("no database at all, but a file of some length")
    assert hongyan("console", "--demo").err == absent.err
    (folder / "mine.toml").write_text('[database]\nurl = "sqlite:///mine.db"\n')
    named = hongyan("--config", "mine.toml", "console", "--demo")
    assert (named.code, named.err.partition(":")[0]) == (2, "--config")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:9480", "example.com:0"])
def test_nothing_but_loopback_is_listened_on(hongyan: Run, folder: Path, listen: str) -> None:
    (folder / "hongyan-demo").mkdir()
    set_mark(folder / "hongyan-demo")
    ended = hongyan("console", "--demo", "--listen", listen)
    assert ended.code == 2
    assert "loopback alone" in ended.err


def test_a_folder_option_goes_with_the_demo_alone(hongyan: Run) -> None:
    ended = hongyan("console", "--folder", "x")
    assert (ended.code, ended.err) == (2, "--folder goes with --demo alone")


def test_only_the_demos_own_files_are_cleared(folder: Path) -> None:
    kept = folder / "kept"
    kept.mkdir()
    (kept / "precious.txt").touch()
    with pytest.raises(WrongUsage, match="is not empty"), new_folder(kept, again=True):
        pass
    set_mark(kept)
    (kept / "worker-1.log").touch()
    with new_folder(kept, again=True):
        assert sorted(one.name for one in kept.iterdir()) == ["lock", "precious.txt"]
    assert not is_marked(kept)


def test_a_new_run_waits_for_no_console_that_still_serves_the_last_one(folder: Path) -> None:
    set_mark(folder)
    refused = pytest.raises(NotDone, match="`hongyan demo` runs in")
    with locked(folder, "hongyan demo"), refused, new_folder(folder, again=True):
        pass
    assert is_marked(folder)
