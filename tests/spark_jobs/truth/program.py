"""The program as a person starts it: one command to its end, or `hongyan spark run` until it is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.layout import REPOSITORY

_MAIN = "from hongyan.program import main; main()"
_STOP_S = 120.0
_COMMAND_S = 900.0
_TAIL = 4_000


class Program:
    """`hongyan` with one configuration; `settings` are environment variables without HONGYAN_."""

    def __init__(self, config: Path, **settings: str) -> None:
        variables = {"HONGYAN_CONFIG": str(config), "PYTHONPATH": str(REPOSITORY)}
        variables |= {f"HONGYAN_{name}": value for name, value in settings.items()}
        self.environment: Mapping[str, str] = {**os.environ, **variables}
        self.folder = config.parent

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Runs a command; returns its standard output. Raises AssertionError for any other exit code."""
        done = subprocess.run(
            self._command(words),
            env=self.environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
        output = f"{done.stdout[-_TAIL:]}{done.stderr[-_TAIL:]}"
        assert done.returncode in codes, f"{' '.join(words)}: {done.returncode}\n{output}"
        return done.stdout

    def start(self, name: str, *words: str) -> Running:
        """Starts a command in a session of its own; its output goes to `name`.log in the folder."""
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                self._command(words),
                env=self.environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Running(process, log)

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-c", _MAIN, *words]


class Running:
    """A command under way. Leaving it ends the process and its JVM, whatever they do."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            print(f"--- {self._log}\n{self.tail()}")
        self.kill()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raises RuntimeError if it has ended by itself."""
        if not self.running:
            raise RuntimeError(f"{self._log.name} ended: {self._process.returncode}\n{self.tail()}")

    def tail(self) -> str:
        """The end of its output."""
        return self._log.read_text("utf-8", "replace")[-_TAIL:]

    def wait(self, timeout: float) -> int | None:
        """Returns the exit code; None if it still runs after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """SIGTERM; raises AssertionError unless it ends in time with code 0."""
        self._process.send_signal(signal.SIGTERM)
        code = self.wait(_STOP_S)
        assert code == 0, f"{self._log.name}: {code}\n{self.tail()}"

    def kill(self) -> None:
        """SIGKILL for the driver and its JVM at once: they are one process group. Idempotent."""
        if self.running:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_STOP_S)
