"""Starts our programs as processes of their own without importing everything again.

    process = start(Program("hongyan", ["worker"], environment, folder), log, log)

The first call starts a parent process that imports the programs' modules; simulators have their own.
It forks a child for each start. A child has its own session, environment, arguments and files, as a new
interpreter would have.
tests/hongyan and tests/deploy prove the real start commands.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

from deploy.local.layout import REPOSITORY

_FREE: Final = ("HONGYAN_", "CHAOS_", "PYTEST_")
"""Variables that no module reads while it is imported."""


LAUNCH: Final = "tests.harness.launch"
SIMULATOR: Final = "simulator"
HONGYAN: Final = "hongyan"
_FORKED: Final = (LAUNCH, SIMULATOR, HONGYAN)
_HONGYAN: Final = ("-c", "from hongyan.program import main; main()")


@dataclass(frozen=True)
class Program:
    """A program to start, and what it gets."""

    name: str
    """A module that runs as a program, or HONGYAN. Three of them are forked."""
    arguments: Sequence[str]
    environment: Mapping[str, str]
    """All of it."""
    folder: str


class ForkedProcess:
    """A child of the fork server, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, handle: int, report: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        self._handle = handle  # a pidfd: its number never means another process
        self._report = report  # readable once the server wrote the exit code
        self._waiting = threading.Lock()

    def poll(self) -> int | None:
        """Returns the exit code; None while it runs. Negative: the signal that ended it."""
        return self._code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Does nothing if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _code(self, timeout: float | None) -> int | None:
        with self._waiting:
            if self.returncode is None:
                polled = select.poll()
                polled.register(self._report, select.POLLIN)
                if polled.poll(None if timeout is None else timeout * 1000):
                    self._take(os.read(self._report, 16))
            return self.returncode

    def _take(self, told: bytes) -> None:
        os.close(self._report)
        os.close(self._handle)
        self.returncode = int(told) if told else -signal.SIGKILL
        if not told:
            raise RuntimeError(f"the fork server ended before process {self.pid}")


Process = subprocess.Popen[bytes] | ForkedProcess


class _Server:
    """The parent process, and the socket that it takes requests from."""

    def __init__(self, kind: str) -> None:
        self.seen = _seen_by_imports(os.environ)
        self._asking = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.forked", str(theirs.fileno()), kind],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def start(self, program: Program, files: Sequence[int]) -> ForkedProcess:
        request = json.dumps([program.name, *_plain(program), len(files) == 3]).encode()
        with self._asking:
            socket.send_fds(self._socket, [request], files)
            answer, handles, _, _ = socket.recv_fds(self._socket, 64, 2)
        if not answer:
            raise RuntimeError(f"the fork server ended with code {self._process.wait()}")
        return ForkedProcess(int(answer), *handles)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # also where a fork of ours holds it
        self._socket.close()
        self._process.wait()


def start(
    program: Program, stdout: int, stderr: int, *, leash: int | None = None, forked: bool = True
) -> Process:
    """Starts a program. `leash` is the read end of a pipe; the process ends when its other end is closed.

    A new interpreter runs it if `forked` is false, or if the environment differs from the one that the
    modules were imported with in more than our own variables."""
    if forked and program.name in _FORKED:
        server = _server(program.name)
        if _seen_by_imports(program.environment) == server.seen:
            return server.start(program, [stdout, stderr, *([] if leash is None else [leash])])
    command = _HONGYAN if program.name == HONGYAN else ("-m", program.name)
    flags = [] if leash is None else ["--leash", str(leash)]
    return subprocess.Popen(
        [sys.executable, *command, *program.arguments, *flags],
        cwd=program.folder,
        env=dict(program.environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=() if leash is None else (leash,),
        start_new_session=True,
    )


_servers: dict[tuple[int, str], _Server] = {}
"""By the process that asks, since a fork of it needs its own, and by what they have imported."""
_starting = threading.Lock()


def _server(name: str) -> _Server:
    key = os.getpid(), SIMULATOR if name == SIMULATOR else HONGYAN
    with _starting:
        found = _servers.get(key)
        if found is None:
            found = _servers[key] = _Server(key[1])
            atexit.register(found.close)
        return found


def _plain(program: Program) -> tuple[list[str], dict[str, str], str]:
    return list(program.arguments), dict(program.environment), program.folder


def _seen_by_imports(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_FREE)}
