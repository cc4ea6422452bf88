"""Runs pytest in several processes that import nothing: `python -m tests.collected 6 [ARGUMENT…]`.

This process collects all tests once. Each process of pytest-xdist is a fork of it, in which all modules are
imported already. So what six processes would do, one does (decision 298). pytest-xdist shares out and
reports the tests as ever: to it a fork is an interpreter.

A module that fails or skips as it is imported would look empty to a fork. So after a fault of collection
pytest-xdist has interpreters of its own, and a fork that collects another number of tests ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

import pytest

from tests.harness import fork_asked
from tests.harness.forked import end_process

COUNT: Final = "PYTEST_TESTS_COLLECTED"
"""In the environment of a fork: how many tests there are."""
_COLLECT: Final = ("--collect-only", "-qq", "-n", "0")


class Collection:
    """Plugin: the number of tests, and whether each module was imported as a whole."""

    def __init__(self) -> None:
        self.count = 0
        self.is_whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_whole &= report.outcome == "passed"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.count = len(session.items)


class Asked(NamedTuple):
    """Whoever asked for a fork, and what it has."""

    connection: socket.socket
    """Stays open as long as the fork lives."""
    environment: dict[str, str]
    folder: str
    files: list[int]
    """Input, output, errors."""


def main(processes: str, *arguments: str) -> int:
    """Returns pytest's exit code."""
    found = Collection()
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
        code = pytest.main([*_COLLECT, *arguments], plugins=[found])
    run = [sys.executable, "-m", "pytest", "--max-worker-restart", str(4 * int(processes))]
    if code != pytest.ExitCode.OK or not found.is_whole:
        return subprocess.call([*run, "-n", processes, *arguments])
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # a fork that collects garbage writes to no page of ours
    name = f"hongyan-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        ask = shlex.join([sys.executable, "-I", fork_asked.__file__, name])
        command = [*run, "--tx", f"{processes}*popen//python={ask}", *arguments]
        controller = subprocess.Popen(command, env={**os.environ, COUNT: str(found.count)})
        # The terminal interrupts the controller, too: its end is ours.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        forked = _serve(listening, controller)
    if forked:
        _become(forked)
    return controller.wait()


def _serve(listening: socket.socket, controller: subprocess.Popen[bytes]) -> Asked | None:
    """Returns None once the controller has ended, and in each fork what it was asked for."""
    ended = os.pidfd_open(controller.pid)
    polled = select.poll()
    polled.register(ended, select.POLLIN)
    polled.register(listening, select.POLLIN)
    while True:
        ready = [number for number, _ in polled.poll()]
        if ended in ready:
            return None
        asked = _asked(listening)
        if os.fork() == 0:
            os.close(ended)
            return asked
        asked.connection.close()
        for number in asked.files:
            os.close(number)


def _asked(listening: socket.socket) -> Asked:
    connection, _ = listening.accept()
    told, files, _, _ = socket.recv_fds(connection, fork_asked.MOST_BYTES, 3)
    environment, folder = json.loads(told)
    return Asked(connection, environment, folder, files)


def _become(asked: Asked) -> NoReturn:
    """Becomes the interpreter that pytest-xdist asked for."""
    for number, file in enumerate(asked.files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["-c"]
    # Children of `multiprocessing` import this module, not ours.
    sys.modules["__main__"] = ModuleType("__main__")
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (as long as the process)
    code: str = eval(sys.stdin.readline())  # as `python -c` of execnet does
    exec(code, vars(sys.modules["__main__"]))
    end_process(0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
