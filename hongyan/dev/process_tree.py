"""The processes of one environment: each is a `hongyan COMMAND` with a log, a pid file, a health page."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from backends.environment import CONFIG_VARIABLE, PREFIX

STOP_S: Final = 15.0
"""Longest wait for a process to drain, before it is killed."""
_ASK_S: Final = 2.0
_opener = urllib.request.build_opener(
    urllib.request.ProxyHandler({})
)  # a proxy has no loopback of ours
_event = msgspec.json.Decoder(dict[str, Any])


class ProcessTree:
    """Processes by name; a context manager that leaves nothing running. For one thread."""

    def __init__(self, folder: Path, config: Path, environ: Mapping[str, str]) -> None:
        """Logs and pid files go to `folder`."""
        self.folder = folder
        self._environ = {**environ, CONFIG_VARIABLE: str(config), "HONGYAN_LOG__FORMAT": "json"}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._health: dict[str, str] = {}

    def start(self, name: str, *arguments: str, **settings: str) -> None:
        """Starts one process; its output goes to NAME.log. `settings` are variables without their
        prefix, such as WORKER__ID."""
        command = [sys.executable, "-c", "from hongyan.program import main; main()", *arguments]
        variables = {PREFIX + key: value for key, value in settings.items()}
        self._health.pop(name, None)
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                env=self._environ | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt from the terminal is for the parent alone
            )
        self._pid_file(name).write_text(f"{self._processes[name].pid}\n")

    def log(self, name: str) -> Path:
        """Returns the log of a process."""
        return self.folder / f"{name}.log"

    def ready(self, name: str) -> bool:
        """Whether the process serves, by its health page."""
        address = self._health.get(name) or self._started(name, "health", "address")
        if not address:
            return False
        self._health[name] = address
        try:
            with _opener.open(f"http://{address}/readyz", timeout=_ASK_S) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as refused:
            refused.close()
            return False
        except OSError:
            return False

    def pid(self, name: str) -> int:
        """Returns the id of a process that was started."""
        return self._processes[name].pid

    def address(self, name: str) -> str:
        """Returns the address at which the process serves others; empty before it has logged one."""
        return self._started(name, "address")

    def freeze(self, name: str) -> None:
        """Sends SIGSTOP: the process keeps everything and does nothing."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Sends SIGCONT."""
        self._processes[name].send_signal(signal.SIGCONT)

    def kill(self, name: str) -> None:
        """Sends SIGKILL: the process does not drain."""
        process = self._forget(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> None:
        """Sends SIGTERM and waits for the end: the process drains and writes its trace events."""
        process = self._forget(name)
        process.terminate()
        _await_end(process)

    def ended(self) -> list[tuple[str, int]]:
        """Returns the processes that ended by themselves, with their exit codes, and forgets them."""
        found = [(n, p.returncode) for n, p in self._processes.items() if p.poll() is not None]
        for name, _ in found:
            self._forget(name)
        return found

    def last_error(self, name: str) -> str:
        """Returns the last error in a process's log; empty if there is none."""
        lines = self._events(name)
        bad = [line for line in lines if line.get("level") in ("error", "critical")]
        if bad:
            return str(bad[-1].get("cause") or bad[-1].get("error") or bad[-1].get("event"))
        plain = self.log(name).read_text("utf-8", "replace").strip().splitlines()
        return plain[-1].removeprefix("error: ") if plain and plain[-1][:1] != "{" else ""

    def stop(self) -> None:
        """Ends all, all at the same time; idempotent."""
        running = list(self._processes.values())
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in running:
            _await_end(process)
        for name in list(self._processes):
            self._forget(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _forget(self, name: str) -> subprocess.Popen[bytes]:
        self._pid_file(name).unlink(missing_ok=True)
        return self._processes.pop(name)

    def _pid_file(self, name: str) -> Path:
        return self.folder / f"{name}.pid"

    def _started(self, name: str, *keys: str) -> str:
        """Returns the first of these fields that the event of its start has; empty before."""
        for event in self._events(name):
            if str(event.get("event")).endswith("_started"):
                for key in keys:
                    if found := event.get(key):
                        return str(found)
        return ""

    def _events(self, name: str) -> list[dict[str, Any]]:
        found = []
        for line in self.log(name).read_bytes().splitlines():
            try:
                found.append(_event.decode(line))
            except msgspec.MsgspecError:
                continue
        return found


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables without those that override a key of hongyan.toml."""
    return {n: v for n, v in environ.items() if not (n.startswith(PREFIX) and "__" in n)}


def overrides(tables: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Returns the variables that override one of these tables of hongyan.toml."""
    heads = tuple(f"{PREFIX}{table.upper()}__" for table in tables)
    return sorted(name for name in environ if name.startswith(heads))


def _await_end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
