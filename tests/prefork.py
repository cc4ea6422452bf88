"""Runs pytest in several processes that import nothing: `python -m tests.prefork 6 [ARGUMENT…]`.

This process collects all tests once. Each process of pytest-xdist is a fork of it, in which all modules are
imported already. So what six processes would do, one does (decision 298). pytest-xdist shares out and
reports the tests as ever: to it a fork is an interpreter.

A module that fails or skips as it is imported would look empty to a fork. So after a fault of collection
pytest-xdist has interpreters of its own, and a fork that collects another number of tests ends the run.
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
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from tests.harness import fork_client
from tests.harness.forked import end_process, take_over

_COUNT: Final = "PYTEST_TESTS_COLLECTED"
"""In the environment of pytest-xdist: how many tests there are."""
_COLLECT: Final = ("--collect-only", "-qq", "-n", "0")


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist, in whose process this module is a plugin
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Ends the run after a fork that has other tests."""
    count = int(os.environ[_COUNT])
    if len(ids) != count:
        pytest.exit(f"a fork collected {len(ids)} tests, its parent {count}: nothing is run", 3)


class CollectedTests:
    """Plugin: the number of tests, and whether each module was imported as a whole."""

    def __init__(self) -> None:
        self.count = 0
        self.are_whole = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.are_whole &= report.outcome == "passed"

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.count = len(session.items)


class ForkRequest(NamedTuple):
    """A request for a fork, and what it gets."""

    connection: socket.socket
    """Open as long as the fork lives."""
    environment: dict[str, str]
    folder: str
    files: list[int]
    """Input, output, errors."""


def main(processes: str, *arguments: str) -> int:
    """Returns pytest's exit code."""
    tests = CollectedTests()
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing):
        code = pytest.main([*_COLLECT, *arguments], plugins=[tests])
    run = [sys.executable, "-m", "pytest", "--max-worker-restart", str(4 * int(processes))]
    if code != pytest.ExitCode.OK or not tests.are_whole:
        return subprocess.call([*run, "-n", processes, *arguments])
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()  # a fork that collects garbage writes to no page of ours
    name = f"hongyan-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        client = shlex.join([sys.executable, "-I", fork_client.__file__, name])
        forks = ["--dist", "load", "--tx", f"{processes}*popen//python={client}"]
        command = [*run, "-p", __spec__.name, *forks, *arguments]
        environment = {**os.environ, _COUNT: str(tests.count)}
        xdist = subprocess.Popen(command, env=environment)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts pytest-xdist, too
        request = _serve(listening, xdist)
    if request:
        _become(request)
    return xdist.wait()


def _serve(listening: socket.socket, xdist: subprocess.Popen[bytes]) -> ForkRequest | None:
    """Returns None once pytest-xdist has ended, and in each fork its request."""
    ended = os.pidfd_open(xdist.pid)
    polled = select.poll()
    polled.register(ended, select.POLLIN)
    polled.register(listening, select.POLLIN)
    while True:
        ready = [number for number, _ in polled.poll()]
        if ended in ready:
            return None
        request = _taken(listening)
        if os.fork() == 0:
            os.close(ended)
            return request
        request.connection.close()
        for number in request.files:
            os.close(number)


def _taken(listening: socket.socket) -> ForkRequest:
    connection, _ = listening.accept()
    told, files, _, _ = socket.recv_fds(connection, fork_client.MOST_BYTES, 3)
    environment, folder = json.loads(told)
    return ForkRequest(connection, environment, folder, files)


def _become(request: ForkRequest) -> NoReturn:
    """Becomes the interpreter that pytest-xdist asked for."""
    take_over(dict(enumerate(request.files)), request.environment, request.folder)
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
