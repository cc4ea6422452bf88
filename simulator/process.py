"""A simulator as a child process: for tests, benchmarks and the demo."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Protocol, Self

import msgspec

from simulator.ledger import LedgerRecord, read_ledger
from simulator.options import Control, SimulatorOptions, Started
from simulator.report import KeyReport, Report, report_of

_STOP_S: Final = 10.0
_ADMIN_S: Final = 30.0


class SimulatorError(RuntimeError):
    """The child did not start or refused a change; the text has its reason."""


class ChildProcess(Protocol):
    """The methods of `subprocess.Popen` that a Simulator needs."""

    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Simulator:
    """A running simulator; a context manager that stops it."""

    def __init__(self, process: ChildProcess, started: Started) -> None:
        self._process = process
        self.url = started.url
        """The provider's address; any path below it is an endpoint."""
        self.admin = started.admin
        self.smtp = started.smtp
        """`smtp://host:port` of its mail server; empty if it has none."""
        self.ledger = Path(started.ledger)
        self.pid = started.pid
        import httpx  # here, so that the child, which makes no request, starts without it

        # It speaks HTTP. By default httpx would parse all public authorities, for each client.
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._client = httpx.Client(
            base_url=self.admin, timeout=_ADMIN_S, trust_env=False, verify=trusted
        )

    def control(self, **changes: Any) -> None:
        """Changes `rules` (a list of Faults), `dedup` or `refuse_new`; in force when this returns."""
        body = msgspec.json.encode(Control(**changes))
        answer = self._client.post("/_control", content=body)
        if answer.status_code != 200:
            raise SimulatorError(answer.json()["error"])

    def report(self, *, summary_only: bool = False) -> Report:
        """Returns the report so far."""
        answer = self._client.get("/_report", params={"summary": 1} if summary_only else None)
        return msgspec.json.decode(answer.content, type=Report)

    def seen(self, key: str) -> KeyReport | None:
        """Returns the report of one delivery key; None if it was not seen."""
        answer = self._client.get("/_report", params={"key": key})
        return msgspec.json.decode(answer.content, type=KeyReport | None)

    def records(self) -> Iterator[LedgerRecord]:
        """Yields the ledger on disk; works before and after the end, however it came."""
        return read_ledger(self.ledger)

    def ledger_report(self) -> Report:
        """Returns the report from the ledger on disk alone."""
        return report_of(self.records())

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process.poll() is None

    def stop(self) -> int:
        """Sends SIGTERM, waits, returns the exit code. Idempotent."""
        self._client.close()
        if self._process.poll() is None:
            self._process.terminate()
        return self._wait()

    def kill(self) -> int:
        """Sends SIGKILL, waits, returns the exit code."""
        self._client.close()
        self._process.kill()
        return self._wait()

    def _wait(self) -> int:
        try:
            code = self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def start(arguments: Sequence[str]) -> ChildProcess:
    """Starts `python -m simulator` with its standard output on a pipe."""
    return subprocess.Popen(  # noqa: S603 (our own interpreter and module)
        [sys.executable, "-m", "simulator", *arguments],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def spawn(
    folder: str | Path,
    options: SimulatorOptions | None = None,
    *,
    starter: Callable[[Sequence[str]], ChildProcess] = start,
    **changes: Any,
) -> Simulator:
    """Starts a simulator and waits until it serves. Its ledger goes to `folder` unless `options` says.

    `changes` are fields of SimulatorOptions; `starter` starts the process with its arguments. Raises
    SimulatorError if it cannot start."""
    options = options or SimulatorOptions(ledger=str(Path(folder) / "provider.jsonl"))
    options = msgspec.structs.replace(options, **{**changes, "json": True})
    process = starter(["--options", msgspec.json.encode(options).decode()])
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.stdout.close()
        raise SimulatorError(f"the simulator ended with code {process.wait()} before it served")
    return Simulator(process, msgspec.json.decode(line, type=Started))
