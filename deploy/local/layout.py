"""Where a stack lives: its folder, its ports, its addresses. No I/O but reading the record."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import StackError

REPOSITORY = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"

DEFAULT_PORT_BASE = 19_000
"""Below Linux's range for outgoing connections (32768–60999), so nothing takes a port by chance."""

# A server's port is the base plus the tail of the port everyone knows it by.
KAFKA, CONTROLLER, REDIS, POSTGRES, MARIADB = 92, 192, 379, 432, 306
WORKER, RECOVERY, RECEIPTS = 464, 466, 470
SIMULATOR_CONTROL, SIMULATOR, SIMULATOR_MAIL = 898, 899, 825
MAX_BROKERS = 3

VERSION = 1
"""Of the data in a stack's folder. Raised whenever a server cannot read what its successor wrote."""

DATABASE = USER = PASSWORD = "hongyan"  # noqa: S105
"""A login for loopback only; a real deployment takes its own from the environment."""


@dataclass(frozen=True)
class Layout:
    """One stack: a folder of its own and a port range of its own."""

    root: Path
    port_base: int = DEFAULT_PORT_BASE
    brokers: int = 1
    fsync: bool = True
    """Whether PostgreSQL waits for the disk. Off, what it has written survives the end of its processes,
    not that of the machine."""

    def __post_init__(self) -> None:
        if self.brokers not in (1, MAX_BROKERS):
            raise StackError(f"BROKERS must be 1 or {MAX_BROKERS}, not {self.brokers}.")
        if not 1024 <= self.port_base <= 65_000:
            raise StackError(
                f"HONGYAN_STACK_PORT_BASE must lie between 1024 and 65000, not {self.port_base}."
            )

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def started_by_tests(self) -> Path:
        """There while nobody but a test run asked for this stack, so that tests may stop it."""
        return self.root / "started-by-tests"

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    def kafka_port(self, broker: int) -> int:
        return self.port_base + KAFKA + broker - 1

    def controller_port(self, broker: int) -> int:
        return self.port_base + CONTROLLER + broker - 1

    @property
    def redis_port(self) -> int:
        return self.port_base + REDIS

    @property
    def postgres_port(self) -> int:
        return self.port_base + POSTGRES

    @property
    def mariadb_port(self) -> int:
        return self.port_base + MARIADB

    @property
    def simulator_ports(self) -> dict[str, int]:
        """The simulator's ports: of the protocols, of its control, of its mail server."""
        tails = {"http": SIMULATOR, "control": SIMULATOR_CONTROL, "smtp": SIMULATOR_MAIL}
        return {name: self.port_base + tail for name, tail in tails.items()}

    @property
    def config(self) -> Path:
        """The hongyan.toml that `up --with-simulator` writes."""
        return self.root / "hongyan.toml"

    @property
    def ports(self) -> list[int]:
        kafka = [self.kafka_port(n) for n in self.broker_ids]
        controllers = [self.controller_port(n) for n in self.broker_ids]
        return [*kafka, *controllers, self.redis_port, self.postgres_port, self.mariadb_port]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self.kafka_port(n)}" for n in self.broker_ids)

    @property
    def database_url(self) -> str:
        login = f"{USER}:{PASSWORD}@{HOST}:{self.postgres_port}"
        return f"postgresql+psycopg://{login}/{DATABASE}"

    @property
    def mariadb_url(self) -> str:
        """Of the server; tests make databases of their own in it."""
        return f"mysql+pymysql://{USER}:{PASSWORD}@{HOST}:{self.mariadb_port}/mysql"

    @property
    def redis_url(self) -> str:
        return f"redis://{HOST}:{self.redis_port}/0"

    def environment(self) -> dict[str, str]:
        """The settings that point `hongyan` at this stack."""
        return {
            "HONGYAN_KAFKA__BOOTSTRAP": self.bootstrap,
            "HONGYAN_DATABASE__URL": self.database_url,
            "HONGYAN_REDIS__URL": self.redis_url,
        }


def from_environment(env: Mapping[str, str] = os.environ) -> Layout:
    """What the environment names wins, then what the last `up` recorded, then the defaults."""
    root = Path(env.get("HONGYAN_STACK_DIR") or REPOSITORY / ".stack").expanduser().absolute()
    recorded = read_record(root)
    return Layout(
        root,
        _number(env, "HONGYAN_STACK_PORT_BASE", recorded.get("port_base", DEFAULT_PORT_BASE)),
        _number(env, "BROKERS", recorded.get("brokers", 1)),
        _switch(env, "HONGYAN_STACK_FSYNC"),
    )


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise StackError(f"{name} must be a whole number, not {text!r}.") from None


def _switch(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "")
    if text not in ("", "on", "off"):
        raise StackError(f"{name} must be on or off, not {text!r}.")
    return text != "off"


def read_record(root: Path) -> dict[str, int]:
    try:
        text = json.loads((root / "stack.json").read_text())
        return {"port_base": int(text["port_base"]), "brokers": int(text["brokers"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # none yet: the defaults serve


def check_record(root: Path) -> None:
    """Raises StackError for data that a newer version of this stack made: its servers would not read it."""
    try:
        made_by = int(json.loads((root / "stack.json").read_text()).get("version", VERSION))
    except (OSError, ValueError, AttributeError, TypeError):
        return
    if made_by > VERSION:
        raise StackError(
            f"{root} was made by another version of Hongyan (stack version {made_by}, here {VERSION}); "
            "remove it with `python3 -m deploy.local down --wipe`, or set HONGYAN_STACK_DIR to another "
            "folder, and run this again."
        )


def record(layout: Layout) -> dict[str, int]:
    return {"port_base": layout.port_base, "brokers": layout.brokers}


def write_record(layout: Layout) -> None:
    """Writes the file whole or not at all: from half a file the defaults would be taken."""
    draft = layout.root / f"stack.json.{os.getpid()}"
    draft.write_text(json.dumps({**record(layout), "version": VERSION}) + "\n")
    draft.replace(layout.root / "stack.json")
