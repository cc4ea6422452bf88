"""A core for what is measured, the others for everything else, and everything as it was afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from benchmarks.cores import apart, take_own
from deploy.local.process import family

_THREADED = """
import threading
never = threading.Event()
threading.Thread(target=never.wait, daemon=True).start()
print("up", flush=True)
never.wait()
"""


class Kernel:
    """Which cores each thread may use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: Collection[int] = (0, 1, 2)) -> None:
        self.cores = set(cores)
        self.of: dict[int, set[int]] = {}
        self.foreign: set[int] = set()
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: self.cores)
        monkeypatch.setattr(os, "sched_setaffinity", self._move)

    def _move(self, thread: int, cores: Collection[int]) -> None:
        if thread in self.foreign:
            raise PermissionError
        self.of[thread] = set(cores)

    def of_living(self) -> list[set[int]]:
        """Returns the cores of threads that still run: one of another test may end at any time."""
        return [cores for thread, cores in self.of.items() if Path(f"/proc/{thread}").exists()]


@pytest.fixture
def server() -> Iterator[int]:
    """A process with a child that has two threads."""
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_THREADED!r}])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
        for member in reversed(family(process.pid)):
            os.kill(member, signal.SIGKILL)


def test_servers_with_all_their_threads_stay_off_the_core_of_what_is_measured(
    monkeypatch: pytest.MonkeyPatch, server: int
) -> None:
    kernel = Kernel(monkeypatch)
    with apart([server], print) as variables:
        assert len(kernel.of) >= 4  # this one, the process, its child and that one's thread
        assert all(cores == {1, 2} for cores in kernel.of.values())
        assert {server, os.getpid()} <= set(kernel.of)
        monkeypatch.setenv(*next(iter(variables.items())))
        take_own()
        assert kernel.of.pop(0) == {0}
    restored = kernel.of_living()
    assert len(restored) >= 4
    assert all(cores == {0, 1, 2} for cores in restored)


def test_where_there_is_one_core_everybody_shares_it_and_is_told_so(
    monkeypatch: pytest.MonkeyPatch, server: int
) -> None:
    kernel, said = Kernel(monkeypatch, cores=[5]), list[str]()
    with apart([server], said.append) as variables:
        assert variables == {}
    assert kernel.of == {}
    assert "One core" in said[0]


def test_where_the_servers_are_somebody_elses_every_core_is_everybodys(
    monkeypatch: pytest.MonkeyPatch, server: int
) -> None:
    kernel, said = Kernel(monkeypatch), list[str]()
    kernel.foreign = {server}
    with apart([server], said.append) as variables:
        assert variables == {}
        assert os.getpid() not in kernel.of
    assert "another user's" in said[0]


def test_without_a_core_of_its_own_a_process_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel(monkeypatch)
    monkeypatch.delenv("BENCH_CORE", raising=False)
    take_own()
    assert kernel.of == {}
