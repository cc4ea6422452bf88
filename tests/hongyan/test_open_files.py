"""The limit of open files of a process that serves, and what a worker says of a low one."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dispatcher import process as worker_process
from message.vocabulary import Lane
from policy.schema import Policy
from tests.harness.waiting import await_

SOFT, HARD = 256, 4_096
CONFIG = """
[kafka]
bootstrap = "127.0.0.1:1"
[database]
url = "sqlite:///ledger.db"
[worker]
health_address = "127.0.0.1:0"
[accounts.hook]
provider = "null"
"""
LANES = [Lane("sms", "notice"), Lane("webhook", "notice")]


def test_a_process_that_serves_raises_its_limit_to_the_hard_one(tmp_path: Path) -> None:
    config = tmp_path / "hongyan.toml"
    config.write_text(CONFIG)
    program = [sys.executable, "-c", "from hongyan.program import main; main()"]
    command = shlex.join([*program, "-c", str(config), "worker"])
    limited = f"ulimit -Sn {SOFT}; ulimit -Hn {HARD}; exec {command}"
    process = subprocess.Popen(["/bin/bash", "-c", limited], stderr=subprocess.DEVNULL)
    try:
        await_(lambda: limits(process.pid) == (HARD, HARD), what="the limit is raised")
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("limit", "warns"), [(281, True), (282, False)])
def test_a_worker_names_a_limit_that_leaves_calls_without_a_connection(
    monkeypatch: pytest.MonkeyPatch, limit: int, warns: bool
) -> None:
    monkeypatch.setattr(worker_process, "open_files_limit", lambda: limit)
    with capture_logs() as logs:
        worker_process._tell_few_files(Policy(), LANES)
    assert [one["event"] for one in logs] == ["open_files_few"] * warns
    if warns:
        assert (logs[0]["limit"], logs[0]["calls"]) == (281, 32)
        assert logs[0]["remedy"].startswith("let the process open 282 files")


def limits(pid: int) -> tuple[int, int]:
    """Returns soft and hard limit of open files of a process."""
    text = Path(f"/proc/{pid}/limits").read_text()
    found = re.search(r"Max open files +(\d+) +(\d+)", text)
    assert found is not None
    return int(found[1]), int(found[2])
