"""A recovery on a real database with a real provider: rows as a worker leaves them, and what became of
them by the provider's own ledger."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from backends.settings import (
    DatabaseSettings,
    PolicySettings,
    RecoverySettings,
    RedisSettings,
    Settings,
    TraceSettings,
)
from deploy.local.layout import REPOSITORY
from idempotency.ledger import Claim, Settlement
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery, Origin, deliveries_of
from message.envelope import Notification, encode
from message.ids import new_id, new_token
from message.states import Event
from message.vocabulary import Lane
from policy.loading import load_for
from recovery.scheduling.celery_names import names_of
from recovery.wiring import OpenedRecovery, open_recovery
from simulator import Simulator
from tests.harness.databases import upgraded
from tests.harness.fleet import toml
from tests.harness.fork_server import HONGYAN, Process, Program, start
from tests.harness.notifications import webhook
from tests.idempotency.making import wait_until, worker

LANE = "webhook.notice"
NAMES = names_of([LANE])
"""Of Celery, for recoveries of this lane."""
_OWNER = "w1"
WAIT_S = 60.0


class Ground:
    """One ledger, one provider, and as many recoveries as a test wants."""

    def __init__(
        self, url: str, provider: Simulator, folder: Path, *, redis_url: str = "", **policy: Any
    ) -> None:
        self.provider = provider
        self.folder = folder
        lane = {"timeout_ms": 5_000, "retry": {"base_ms": 50, "cap_ms": 100}, **policy}
        (folder / "policy.toml").write_text(toml({"lanes": {LANE: lane}}))
        self.settings = Settings(
            database=DatabaseSettings(url=url),
            redis=RedisSettings(url=redis_url, prefix=f"t{new_id()[:8]}"),
            policy=PolicySettings(file="policy.toml"),
            trace=TraceSettings(kafka=False, database=False),
            recovery=RecoverySettings(
                lanes=[LANE], poll_s=0.05, lease_s=1.5, drain_s=10, health_address="127.0.0.1:0"
            ),
            accounts={"main": webhook(f"{provider.url}/hook")},
            base=str(folder),
        )
        upgraded(self.settings)
        self.ledger: SqlLedger = open_ledger(self.settings)
        self.ledger.register(msgspec.structs.replace(worker(_OWNER), lease_ms=600_000))
        self.processes: list[Process] = []

    # -- rows --

    def claimed(self, count: int = 1, *, ttl_ms: int = 60_000, **fields: Any) -> list[Delivery]:
        """Rows IN_FLIGHT, as a worker has them before it calls."""
        items = [self._delivery(ttl_ms, **fields) for _ in range(count)]
        claims = [Claim(item, new_token()) for item in items]
        for claim, answer in zip(claims, self.ledger.claim(claims, _OWNER), strict=True):
            claim.delivery.token, claim.delivery.day = claim.token, answer.day
            claim.delivery.attempt, claim.delivery.account = answer.attempt, "main"
        return items

    def waiting(self, count: int = 1, **fields: Any) -> list[Delivery]:
        """Rows in RETRY, due at once."""
        items = self.claimed(count, **fields)
        self.ledger.settle([Settlement(i, Event.NOT_SENT, "http_429") for i in items])
        return items

    def doubted(self, count: int = 1, **fields: Any) -> list[Delivery]:
        """Rows in doubt."""
        items = self.claimed(count, **fields)
        self.ledger.settle([Settlement(i, Event.UNKNOWN, "timeout") for i in items])
        return items

    def long_doubted(self) -> list[Delivery]:
        """A row whose call in doubt is long ago: the time is over in which only the provider is asked."""
        items = self.doubted()
        with self.ledger.database.begin() as connection:
            connection.exec_driver_sql("UPDATE deliveries SET called_at = 1, last_called_at = 1")
        return items

    def _delivery(self, ttl_ms: int, **fields: Any) -> Delivery:
        now = self.ledger.now_ms()
        notification = Notification(
            id=new_id(),
            channel="webhook",
            kind="notice",
            receivers=["user-1"],
            content={"text": "hello"},
            created_at=now,
            **fields,
        )
        (one,) = deliveries_of(
            notification,
            encode(notification),
            expires_at=now + ttl_ms,
            origin=Origin("hongyan.dispatch.webhook.notice", 0, 1),
        )
        return one

    # -- what became of them --

    def states(self) -> Counter[str]:
        return Counter(
            state for (_lane, state), n in self.ledger.queries().counts().items() for _ in range(n)
        )

    def state(self, item: Delivery) -> tuple[str, str | None]:
        row = self.ledger.queries().by_key(item.key)
        assert row is not None
        return row.state, row.reason

    def await_states(self, timeout_s: float = WAIT_S, **wanted: int) -> None:
        deadline = time.monotonic() + timeout_s
        while (found := self.states()) != wanted:
            assert time.monotonic() < deadline, f"{wanted}, but {dict(found)}\n{self.logs()}"
            time.sleep(0.05)

    def accepted(self) -> Counter[str]:
        """Key to the number of times that the provider accepted it, by its file on disk."""
        return Counter(r.key for r in self.provider.records() if r.accepted)

    # -- recoveries --

    @contextmanager
    def recovery(self, **changes: Any) -> Iterator[OpenedRecovery]:
        """One in this process, not started."""
        recovery = msgspec.structs.replace(self.settings.recovery, **changes)
        settings = msgspec.structs.replace(self.settings, recovery=recovery)
        with ExitStack() as stack:
            stop = threading.Event()
            opened = open_recovery(
                settings, load_for(settings), [Lane("webhook", "notice")], stack, stop
            )
            yield opened
            opened.recovery.drain(5.0)

    def process(self, name: str, *, embedded: bool = True, orders: Path | None = None) -> Process:
        """A real `hongyan recovery`, started; its log is JSON lines in a file of its own. `orders` is
        the file of `tests.chaos.points`."""
        config = self.folder / "hongyan.toml"
        tables = msgspec.to_builtins(self.settings)
        tables.pop("base")
        tables.pop("allow_literal_secrets")  # the stack's password is in its URL
        tables["log"] = {"format": "json"}
        for table in tables.values():  # TOML has no null
            for key in [key for key, value in table.items() if value is None]:
                del table[key]
        secret = tables["alerts"].pop("secret")  # no secret stands in a file
        config.write_text(f"allow_literal_secrets = true\n{toml(tables)}")
        environment = {
            **os.environ,
            "HONGYAN_CONFIG": str(config),
            "HONGYAN_RECOVERY__ID": name,
            "HONGYAN_ALERTS__SECRET": secret,
            **({"CHAOS_ORDERS": str(orders)} if orders else {}),
        }
        flags = ["--embedded"] if embedded else []
        program = Program("tests.recovery.launch", flags, environment, str(REPOSITORY))
        if embedded and orders is None:  # Celery and the orders' points come before our modules
            program = Program(HONGYAN, ["recovery", *flags], environment, str(REPOSITORY))
        with (self.folder / f"{name}.log").open("wb") as output:
            process = start(program, output.fileno(), output.fileno())
        self.processes.append(process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def logs(self) -> str:
        return "\n".join(
            p.read_text("utf-8", "replace")[-4_000:] for p in self.folder.glob("*.log")
        )

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        self.ledger.close()


def until(condition: Callable[[], Any]) -> None:
    wait_until(condition, WAIT_S)
