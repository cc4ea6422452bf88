"""The processes of a whole platform, each a real `hongyan COMMAND`, and what they take of the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from benchmarks.console_client import ConsoleProgram, console_on
from benchmarks.ground import Servers
from benchmarks.meter import resident_mib
from hongyan.dev.config_files import FILES
from hongyan.dev.process_tree import ProcessTree
from message.vocabulary import Lane
from simulator import Faults, Lists, Simulator, spawn
from simulator.receipts.plan import ReceiptOptions
from tests.foreign.loopback import free_port
from tests.harness.fleet import toml

NOTICES, CODES = Lane("webhook", "notice"), Lane("sms", "verification")
LANES: Final = (NOTICES, CODES)
BIZ_TYPE: Final = "order"
_SECRET: Final = "simulator-secret"
_READY_S: Final = 120.0
_LOOK_S: Final = 0.2
_HERE: Final = "127.0.0.1:0"
_PROCESSES: Final = {
    "worker-1": "worker",
    "worker-2": "worker",
    "recovery": "recovery",
    "receipts": "receipts",
    "relay": "relay",
    "lookback": "lookback",
    "gateway": "gateway",
}
_POLICY: Final = {"threads": 16, "timeout_ms": 10_000, "retry": {"attempts": 20, "base_ms": 500}}
_RULES: Final = Faults(latency_ms="p50=10,p99=60", errors={"503": 0.02}, reset=0.005)


class FleetGround(NamedTuple):
    """Topics, databases and addresses of one run alone."""

    prefix: str
    """Of the topics."""
    database_url: str
    shop_url: str
    """The business's own database, with its outbox."""
    check_url: str
    """Where the business tells what became of a transaction."""


class ProcessUsage(NamedTuple):
    """Memory, open files and threads of a process at one moment."""

    rss_mib: float
    files: float
    threads: float

    @classmethod
    def of(cls, pid: int) -> Self:
        """Returns that of a process of this machine."""
        process = Path(f"/proc/{pid}")
        files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
        return cls(round(resident_mib(pid), 1), files, threads)


class FleetProcesses:
    """All processes, the provider, and a person at the console. For one thread."""

    def __init__(self, tree: ProcessTree, console: ConsoleProgram, provider: Simulator) -> None:
        self._tree = tree
        self.console, self.provider = console, provider
        self.gateway_url = f"http://{tree.address('gateway')}"
        self.pids = {name: tree.pid(name) for name in _PROCESSES}
        self.pids |= {"console": console.program.process.pid, "business": os.getpid()}

    def check(self) -> None:
        """Raises RuntimeError if a process has ended."""
        for name, code in self._tree.ended():
            raise RuntimeError(f"{name} ended with {code}: {self._tree.last_error(name)}")


@contextmanager
def platform_on(servers: Servers, folder: Path, ground: FleetGround) -> Iterator[FleetProcesses]:
    """Yields all processes, ready."""
    receipts = f"127.0.0.1:{free_port()}"
    with ExitStack() as held:
        provider = held.enter_context(_provider(folder, receipts))
        config = _configured(servers, folder, ground, provider, receipts)
        tree = held.enter_context(ProcessTree(folder, config, os.environ))
        for name, command in _PROCESSES.items():
            tree.start(name, command, WORKER__ID=f"{ground.prefix}-{name}")
        _await_ready(tree)
        environment = {**os.environ, "HONGYAN_CONFIG": str(config)}
        console = held.enter_context(console_on(ground.database_url, environment, folder))
        yield FleetProcesses(tree, console, provider)


def _provider(folder: Path, receipts: str) -> Simulator:
    url = f"http://{receipts}/receipts/sms?secret={_SECRET}"
    return spawn(
        folder,
        fsync=False,
        rules=[_RULES],
        lists=Lists(status_query=True),
        receipts={"aliyun_sms": ReceiptOptions(url=url, delay_ms="1000-3000", doubled=0.01)},
    )


def _configured(
    servers: Servers, folder: Path, ground: FleetGround, provider: Simulator, receipts: str
) -> Path:
    """Writes hongyan.toml and policy.toml. Returns the path of the first."""
    (folder / _SECRET).write_text(f"{_SECRET}\n")
    lanes = [lane.name for lane in LANES]
    config = folder / "hongyan.toml"
    tables: Mapping[str, Mapping[str, Any]] = {
        "kafka": {
            "bootstrap": servers.bootstrap,
            "topic_prefix": ground.prefix,
            "group_id": ground.prefix,
        },
        "database": {"url": ground.database_url},
        "redis": {"url": servers.redis_url, "prefix": ground.prefix},
        "worker": {"lanes": lanes, "health_address": _HERE},
        "recovery": {"lanes": lanes, "health_address": _HERE},
        "receipts": {
            "listen": receipts,
            "match_s": 1,
            "accounts": {"sms": {"secret_file": _SECRET}},
        },
        "relay": {"outbox_url": ground.shop_url, "health_address": _HERE, "keep_hours": 0},
        "gateway": {"listen": _HERE, "health_address": _HERE, "access_log": False},
        "lookback": _lookback(ground),
        "accounts": {
            "hook": {
                "provider": "webhook",
                "endpoint": f"{provider.url}/hook",
                "status_query": True,
                "query_lag_s": 2,
            },
            "sms": {
                "provider": "aliyun_sms",
                "endpoint": f"{provider.url}/aliyun_sms",
                "access_key_id": "simulator-id",
                "access_key_secret_file": _SECRET,
                "sign_name": "鸿雁",
                "query_lag_s": 2,
            },
        },
    }
    allowed = {"allow_literal_secrets": True}  # the local stack's password is in its URL
    config.write_text(toml({**allowed, **tables}))
    (folder / "templates.toml").write_text((FILES / "templates.toml").read_text("utf-8"), "utf-8")
    (folder / "policy.toml").write_text(toml({"lanes": dict.fromkeys(lanes, _POLICY)}))
    return config


def _lookback(ground: FleetGround) -> Mapping[str, Any]:
    return {
        "topic": f"{ground.prefix}.look_back_msg",
        "health_address": _HERE,
        "checks": {"shop": {"url": ground.check_url}},
        "biz_types": {
            BIZ_TYPE: {
                "check": "shop",
                "topics": [f"{ground.prefix}.dispatch.*"],
                "immunity_s": 5,
                "check_s": 1,
            }
        },
    }


def _await_ready(tree: ProcessTree) -> None:
    """Waits until all serve. Raises RuntimeError."""
    until = time.monotonic() + _READY_S
    while waited := [name for name in _PROCESSES if not tree.ready(name)]:
        ended = [f"{name} ended with {code}" for name, code in tree.ended()]
        if ended or time.monotonic() > until:
            raise RuntimeError(f"not ready: {ended or waited}; {tree.last_error(waited[0])}")
        time.sleep(_LOOK_S)
