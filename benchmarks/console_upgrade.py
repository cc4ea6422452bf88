"""The longest wait of a claim while a large ledger is upgraded.

Run: `python -m benchmarks.console_upgrade [--rows 10000000] [--days 60] [--copy-of DATABASE] [--json]`

It fills a ledger of version 0019, which knows nothing of the console, and upgrades it with all its indexes.
With `--copy-of` it copies a filled database of the local stack instead, and takes from the copy what a
ledger of 0019 does not have. A claimer goes on meanwhile with the statements of a program of that version.
Exits 1 above 2 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import psycopg
from alembic import command
from sqlalchemy import make_url

from backends.settings import DatabaseSettings, Settings
from backends.sql import schema
from backends.sql.database import Database
from benchmarks.console_data import Shape, days_of, fill_days, make_partitions, one_of
from benchmarks.console_older_ledger import older_copy
from benchmarks.ground import empty_database
from idempotency.sql_ledger import upgrade
from message.ids import new_id, new_token

BEFORE: Final = "0019"
BAR_S: Final = 2.0
ROWS: Final = 10_000_000
DAYS: Final = 60
PAUSE_S: Final = 0.005
_NEW_COLUMNS: Final = frozenset({"receiver_hash", "receiver_text_hash", "template"})
_BATCH: Final = 20
# The locks of a claim and of a settlement are those of a program of that version.
_KEYS: Final = """
INSERT INTO delivery_keys (delivery_key, day)
SELECT k, (hongyan_now() / 86400000)::int FROM unnest(%(keys)s::text[]) AS k"""
_CLAIM: Final = """
INSERT INTO deliveries (delivery_key, day, token, created_at, updated_at, expires_at, attempt, owner_epoch,
                        state, lane, owner, message_id, receiver, body_digest, policy_version)
SELECT k, (hongyan_now() / 86400000)::int, %(token)s, hongyan_now(), hongyan_now(), hongyan_now() + 60000,
       1, 1, 'IN_FLIGHT', 'sms.notice', 'upgrade-bench', k, ''::bytea, ''::bytea, ''
  FROM unnest(%(keys)s::text[]) AS k"""
_SETTLE: Final = """
UPDATE deliveries SET state = 'SENT', updated_at = hongyan_now()
 WHERE delivery_key = ANY (%(keys)s::text[]) AND day = (hongyan_now() / 86400000)::int"""


class UpgradeRun(msgspec.Struct, frozen=True):
    """Waits of claims, of the claim and its settlement together, in seconds."""

    rows: int
    upgrade_s: float
    claims: int
    median_s: float
    longest_s: float
    failures: int
    first_failure: str = ""

    @property
    def holds(self) -> bool:
        """Whether no claim failed or waited for too long."""
        return self.longest_s <= BAR_S and not self.failures and self.claims > 0


class Claimer:
    """Claims and settles on a connection of its own until `stop`."""

    def __init__(self, url: str) -> None:
        self.waits: list[float] = []  # its thread writes it
        self.failures: list[str] = []  # its thread writes it
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="claimer", daemon=True)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Claims while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def _run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._stopped.is_set():
                began = time.monotonic()
                try:
                    _claim(connection)
                except psycopg.Error as exc:
                    self.failures.append(str(exc).partition("\n")[0])
                self.waits.append(time.monotonic() - began)
                self._stopped.wait(PAUSE_S)


def measure(server: str, shape: Shape, say: Callable[[str], None]) -> UpgradeRun:
    """Fills and upgrades a database of its own on the server. Returns the claims' waits."""
    with empty_database(server, f"upgrade_{uuid.uuid4().hex[:8]}") as url:
        plain = url.replace("+psycopg", "")
        migrate(url, BEFORE)
        with psycopg.connect(plain, autocommit=True) as connection:
            days = list(days_of(connection, shape))
            make_partitions(connection, url, days)
            fill_days(plain, days, time.monotonic(), say, without=_NEW_COLUMNS)
            connection.execute("VACUUM ANALYZE deliveries")
        return _upgraded(url, say)


def measure_copy(server: str, filled: str, say: Callable[[str], None]) -> UpgradeRun:
    """Upgrades a copy of the server's database `filled`, which nobody may use meanwhile. Returns the
    claims' waits. Raises ValueError."""
    name = f"upgrade_{uuid.uuid4().hex[:8]}"
    with older_copy(server, name, filled, lambda url: migrate(url, BEFORE)) as url:
        return _upgraded(url, say)


def _upgraded(url: str, say: Callable[[str], None]) -> UpgradeRun:
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain) as connection:
        rows = int(one_of(connection, "SELECT count(*) FROM delivery_keys"))
        rows = rows or int(one_of(connection, "SELECT count(*) FROM deliveries"))
    say(f"{rows:,} rows at {BEFORE}; now the upgrade")
    claimer, began = Claimer(plain), time.monotonic()
    with claimer.going_on():
        upgrade(Settings(database=DatabaseSettings(url=url)), say)
        took = time.monotonic() - began
    waits = claimer.waits
    return UpgradeRun(
        rows,
        round(took, 1),
        len(waits),
        round(statistics.median(waits), 4),
        round(max(waits), 3),
        len(claimer.failures),
        claimer.failures[0] if claimer.failures else "",
    )


def migrate(url: str, version: str) -> None:
    """Brings an empty database to an older version."""
    database = Database(make_url(url), pool_size=1)
    try:
        with database.begin() as connection:
            command.upgrade(schema._config(connection), version)  # noqa: SLF001 - no program stops there
    finally:
        database.close()


def _claim(connection: psycopg.Connection[Any]) -> None:
    values = {"keys": [new_id() for _ in range(_BATCH)], "token": new_token()}
    with connection.transaction():
        connection.execute(_KEYS, values)
        connection.execute(_CLAIM, values)
    connection.execute(_SETTLE, values)


def main() -> int:
    """Measures and prints. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--copy-of", default="", help="a filled database of the local stack")
    parser.add_argument("--json", action="store_true")
    flags = parser.parse_args()
    from deploy.local.stack import shared_stack

    stack = shared_stack(_say)
    stack.up()
    if flags.copy_of:
        found = measure_copy(stack.database_url, flags.copy_of, _say)
    else:
        found = measure(stack.database_url, Shape(rows=flags.rows, days=flags.days), _say)
    if flags.json:
        print(json.dumps(msgspec.to_builtins(found) | {"bar_s": BAR_S, "holds": found.holds}))
    else:
        print(
            f"{found.claims:,} claims during {found.upgrade_s:g} s: median {found.median_s * 1000:.1f} ms,"
            f" longest {found.longest_s:g} s (bar {BAR_S:g} s), {found.failures} failed"
        )
    return 0 if found.holds else 1


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
