"""The demo's environment: the embedded Kafka, SQLite, a provider process, and the processes to watch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from backends.kafka.embedded import EmbeddedKafka
from backends.settings import Settings, load
from hongyan.demo.folder import LEDGER, set_mark
from hongyan.dev.process_tree import ProcessTree, without_settings
from idempotency.sql_ledger import upgrade
from message.vocabulary import LANES, Lane, dead_letter_topic, trace_topic
from simulator import Faults, LedgerRecord, Lists, Simulator, spawn

CHANNEL: Final = "webhook"
LATENCY_MS: Final = "p50=30,p99=150"
LEASE_S: Final = 3.0
"""Short, so that the ledger declares a killed worker dead within seconds."""
SESSION_S: Final = 4.0
DRAIN_S: Final = 10.0
_CONFIGURATION: Final = """\
[kafka]
bootstrap = "{bootstrap}"
session_timeout_s = {session}
# The embedded Kafka answers a fetch only when this wait is over.
client = {{ "fetch.wait.max.ms" = 50 }}

[database]
url = "sqlite:///{ledger}"

[worker]
lanes = ["{channel}.*"]
lease_s = {lease}
drain_s = {drain}
health_address = "127.0.0.1:0"

[recovery]
lanes = ["{channel}.*"]
health_address = "127.0.0.1:0"
poll_s = 0.5

[console]
health_address = "127.0.0.1:0"

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
        self.tree: ProcessTree
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening, ThreadPoolExecutor(1) as pool:
            provider = pool.submit(self._spawned)
            opening.callback(lambda: provider.result().stop())
            kafka = opening.enter_context(EmbeddedKafka(topics=_topics()))
            self.provider = provider.result()
            config = self._configured(kafka.bootstrap)
            self.settings = load(config, environ={})
            upgrade(self.settings)
            set_mark(self.folder)
            tree = ProcessTree(self.folder, config, without_settings(os.environ))
            self.tree = opening.enter_context(tree)
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
        self.tree.start(name, "worker", WORKER__ID=name)

    def start_recovery(self, name: str) -> None:
        """Starts a recovery process with the built-in scheduler."""
        self.tree.start(name, "recovery", "--embedded", RECOVERY__ID=name)

    def book(self) -> Iterable[LedgerRecord]:
        """Returns the provider's own book, as it is on disk."""
        return self.provider.records()

    def _spawned(self) -> Simulator:
        rules = [Faults(latency_ms=LATENCY_MS)]
        return spawn(self.folder, rules=rules, seed="hongyan", lists=Lists(status_query=True))

    def _configured(self, bootstrap: str) -> Path:
        file = self.folder / "hongyan.toml"
        file.write_text(
            _CONFIGURATION.format(
                bootstrap=bootstrap,
                ledger=LEDGER,
                session=SESSION_S,
                channel=CHANNEL,
                lease=LEASE_S,
                drain=DRAIN_S,
                endpoint=f"{self.provider.url}/demo",
            )
        )
        return file


def lanes() -> list[Lane]:
    """Returns the demo's lanes."""
    return [lane for lane in LANES if lane.channel == CHANNEL]


def _topics() -> list[str]:
    return [*(lane.topic() for lane in lanes()), dead_letter_topic(), trace_topic()]
