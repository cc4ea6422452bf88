import dataclasses
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import process
from deploy.local.process import Identity, PidFile

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]
PARENT = [sys.executable, "-c", f"import subprocess; subprocess.run({SLEEPER!r})"]


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Identity]:
    known = process.spawn(SLEEPER, tmp_path / "log", cwd=tmp_path)
    yield known
    process.send(known, signal.SIGKILL)
    assert process.wait_gone(known, 10)


def test_a_process_is_known_by_more_than_its_id(sleeper: Identity) -> None:
    assert process.alive(sleeper)
    assert not process.alive(dataclasses.replace(sleeper, started=sleeper.started + 1))
    assert not process.alive(dataclasses.replace(sleeper, boot="another"))


def test_no_signal_goes_to_one_that_took_over_the_id(sleeper: Identity) -> None:
    former = dataclasses.replace(sleeper, started=sleeper.started - 1)
    assert not process.send(former, signal.SIGKILL)
    process.send_family(former, signal.SIGKILL)
    assert process.alive(sleeper)


def test_an_ended_process_is_not_alive_though_nobody_waited_for_it(sleeper: Identity) -> None:
    assert process.send(sleeper, signal.SIGTERM)
    assert process.wait_gone(sleeper, 10)
    assert not process.send(sleeper, signal.SIGTERM)


def test_a_frozen_process_is_alive_and_paused(sleeper: Identity) -> None:
    process.send_family(sleeper, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)  # returns once it has stopped
    assert process.paused(sleeper.pid)
    assert process.alive(sleeper)


def test_a_signal_reaches_the_whole_family(tmp_path: Path) -> None:
    known = process.spawn(PARENT, tmp_path / "log", cwd=tmp_path)
    while len(members := process.family(known.pid)) < 2:
        assert process.alive(known)
    child = process.identify(members[1])
    assert child is not None
    process.send_family(known, signal.SIGKILL)
    assert process.wait_gone(known, 10)
    assert process.wait_gone(child, 10)


def test_memory_of_a_process_is_counted(sleeper: Identity) -> None:
    assert process.memory(sleeper.pid) > 0


def test_a_stale_pid_file_is_removed(tmp_path: Path, sleeper: Identity) -> None:
    file = PidFile(tmp_path / "run" / "redis.json")
    file.write(dataclasses.replace(sleeper, started=1))
    assert file.read() is None
    assert not file.path.exists()


def test_a_pid_file_finds_its_process_again(tmp_path: Path, sleeper: Identity) -> None:
    PidFile(tmp_path / "redis.json").write(sleeper)
    assert PidFile(tmp_path / "redis.json").read() == sleeper


@pytest.mark.parametrize("text", ["", "{}", "17", '{"pid": 1}'])
def test_a_broken_pid_file_names_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "redis.json").write_text(text)
    assert PidFile(tmp_path / "redis.json").read() is None


def test_a_server_does_not_inherit_settings_of_our_own_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPORT", "5432")
    monkeypatch.setenv("KAFKA_OPTS", "-Dx=y")
    assert not {"PGPORT", "KAFKA_OPTS"} & set(process.plain_environment(None))
