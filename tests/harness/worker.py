"""One worker process, held by its handle: start, signals, health, metrics, log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from prometheus_client.parser import text_string_to_metric_families

from deploy.local.layout import REPOSITORY
from tests.harness.fork_server import LAUNCH, Program, start
from tests.harness.stopped import stop
from tests.harness.waiting import DEADLINE_S, await_

_STOP_S = 20.0
_HTTP_S = 5.0
_TAIL = 80


class Metrics:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [s for f in text_string_to_metric_families(text) for s in f.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of that name whose labels fit; `hongyan_` and a counter's
        `_total` are left out."""
        names, wanted = (f"hongyan_{name}", f"hongyan_{name}_total"), labels.items()
        return sum(s.value for s in self._samples if s.name in names and wanted <= s.labels.items())


class WorkerProcess:
    """A real `hongyan worker`. Its log goes to a file of its own, as JSON lines."""

    program: ClassVar[str] = "worker"
    launcher: ClassVar[str] = LAUNCH
    """The module that runs the program."""

    def __init__(
        self,
        worker_id: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        lanes: Sequence[str] = (),
        fault: str = "",
    ) -> None:
        self.id = worker_id
        self.log = _unused(folder / f"{self.program}-{worker_id}.log")
        self.started_at = time.monotonic()
        self._health = ""
        arguments = ["--program", self.program]
        arguments += ["--lanes", ",".join(lanes)] if lanes else []
        arguments += ["--fault", fault] if fault else []
        program = Program(
            self.launcher,
            arguments,
            {**os.environ, **environment, self._id_variable: worker_id},
            str(REPOSITORY),
        )
        leash, self._leash = os.pipe()
        with self.log.open("wb") as output:
            files = output.fileno(), output.fileno()
            # A fault comes before the program's modules, which may keep what it replaces.
            self._process = start(program, *files, leash=leash, forked=not fault)
        os.close(leash)
        self.pid = self._process.pid

    # -- life --

    @property
    def running(self) -> bool:
        """Whether the process is there (paused counts)."""
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.poll()

    def wait_ready(self, timeout: float = DEADLINE_S) -> WorkerProcess:
        """Until /readyz says yes; at once an error when the process ends instead."""
        await_(self._is_ready, timeout, lambda: f"worker {self.id} ready\n{self.tail()}")
        return self

    def terminate(self) -> None:
        """SIGTERM: drain."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._send(signal.SIGKILL)
        self._process.wait(_STOP_S)

    def pause(self) -> None:
        """SIGSTOP: it holds everything and does nothing."""
        if self.running:
            stop(self.pid)

    def resume(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def poke(self) -> None:
        """SIGUSR1: what the fault it was started with makes of it."""
        self._send(signal.SIGUSR1)

    def wait(self, timeout: float = DEADLINE_S) -> int:
        """The exit code; raises AssertionError when it does not end in time."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"worker {self.id} still runs after {timeout:g} s\n{self.tail()}"
            ) from None

    def stop(self, timeout: float = DEADLINE_S) -> int:
        """SIGTERM and wait; the exit code."""
        self.terminate()
        return self.wait(timeout)

    def discard(self) -> None:
        """End it whatever state it is in; idempotent."""
        if self.running:
            self._send(signal.SIGKILL)
        self._process.wait(_STOP_S)
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1

    # -- what it shows --

    def healthz(self) -> tuple[int, dict[str, Any]]:
        """(status, body)."""
        return self._page("/healthz")

    def readyz(self) -> tuple[int, dict[str, Any]]:
        """(status, body)."""
        return self._page("/readyz")

    def metrics(self) -> Metrics:
        """A scrape, now."""
        return Metrics(self._get("/metrics")[1].decode())

    def metric(self, name: str, **labels: str) -> float:
        """One figure of a scrape, now."""
        return self.metrics().value(name, **labels)

    def await_metric(self, name: str, value: float, **labels: str) -> None:
        """Until a scrape has that figure: a worker counts what ended after the ledger has it."""
        await_(lambda: self.metric(name, **labels) == value, what=f"{name} {labels} is {value:g}")

    def log_text(self) -> str:
        """Everything it wrote."""
        return self.log.read_text("utf-8", "replace")

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """The log's events of that name, or all."""
        return [e for e in self._events() if not name or e.get("event") == name]

    def tail(self, lines: int = _TAIL) -> str:
        """The log's end, for a failing test."""
        return "\n".join(self.log_text().splitlines()[-lines:])

    @property
    def address(self) -> str:
        """host:port of its health pages; raises AssertionError before it says."""
        if not self._health:
            started = self.events(f"{self.program}_started")
            assert started, f"{self.program} {self.id} has not started yet"
            self._health = started[-1]["health"]
        return self._health

    @property
    def _id_variable(self) -> str:
        return f"HONGYAN_{self.program.upper()}__ID"

    def _is_ready(self) -> bool:
        if not self.running:
            raise RuntimeError(f"worker {self.id} ended with code {self.code}\n{self.tail()}")
        return self.readyz()[0] == 200

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self.log_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event

    def _page(self, path: str) -> tuple[int, dict[str, Any]]:
        status, body = self._get(path)
        return status, json.loads(body)

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=_HTTP_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def _send(self, number: int) -> None:
        if self.running:
            self._process.send_signal(number)


class RecoveryProcess(WorkerProcess):
    """A real `hongyan recovery`, on the fleet's configuration."""

    program = "recovery"


def _unused(path: Path) -> Path:
    """A second life of one name gets a log of its own."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
