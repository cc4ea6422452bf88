"""A `hongyan` process under measurement, looked at from outside: its metrics, its memory, its end."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

_READY_S: Final = 60.0
_POLL_S: Final = 0.05
_MIB: Final = 1024  # in KiB
_LOGGED = {"HONGYAN_LOG__LEVEL": "info", "HONGYAN_LOG__FORMAT": "json"}
"""The log says where the process can be asked."""


class Program:
    """`hongyan ARGUMENTS` with its log in a file; killed at the end of the `with`, unless it has ended."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Waits until it serves its metrics; raises RuntimeError with the end of its log."""
        self._log = log
        with log.open("wb") as file:
            command = [sys.executable, "-c", "from hongyan.program import main; main()", *arguments]
            self.process = subprocess.Popen(
                command, env={**environment, **_LOGGED}, stderr=file, stdout=file
            )
        try:
            self.url = f"http://{self._await_address()}"
        except BaseException:  # the process must not outlive what started it
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def settled(self) -> int:
        """Deliveries that a worker has settled so far."""
        return int(sum(self.values("hongyan_settled_total")))

    def in_flight(self) -> int:
        """Deliveries that a worker has claimed and not settled."""
        return int(sum(self.values("hongyan_in_flight")))

    def rss_mib(self) -> float:
        """Resident memory now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return round(int(found[1]) / _MIB, 1)

    def ready(self) -> bool:
        """Whether it says so."""
        return httpx.get(f"{self.url}/readyz", timeout=10, trust_env=False).status_code == 200

    def await_ready(self) -> None:
        """Until it is; raises RuntimeError when it takes too long."""
        deadline = time.monotonic() + _READY_S
        while not self.ready():
            if time.monotonic() >= deadline:
                raise RuntimeError(f"not ready: {self._tail()}")
            time.sleep(_POLL_S)

    def values(self, name: str, label: str = "") -> Iterator[float]:
        """A metric's values; with `label` (`lane="sms.notice"`) of the children that have it."""
        text = httpx.get(f"{self.url}/metrics", timeout=10, trust_env=False).text
        for line in text.splitlines():
            if line.startswith(name + "{") and label in line:
                yield float(line.rpartition(" ")[2])

    def kill(self) -> None:
        """Without a goodbye; idempotent."""
        self.process.kill()
        self.process.wait()

    def _await_address(self) -> str:
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r'"?health"?[=:] ?"?([0-9.]+:\d+)', self._log.read_text())
            if found:
                return found[1]
            time.sleep(_POLL_S)
        raise RuntimeError(f"it did not start: {self._tail()}")

    def _tail(self) -> str:
        return self._log.read_text()[-2_000:]
