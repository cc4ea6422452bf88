"""Deliveries, claims and a ledger whose clock a test moves by hand."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import psycopg

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database
from backends.sql.errors import SqlAway
from idempotency.claims.store import MS_PER_DAY
from idempotency.ledger import Claim, Claimed, Settlement, WorkerInfo
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.delivery import Delivery, Origin, deliveries_of
from message.envelope import Notification, Template, encode
from message.ids import new_id, new_token
from message.states import Event, State
from tests.harness.databases import connected, upgraded

NOON = 20_800 * MS_PER_DAY + MS_PER_DAY // 2
LEASE_MS = 1_000
_DAY = re.compile(r"_\d{8}$")
_CLOCK = """
CREATE TABLE test_clock AS SELECT {now}::bigint AS ms;
CREATE OR REPLACE FUNCTION hongyan_now() RETURNS BIGINT LANGUAGE sql STABLE
 AS 'SELECT ms FROM test_clock'
"""


class World:
    """One database and its clock, which stands still until `advance`."""

    def __init__(self, url: str, payload_key: str = "") -> None:
        self.url = url
        self.now = NOON
        self.settings = Settings(database=DatabaseSettings(url=url, payload_key=payload_key))
        self._opened: list[SqlLedger] = []
        self._real_clock = ""
        """The statement that makes PostgreSQL's own; empty while it is in force."""
        self._connection: psycopg.Connection | None = None
        """That of `run`; none before its first statement."""
        self._tables: set[str] = set()
        """Tables that were there before the clock."""
        if not self._has_clock():
            upgraded(self.settings)
            if self.is_postgres:
                self._replace_clock()

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgres")

    @property
    def first(self) -> SqlLedger:
        """The ledger that was opened first."""
        return self._opened[0] if self._opened else self.open()

    def open(self) -> SqlLedger:
        ledger = open_ledger(self.settings, lambda: self.now)
        self._opened.append(ledger)
        return ledger

    def advance(self, ms: int) -> None:
        self.now += ms
        if self.is_postgres:
            self.run("UPDATE test_clock SET ms = %s", (self.now,))

    def run(self, statement: str, values: Sequence[Any] = ()) -> None:
        if self._connection is None or self._connection.closed:
            self._connection = connected(self.url)
        self._connection.execute(statement.encode(), values)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        database = self._opened[0].database
        with database.connection() as connection:
            return [tuple(row) for row in connection.execute(query).fetchall()]

    def rows_changed(self, statement: str) -> None:
        """Runs a statement without rows on either database."""
        with self._opened[0].database.connection() as connection:
            connection.execute(statement)

    def states(self) -> dict[str, str]:
        return dict(self.rows("SELECT delivery_key, state FROM hongyan_deliveries"))

    def close(self) -> None:
        """Closes the ledgers. Takes the clock out again, and the partitions that were made for its days: a
        later test may get the database."""
        for ledger in self._opened:
            ledger.close()
        if self._connection is not None:
            self._connection.close()
        if self._real_clock:
            with connected(self.url) as connection:
                made = ", ".join(sorted(_tables(connection) - self._tables))
                connection.execute(f"{self._real_clock}; DROP TABLE IF EXISTS {made}".encode())
            self._real_clock = ""

    def _has_clock(self) -> bool:
        """Returns True for a ledger that `stand_still` has furnished."""
        if not self.is_postgres:
            return False
        with connected(self.url) as connection:
            return "test_clock" in _tables(connection)

    def _replace_clock(self) -> None:
        with connected(self.url) as connection:
            self._tables = _tables(connection)
            real = connection.execute("SELECT pg_get_functiondef('hongyan_now'::regproc)")
            (self._real_clock,) = real.fetchone() or ("",)
            connection.execute(_CLOCK.format(now=self.now).encode())


def stand_still(url: str) -> None:
    """Furnishes a ledger on PostgreSQL with the clock of a World and the partitions of its days alone: each
    one costs the server time in most statements."""
    with connected(url) as connection:
        days = ", ".join(sorted(one for one in _tables(connection) if _DAY.search(one)))
        connection.execute(f"DROP TABLE {days}".encode())
    World(url).open().close()


def _tables(connection: psycopg.Connection) -> set[str]:
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    )
    return {str(name) for (name,) in found}


def deliveries(
    *,
    receivers: Sequence[str] = ("+8613800000001",),
    text: str = "hello",
    lane: str = "sms.notice",
    id: str | None = None,  # noqa: A002
    template: Template | None = None,
    **fields: Any,
) -> list[Delivery]:
    channel, kind = lane.split(".")
    notification = Notification(
        id=id or new_id(),
        channel=channel,
        kind=kind,
        receivers=list(receivers),
        content=None if template else {"text": text},
        template=template,
        created_at=NOON,
        **fields,
    )
    origin = Origin("hongyan.dispatch." + lane, 1, 42)
    return deliveries_of(
        notification, encode(notification), expires_at=NOON + 60_000, origin=origin
    )


def delivery(**fields: Any) -> Delivery:
    return deliveries(**fields)[0]


def claims(items: Sequence[Delivery], event: Event = Event.CLAIM, **fields: Any) -> list[Claim]:
    """With a fresh token each; the copies keep what a claim writes apart from the original."""
    return [Claim(msgspec.structs.replace(d), new_token(), event, **fields) for d in items]


def adopt(made: Sequence[Claim], answers: Sequence[Claimed]) -> list[Delivery]:
    """The claims' deliveries as a worker has them after the ledger answered."""
    for claim, answer in zip(made, answers, strict=True):
        claim.delivery.token, claim.delivery.day = claim.token, answer.day
        claim.delivery.attempt = answer.attempt
    return [claim.delivery for claim in made]


def claimed(ledger: SqlLedger, *items: Delivery, owner: str = "w1") -> list[Delivery]:
    made = claims(items)
    answers = ledger.claim(made, owner)
    assert all(answer.won and answer.state is State.IN_FLIGHT for answer in answers)
    return adopt(made, answers)


def settle(
    ledger: SqlLedger,
    item: Delivery,
    event: Event,
    ordered: frozenset[str] = frozenset(),
    **fields: Any,
) -> bool:
    return ledger.settle([Settlement(item, event, **fields)], ordered)[0]


def worker(id: str = "w1", host: str = "far", pid: int = 1) -> WorkerInfo:  # noqa: A002
    return WorkerInfo(id=id, host=host, pid=pid, lanes=["sms.*"], threads=4, lease_ms=LEASE_MS)


@contextmanager
def reply_lost(database: Database) -> Iterator[None]:
    """The next use of a connection commits, and then fails as if its reply had been cut off."""
    connection = database.connection

    @contextmanager
    def cut() -> Iterator[Any]:
        database.connection = connection  # type: ignore[method-assign]
        with connection() as real:
            yield real
        raise SqlAway("the reply was lost")

    database.connection = cut  # type: ignore[method-assign]
    try:
        yield
    finally:
        database.connection = connection  # type: ignore[method-assign]


def wait_until(condition: Any, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
