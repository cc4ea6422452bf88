"""Fills a PostgreSQL database with deliveries over many days, for the console's benchmark.

Run: `python -m benchmarks.console_data [--rows 10000000] [--days 60] [--database-url postgresql://…]`

Without a URL it makes a database on the local stack, and prints its address. The database stays: give its
address to `hongyan bench console --database-url`. Tables and partitions are the product's own.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec
import psycopg
from sqlalchemy import make_url

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database
from benchmarks.console_sql import (
    DAY_MS,
    LANE_SHARES,
    DayOfRows,
    day_of_rows,
    keys_of,
    receipts_of,
    trace_of,
)
from benchmarks.console_sums import spans_of, sums_of_day, sums_of_processes
from benchmarks.ground import Servers
from idempotency.fleet.snapshots import LaneSnapshot, ProcessSnapshot, encoded
from idempotency.partitions import DAYS_AHEAD, ensure_partitions
from idempotency.sql_ledger import upgrade

ROWS: Final = 10_000_000
DAYS: Final = 60
RECEIPT_DAYS: Final = 7
"""Newest days with receipts, as `receipts.keep_days` leaves them."""
TRACE_DAYS: Final = 14
"""Newest days with a trace, as `trace.keep_days` leaves them."""
_CONNECTIONS: Final = 2
_SESSION: Final = (
    "SET synchronous_commit = off",
    "SET jit = off",
    "SET work_mem = '128MB'",
    "SET maintenance_work_mem = '1GB'",
)
_ALERTS: Final = """
INSERT INTO alerts (rule, subject, told_at, kept, lane, about, text, lasting, state, since, last_at,
                    silenced, told_by, post_state, post_count, post_at, tries, post_error)
SELECT 'console_bench', 'subject-' || n, now_ms, 1, {lane}, 'account-' || n, 'Alert ' || n, 1,
       'firing', now_ms - n * 60000, now_ms, 0, 'worker-1', 'firing', 1, now_ms, 0, ''
  FROM generate_series(1, 50) AS n, (SELECT hongyan_now() AS now_ms) AS clock"""
_WORKERS: Final = """
INSERT INTO workers (id, epoch, host, pid, state, lanes, threads, lease_ms, started_at, heartbeat_at, kind,
                     program, snapshot)
SELECT 'console-bench-' || n, 1, 'host-' || n, n, 'RUNNING', %s, 64, 86400000, hongyan_now(), hongyan_now(),
       'worker', '', %s
  FROM generate_series(1, 20) AS n"""


class Shape(msgspec.Struct, frozen=True):
    """Size of the data; `people` is the number of receivers of each channel."""

    rows: int = ROWS
    days: int = DAYS
    seed: int = 1
    people: int = 0

    @property
    def receivers(self) -> int:
        """Receivers of each channel: one has some 5 deliveries, unless `people` says otherwise."""
        return self.people or max(self.rows // 20, 100)


class Filled(msgspec.Struct, frozen=True):
    """Report of a fill."""

    database_url: str
    rows: int
    days: int
    seconds: float
    rows_per_second: float
    gib: float


def fill(url: str, shape: Shape, say: Callable[[str], None] = print) -> Filled:
    """Fills the database, which is upgraded first. Raises ValueError if it has deliveries."""
    began = time.monotonic()
    upgrade(Settings(database=DatabaseSettings(url=url)), say)
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        if connection.execute("SELECT EXISTS (SELECT FROM deliveries)").fetchone() != (False,):
            raise ValueError("the database has deliveries: fill an empty one")
        days = list(days_of(connection, shape))
        make_partitions(connection, url, days)
        fill_days(plain, days, began, say)
        _keys(plain, connection, days, say)
        _beside(connection)
        sums_of_processes(connection, days[-1])
        say("vacuum, analyse")
        connection.execute("VACUUM (FREEZE, ANALYZE)")
        gib = one_of(connection, "SELECT pg_database_size(current_database())") / 2**30
        rows = one_of(connection, "SELECT count(*) FROM delivery_keys")
    seconds = time.monotonic() - began
    return Filled(url, rows, shape.days, round(seconds, 1), round(rows / seconds), round(gib, 2))


@contextmanager
def database_of(servers: Servers, name: str, *, kept: bool) -> Iterator[str]:
    """Yields the address of a new database on the stack. Drops it afterwards, unless it is kept."""
    base = servers.database_url
    with psycopg.connect(base.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            yield f"{base.rpartition('/')[0]}/{name}"
        finally:
            if not kept:
                admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def days_of(connection: psycopg.Connection[Any], shape: Shape) -> Iterator[DayOfRows]:
    """Yields the days to make, the last of them today as far as it went."""
    now = one_of(connection, "SELECT hongyan_now()")
    today, each = now // DAY_MS, shape.rows // shape.days
    for day in range(today - shape.days + 1, today + 1):
        is_last = day == today
        rows = each + (shape.rows % shape.days if is_last else 0)
        width = now % DAY_MS if is_last else DAY_MS
        yield DayOfRows(shape.seed, day, rows, width, shape.receivers, now)


def make_partitions(
    connection: psycopg.Connection[Any], url: str, days: Sequence[DayOfRows]
) -> None:
    """Lets the product make the partitions of past days, by a clock that is set back meanwhile."""
    source = "SELECT pg_get_functiondef('hongyan_now()'::regprocedure)"
    own = str(one_of(connection, source))
    back = (days[-1].day - days[0].day) * DAY_MS
    connection.execute(
        "CREATE OR REPLACE FUNCTION hongyan_now() RETURNS BIGINT LANGUAGE sql STABLE AS"
        f" 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint - {back}'"
    )
    try:
        with closing(Database(make_url(url), pool_size=1)) as database:
            ensure_partitions(database, len(days) - 1 + DAYS_AHEAD)
    finally:
        connection.execute(own.encode())
    for one in days[-TRACE_DAYS:]:
        name = f"trace_events_bench_{one.day}"
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF trace_events"
            f" FOR VALUES IN ({one.day})".encode()
        )


def fill_days(
    url: str,
    days: Sequence[DayOfRows],
    began: float,
    say: Callable[[str], None],
    without: frozenset[str] = frozenset(),
) -> None:
    """Makes the days' rows over two connections, without some columns and then without the rest."""
    done = 0

    def one(number: int) -> int:
        day = days[number]
        left = len(days) - number
        with psycopg.connect(url, autocommit=True) as connection:
            _run(connection, *_SESSION, day_of_rows(day, without))
            if left <= RECEIPT_DAYS and not without:
                _run(connection, receipts_of(day.day))
            if left <= TRACE_DAYS and not without:
                _run(connection, trace_of(day.day))
            if not without:
                sums_of_day(connection, day, spans_of(number, len(days)))
        return day.rows

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        for number, rows in enumerate(pool.map(one, range(len(days))), 1):
            done += rows
            if number % 10 == 0 or number == len(days):
                rate = done / (time.monotonic() - began)
                say(f"{done:>12,} deliveries of {number} days  {rate:>9,.0f}/s")


def _keys(
    url: str,
    connection: psycopg.Connection[Any],
    days: Sequence[DayOfRows],
    say: Callable[[str], None],
) -> None:
    """Notes each delivery's day. The index is made once at the end: keys are digests, without order."""
    _run(connection, "ALTER TABLE delivery_keys DROP CONSTRAINT delivery_keys_pkey")
    with psycopg.connect(url, autocommit=True) as own:
        _run(own, *_SESSION)
        for day in days:
            _run(own, keys_of(day.day))
        say("keys")
        _run(own, "ALTER TABLE delivery_keys ADD PRIMARY KEY (delivery_key)")


def _beside(connection: psycopg.Connection[Any]) -> None:
    """Makes the alerts and workers that an overview shows."""
    lanes = [lane for lane, _share in LANE_SHARES]
    one = LaneSnapshot(in_flight=12, waiting=3, lag=250, partitions=2, rate=400.0)
    snapshot = encoded(ProcessSnapshot(policy=3, lanes=dict.fromkeys(lanes, one)))
    spelt = "(ARRAY[{}])[1 + mod(n, {})]".format(
        ", ".join(f"'{lane}'" for lane in lanes), len(lanes)
    )
    _run(connection, _ALERTS.format(lane=spelt))
    connection.execute(_WORKERS.encode(), (",".join(lanes), snapshot))


def _run(connection: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def one_of(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def main() -> int:
    """Fills a database and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database-url", default="", help="an empty PostgreSQL database")
    parser.add_argument("--name", default="", help="name of the database on the local stack")
    flags = parser.parse_args()
    shape = Shape(rows=flags.rows, days=flags.days, seed=flags.seed)
    url = flags.database_url
    if not url:
        from deploy.local.stack import shared_stack

        stack = shared_stack(_say)
        stack.up()
        name = flags.name or f"console_bench_{shape.rows}"
        with database_of(Servers("", stack.database_url, ""), name, kept=True) as url:
            pass
    print(json.dumps(msgspec.to_builtins(fill(url, shape, _say)), indent=2))
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
