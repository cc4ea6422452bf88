"""Rows of a ledger, written as they are wanted, on PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from hongyan.spark.wiring import jdbc_login
from spark_jobs.config import JdbcLogin
from tests.harness.databases import upgraded

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000


class LedgerRows:
    """A migrated ledger without a program before it."""

    def __init__(self, url: str) -> None:
        self.settings = Settings(database=DatabaseSettings(url=url))
        upgraded(self.settings)
        self.database = Database(database_url(url))
        self.is_postgres = self.database.is_postgres

    @property
    def login(self) -> JdbcLogin:
        return jdbc_login(self.settings.database.url, ".", "database.url")

    def insert(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        self.run(f"INSERT INTO {table} ({names}) VALUES ({marks})", **values)

    def delivery(self, key: str, at: int, **changes: Any) -> None:
        """A row claimed at that time; SENT unless changed."""
        values = {
            "delivery_key": key,
            "day": at // DAY_MS,
            "token": 1,
            "created_at": at,
            "updated_at": at,
            "expires_at": at + DAY_MS,
            "attempt": 1,
            "owner_epoch": 1,
            "state": "SENT",
            "lane": "sms.notice",
            "owner": "worker-1",
            "message_id": f"m{key[-2:]}",
            "receiver": b"r",
            "body_digest": b"d",
            "policy_version": "v1:a",
            "kafka_topic": "t",
            "kafka_partition": 0,
            "kafka_offset": int(key[:4], 16),
            "account": "main",
            **changes,
        }
        self.insert("deliveries", **values)
        if self.is_postgres:
            self.insert("delivery_keys", delivery_key=key, day=values["day"])

    def worker(self, name: str, heartbeat_at: int, **changes: Any) -> None:
        values = {"epoch": 1, "host": "h", "pid": 1, "state": "RUNNING", "lanes": "", "threads": 1}
        values |= {"lease_ms": 30_000, "started_at": heartbeat_at, "heartbeat_at": heartbeat_at}
        self.insert("workers", id=name, **{**values, **changes})

    def begun(self, run: int, positions: str = "{}") -> None:
        """A run of the lost job with its positions."""
        names = "id, job, holder, started_at, state, positions"
        override = " OVERRIDING SYSTEM VALUE" if self.is_postgres else ""
        self.run(
            f"INSERT INTO spark_runs ({names}){override}"
            " VALUES (:run, 'lost', 'me', 0, 'RUNNING', :positions)",
            run=run,
            positions=positions,
        )

    def run(self, statement: str, **values: Any) -> None:
        with self.database.begin() as connection:
            connection.execute(text(statement), values)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        with self.database.begin() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]


@contextmanager
def ledger_rows(url: str) -> Iterator[LedgerRows]:
    rows = LedgerRows(url)
    yield rows
    rows.database.close()
