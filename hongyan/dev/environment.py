"""The outside world of `hongyan dev`: broker, ledger and provider, embedded or from `make up`.

EmbeddedWorld: librdkafka's in-process cluster (a process of its own), SQLite, a simulator. All three begin
empty at each start, since the cluster keeps its topics in memory. StackWorld: the servers and the simulator
of the local stack, as its hongyan.toml names them.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import msgspec

from backends.environment import CONFIG_VARIABLE
from backends.kafka.clients import KafkaTrouble
from backends.kafka.embedded import EmbeddedKafka
from backends.settings import Settings, load
from hongyan.dev.config_files import CONFIG, CONTROL_FILE, Addresses, write_files
from hongyan.errors import NotDone
from idempotency.ledger import LedgerError
from idempotency.sql_ledger import upgrade
from message.vocabulary import LANES, Lane, dead_letter_topic, trace_topic
from simulator import Faults, Lists, Simulator, SimulatorError, SimulatorOptions, spawn
from simulator.receipts.plan import ReceiptOptions

CHANNELS: Final = ("sms", "email", "webhook")
LEDGER: Final = "dev-ledger.db"
BOOK: Final = "provider.jsonl"
_HOST: Final = "127.0.0.1"
_ANY_PORT: Final = f"{_HOST}:0"
_PROBE_S: Final = 2.0


class World(Protocol):
    """An environment in which the processes run."""

    config: Path
    """The hongyan.toml for every command."""
    control: str
    """Address of the simulator's page, report and control."""
    settings: dict[str, str]
    """Settings for the processes alone, such as WORKER__HEALTH_ADDRESS."""
    scheduler: tuple[str, ...]
    """Arguments for recovery."""

    def trouble(self) -> str:
        """Returns a sentence if a part of it ended; else an empty text."""


class EmbeddedWorld:
    """A context manager that leaves nothing running. Raises NotDone if a part does not start."""

    scheduler: tuple[str, ...] = ("--embedded",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self._provider: Simulator
        self._kafka = EmbeddedKafka(topics=_topics())
        self.config = folder / CONFIG
        self.control = ""
        self.settings: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            opening.enter_context(locked(self._folder))
            for name in (LEDGER, f"{LEDGER}-wal", f"{LEDGER}-shm", BOOK):
                (self._folder / name).unlink(missing_ok=True)
            receipts = _free_address()
            opening.callback(self._kafka.stop)
            try:
                self._start(receipts, opening)
            except (KafkaTrouble, LedgerError, SimulatorError) as exc:
                raise NotDone(f"the environment did not start: {exc}") from exc
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def trouble(self) -> str:
        """Returns a sentence if the broker or the simulator ended; else an empty text."""
        if not self._kafka.running:
            return "the embedded Kafka ended; start `hongyan dev` again"
        if not self._provider.running:
            return "the simulator ended; start `hongyan dev` again"
        return ""

    def _start(self, receipts: str, opening: ExitStack) -> None:
        """Starts the three at the same time, then writes the files."""
        with ThreadPoolExecutor(3) as pool:
            provider = pool.submit(spawn, self._folder, _provider_options(self._folder, receipts))
            kafka = pool.submit(self._kafka.start)
            ledger = pool.submit(upgrade, _ledger_settings(self._folder))
        self._provider = opening.enter_context(provider.result())
        kafka.result()
        ledger.result()
        self.control = self._provider.admin
        write_files(self._folder, f"sqlite:///{LEDGER}", self._addresses(receipts))

    def _addresses(self, receipts: str) -> Addresses:
        url = self._provider.url
        return {
            ("kafka", "bootstrap"): self._kafka.bootstrap,
            ("redis", "url"): "",
            ("worker", "health_address"): _ANY_PORT,
            ("recovery", "health_address"): _ANY_PORT,
            ("receipts", "listen"): receipts,
            ("accounts.sms", "endpoint"): f"{url}/aliyun_sms",
            ("accounts.mail", "endpoint"): self._provider.smtp,
            ("accounts.hook", "endpoint"): f"{url}/hook",
        }


class StackWorld:
    """The local stack. Raises NotDone if `make up` did not make it, or if a part does not answer."""

    scheduler: tuple[str, ...] = ()

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.config = _stack_folder(environ) / CONFIG
        if not self.config.is_file():
            raise NotDone(f"there is no {self.config}; run `make up` in the repository first")
        self.control = ""
        self.settings = {
            "WORKER__HEALTH_ADDRESS": _ANY_PORT,
            "RECOVERY__HEALTH_ADDRESS": _ANY_PORT,
        }
        self._settings = load(self.config, environ={})

    def __enter__(self) -> Self:
        from backends.kafka import topics

        self.control = self._simulator()
        try:
            upgrade(self._settings)
            topics.apply(self._settings.kafka, lanes(), topics.Wish())
        except (KafkaTrouble, LedgerError) as exc:
            raise NotDone(f"the stack does not answer ({exc}); run `make up` again") from exc
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaves the stack as it is."""

    def trouble(self) -> str:
        """Returns an empty text: the processes wait for servers that are away."""
        return ""

    def _simulator(self) -> str:
        """Returns the address of the simulator's control, which answers. Raises NotDone."""
        file = self.config.with_name(CONTROL_FILE)
        try:
            found = urlsplit(file.read_text().strip())
            socket.create_connection((found.hostname or _HOST, found.port or 0), _PROBE_S).close()
        except (OSError, ValueError) as exc:
            raise NotDone(f"the stack's simulator does not answer ({exc}); run `make up`") from exc
        return found.geturl()


def _stack_folder(environ: Mapping[str, str]) -> Path:
    """Returns the folder that is named, or that of the configuration in use, or `.stack` here."""
    named = Path(environ.get(CONFIG_VARIABLE, "")).parent
    used = named if (named / CONTROL_FILE).exists() else Path(".stack")
    return Path(environ.get("HONGYAN_STACK_DIR") or used).expanduser().absolute()


@contextmanager
def locked(folder: Path, command: str = "hongyan dev") -> Iterator[None]:
    """Keeps the folder for one run of the command. Raises NotDone if another one has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise NotDone(
                f"`{command}` runs in {folder} already (pid {lock.read().strip() or 'unknown'}); "
                "end it, or give another --folder"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def lanes() -> list[Lane]:
    """Returns the lanes that have an account."""
    return [lane for lane in LANES if lane.channel in CHANNELS]


def _topics() -> list[str]:
    return [*(lane.topic() for lane in lanes()), dead_letter_topic(), trace_topic()]


def _ledger_settings(folder: Path) -> Settings:
    database = msgspec.structs.replace(Settings().database, url=f"sqlite:///{LEDGER}")
    return Settings(database=database, base=str(folder))


def _provider_options(folder: Path, receipts: str) -> SimulatorOptions:
    url = f"http://{receipts}/receipts/sms?secret=simulator-secret"
    return SimulatorOptions(
        ledger=str(folder / BOOK),
        smtp_port=0,
        rules=[Faults(latency_ms="p50=20,p99=80")],
        lists=Lists(status_query=True),
        receipts={"aliyun_sms": ReceiptOptions(url=url, delay_ms="1000-2000", attempts=20)},
    )


def _free_address() -> str:
    """Returns an address whose port is free now."""
    with socket.create_server((_HOST, 0)) as server:
        return f"{_HOST}:{server.getsockname()[1]}"
