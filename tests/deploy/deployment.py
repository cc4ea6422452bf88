"""Runs launches on this machine. Servers, ports and folders are replaced, nothing else: a launch without a
key, an account or a file does not become ready here either.

    container                                here
    kafka:9092, postgres:…, redis:…          the local stack, with a database, topics and a group of its own
    simulator:8899, receipts:9464, 0.0.0.0   loopback, on ports that were free
    /etc/hongyan, /run/…, /tmp, /app/.venv   a folder of the test, the environment that runs it
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from deploy.local.layout import REPOSITORY
from tests.deploy.launches import HEALTH_PORT, Launch
from tests.harness.waiting import DEADLINE_S, await_

_ONCE_S: Final = 60.0
_PAGE_S: Final = 5.0
_TAIL: Final = 2_000


class EndedEarly(RuntimeError):
    """A process ended before it was ready; the text has the end of its log."""


class DeployedProcess:
    """One launch as a process of this machine; its output goes to a file."""

    def __init__(
        self,
        launch: Launch,
        root: Path,
        replaced: Mapping[str, str],
        port: int,
        isolation: Mapping[str, str],
    ) -> None:
        self.launch = launch
        self.port = port
        self._isolation = isolation
        self._root = root
        self._replaced = replaced
        self._pattern = re.compile(
            "|".join(map(re.escape, sorted(replaced, key=len, reverse=True)))
        )
        self.log = root / "log"
        for path, text in launch.files.items():
            file = Path(self.here(path))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.here(text))
        for folder in launch.folders:
            Path(self.here(folder)).mkdir(parents=True, exist_ok=True)
        self._process = self._started(launch.command)

    def here(self, text: str) -> str:
        """Returns the text with this machine's servers, ports and folders."""
        return self._pattern.sub(lambda found: self._replaced[found[0]], text)

    def run_beside(self, command: Iterable[str]) -> int:
        """Runs another command in the same container. Returns its exit code."""
        return self._started(list(command)).wait(_ONCE_S)

    def wait(self, timeout: float) -> int:
        """Returns the exit code. Raises TimeoutExpired."""
        return self._process.wait(timeout)

    def wait_ready(self) -> None:
        """Waits until its probe succeeds, for longer than 30 s: the suite's processes share the cores.
        Raises EndedEarly, TimedOut."""
        await_(self._is_ready, DEADLINE_S, lambda: f"{self.launch.name} is ready\n{self.tail()}")

    def has_written(self, text: str) -> bool:
        """Returns whether its log has the text. Raises EndedEarly if it gave up."""
        if self._process.poll() is not None:
            raise EndedEarly(f"{self.launch.name} ended with {self._process.poll()}\n{self.tail()}")
        return text in self.tail()

    def stop(self) -> int:
        """Returns the exit code after SIGTERM. Raises TimeoutExpired after the launch's grace period."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(self.launch.grace_s)

    def discard(self) -> None:
        """Ends the process in any state; idempotent."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def tail(self) -> str:
        """Returns the end of its log."""
        return self.log.read_text("utf-8", "replace")[-_TAIL:]

    def _started(self, command: list[str]) -> subprocess.Popen[bytes]:
        given = {name: self.here(value) for name, value in self.launch.environment.items()}
        path = given.get("PATH", "$PATH").replace("$PATH", os.environ["PATH"])
        ours = {"PATH": path, "PYTHONPATH": str(REPOSITORY)}
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [self.here(word) for word in command],
                cwd=self._root,
                env={**given, **self._isolation, **ours},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise EndedEarly(f"{self.launch.name} ended with {self._process.poll()}\n{self.tail()}")
        assert self.launch.ready is not None
        page, _port = self.launch.ready
        if not page:
            socket.create_connection(("127.0.0.1", self.port), _PAGE_S).close()
            return True
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=_PAGE_S):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return False


class Deployment:
    """Launches beside each other, on the same servers."""

    def __init__(self, folder: Path, servers: Mapping[str, str], topic_prefix: str) -> None:
        self._folder = folder
        self._servers = servers
        names = (
            "HONGYAN_KAFKA__TOPIC_PREFIX",
            "HONGYAN_KAFKA__GROUP_ID",
            "HONGYAN_LOOKBACK__TOPIC",
        )
        self._isolation = dict.fromkeys(names, topic_prefix)
        self._held = ExitStack()
        self._reserved = {
            name: self._reserve() for name in ("simulator", "mail", "receipts", "pages", "clients")
        }
        self.processes: list[DeployedProcess] = []

    @property
    def pages(self) -> str:
        """The address of the console's pages."""
        return f"http://127.0.0.1:{self._reserved['pages']}"

    def run(self, launch: Launch) -> DeployedProcess:
        """Runs a launch to its end. Raises EndedEarly for another exit code than 0."""
        process = self.start(launch)
        if code := process.wait(_ONCE_S):
            raise EndedEarly(f"{launch.name} ended with {code}\n{process.tail()}")
        return process

    def start(self, launch: Launch) -> DeployedProcess:
        """Starts a launch."""
        root = self._folder / f"{len(self.processes)}-{launch.name}"
        root.mkdir()
        port = self._reserved.get(launch.name) or self._reserve()
        process = DeployedProcess(launch, root, self._here(root, port), port, self._isolation)
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Ends every process."""
        for process in self.processes:
            process.discard()
        self._held.close()

    def _here(self, root: Path, port: int) -> dict[str, str]:
        simulator, mail, receipts, console, clients = self._reserved.values()
        return {
            **self._servers,
            "simulator:8899": f"127.0.0.1:{simulator}",
            "simulator:2525": f"127.0.0.1:{mail}",
            "port = 8899": f"port = {simulator}",
            "smtp_port = 2525": f"smtp_port = {mail}",
            "receipts:9464": f"127.0.0.1:{receipts}",
            "0.0.0.0": "127.0.0.1",
            f"0.0.0.0:{HEALTH_PORT}": f"127.0.0.1:{port}",
            f"127.0.0.1:{HEALTH_PORT}": f"127.0.0.1:{port}",
            "0.0.0.0:9480": f"127.0.0.1:{console}",
            "0.0.0.0:9484": f"127.0.0.1:{clients}",
            "127.0.0.1:9466": f"127.0.0.1:{port}",
            "127.0.0.1:9470": f"127.0.0.1:{port}",
            "127.0.0.1:9474": f"127.0.0.1:{port}",
            "127.0.0.1:9481": f"127.0.0.1:{port}",
            "/etc/hongyan": f"{root}/etc",
            "/etc/shop": f"{root}/shop",
            "/run/secrets/hongyan": f"{root}/secrets",
            "/run/secrets/outbox": f"{root}/outbox",
            "/run/credentials": f"{root}/credentials",
            "/tmp": f"{root}/tmp",
            "/app/.venv": sys.prefix,
            "/opt/hongyan": sys.prefix,
        }

    def _reserve(self) -> int:
        """Returns a port that stays bound here, so that no other program gets it. A server may listen on it
        all the same, with SO_REUSEADDR."""
        held = self._held.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


@contextmanager
def deployment(folder: Path, servers: Mapping[str, str], topic_prefix: str) -> Iterator[Deployment]:
    """A deployment whose processes end with the block."""
    opened = Deployment(folder, servers, topic_prefix)
    try:
        yield opened
    finally:
        opened.close()
