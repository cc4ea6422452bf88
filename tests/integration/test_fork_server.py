"""A forked program is a process of its own, as a new interpreter would be."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.fork_server import HONGYAN, SIMULATOR, Process, Program, start
from tests.harness.simulators import spawn
from tests.harness.waiting import await_

_WITHIN_S = 60.0


def begun(
    folder: Path, name: str, *arguments: str, leash: int | None = None, **environment: str
) -> tuple[Process, Path]:
    """A program whose output goes to the file."""
    log = folder / f"{'-'.join(arguments).replace('/', '_')}.log"
    program = Program(name, arguments, {**os.environ, **environment}, str(folder))
    with log.open("wb") as output:
        return start(program, output.fileno(), output.fileno(), leash=leash), log


def served(folder: Path, leash: int | None = None, **environment: str) -> Process:
    """A simulator that said where it serves."""
    process, log = begun(folder, SIMULATOR, "--json", leash=leash, **environment)
    await_(lambda: "url" in log.read_text(), what="the simulator serves")
    return process


def ended(process: Process) -> int:
    process.kill()
    return process.wait(_WITHIN_S)


def is_forked(process: Process) -> bool:
    return b"tests.harness.forked" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("name", "arguments", "code", "says"),
    [
        (HONGYAN, ["--version"], 0, "hongyan "),
        (HONGYAN, ["no-such-command"], 2, "no-such-command"),
        (SIMULATOR, ["--no-such-flag"], 2, "no-such-flag"),
    ],
)
def test_exit_code_and_output_are_the_programs_own(
    tmp_path: Path, name: str, arguments: list[str], code: int, says: str
) -> None:
    process, log = begun(tmp_path, name, *arguments)
    assert process.wait(_WITHIN_S) == code
    assert says in log.read_text()


def test_a_signal_is_in_the_exit_code_and_a_wait_has_its_time(tmp_path: Path) -> None:
    process = served(tmp_path)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(_WITHIN_S) == process.poll() == -signal.SIGKILL
    process.send_signal(signal.SIGTERM)  # nobody is hit


def test_a_process_that_drains_ends_with_its_own_code(tmp_path: Path) -> None:
    process = served(tmp_path)
    process.terminate()
    assert process.wait(_WITHIN_S) == 0


def test_session_folder_and_environment_are_its_own(tmp_path: Path) -> None:
    first = served(tmp_path)
    assert os.getsid(first.pid) == first.pid
    assert Path(f"/proc/{first.pid}/cwd").resolve() == tmp_path
    assert (tmp_path / "simulator-ledger.jsonl").exists()
    ended(first)
    absent = str(tmp_path / "of-the-environment.toml")
    process, log = begun(tmp_path, HONGYAN, "topics", "apply", HONGYAN_CONFIG=absent)
    assert process.wait(_WITHIN_S) == 2
    assert "of-the-environment.toml" in log.read_text().replace("\n", "")


def test_a_closed_leash_ends_it(tmp_path: Path) -> None:
    leash, ours = os.pipe()
    process = served(tmp_path, leash)
    os.close(leash)
    assert process.poll() is None
    os.close(ours)
    assert process.wait(_WITHIN_S) == 137


def test_a_child_holds_nothing_of_another(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = map(served, folders)
    assert is_forked(first)
    assert is_forked(second)
    open_files = [f.readlink().name for f in Path(f"/proc/{second.pid}/fd").iterdir()]
    assert not [name for name in open_files if "pidfd" in name], open_files
    assert ended(first) == -signal.SIGKILL  # though the second was forked while it lived
    assert ended(second) == -signal.SIGKILL


def test_a_variable_that_imports_may_read_gets_a_new_interpreter(tmp_path: Path) -> None:
    process = served(tmp_path, OTEL_SERVICE_NAME="another")
    assert not is_forked(process)
    assert ended(process) == -signal.SIGKILL


def test_a_forked_provider_answers_and_stops(tmp_path: Path) -> None:
    with spawn(tmp_path) as provider:
        assert provider.running
        assert provider.report().summary.requests == 0
    assert provider.stop() == 0
    assert not provider.running
