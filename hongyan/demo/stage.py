"""The demo's environment: the embedded Kafka, SQLite, a provider process, and worker processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from backends.kafka.embedded import EmbeddedKafka
from backends.settings import Settings, load
from idempotency.sql_ledger import upgrade
from message.vocabulary import LANES, Lane, dead_letter_topic, trace_topic
from simulator import Faults, Lists, Simulator, spawn

CHANNEL: Final = "webhook"
LATENCY_MS: Final = "p50=12,p99=70"
LEASE_S: Final = 3.0
"""Short, so that the ledger declares a killed worker dead within seconds."""
SESSION_S: Final = 4.0
DRAIN_S: Final = 10.0
_CONFIGURATION: Final = """\
[kafka]
bootstrap = "{bootstrap}"
session_timeout_s = {session}

[database]
url = "sqlite:///ledger.db"

[worker]
lanes = ["{channel}.*"]
lease_s = {lease}
drain_s = {drain}
health_address = "127.0.0.1:0"

[recovery]
lanes = ["{channel}.*"]
health_address = "127.0.0.1:0"
poll_s = 0.5

[log]
format = "json"

[accounts.demo]
provider = "webhook"
endpoint = "{endpoint}"
status_query = true
query_lag_s = 1
"""


class DemoEnvironment:
    """Settings and processes of one run; a context manager that leaves nothing running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: Settings
        self.provider: Simulator
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            kafka = opening.enter_context(EmbeddedKafka(topics=_topics()))
            rules = [Faults(latency_ms=LATENCY_MS)]
            self.provider = opening.enter_context(
                spawn(self.folder, rules=rules, seed="hongyan", lists=Lists(status_query=True))
            )
            self.settings = self._configured(kafka.bootstrap)
            upgrade(self.settings)
            opening.callback(self._stop_processes)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def start_worker(self, name: str) -> None:
        """Starts one worker process; it logs to NAME.log in the demo's folder."""
        self._start(name, "worker")

    def start_recovery(self, name: str) -> None:
        """Starts a recovery process with the built-in scheduler."""
        self._start(name, "recovery", "--embedded")

    def _start(self, name: str, *arguments: str) -> None:
        command = [sys.executable, "-c", "from hongyan.cli import main; main()", *arguments]
        environment = os.environ | {
            "HONGYAN_CONFIG": str(self.folder / "hongyan.toml"),
            "HONGYAN_WORKER__ID": name,
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 (our own program)
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, name: str) -> None:
        """Sends SIGTERM and waits for the end: the process writes its trace events first."""
        process = self.processes.pop(name)
        process.terminate()
        process.wait(DRAIN_S + 5)

    def kill_worker(self, name: str) -> None:
        """Sends SIGKILL: the worker does not drain."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def dead_processes(self) -> list[str]:
        """Returns the processes that ended by themselves."""
        return [name for name, process in self.processes.items() if process.poll() is not None]

    def _configured(self, bootstrap: str) -> Settings:
        file = self.folder / "hongyan.toml"
        file.write_text(
            _CONFIGURATION.format(
                bootstrap=bootstrap,
                session=SESSION_S,
                channel=CHANNEL,
                lease=LEASE_S,
                drain=DRAIN_S,
                endpoint=f"{self.provider.url}/demo",
            )
        )
        return load(file, environ={})

    def _stop_processes(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(DRAIN_S + 5)
            except subprocess.TimeoutExpired:
                process.kill()


def lanes() -> list[Lane]:
    """Returns the demo's lanes."""
    return [lane for lane in LANES if lane.channel == CHANNEL]


def _topics() -> list[str]:
    return [*(lane.topic() for lane in lanes()), dead_letter_topic(), trace_topic()]
