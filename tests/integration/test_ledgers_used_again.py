"""A ledger that a test gets after another is as a new copy of the template."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from backends.settings import DatabaseSettings, Settings
from tests.harness.databases import connected, drop_kept, fresh_ledger
from tests.idempotency.making import NOON, World, stand_still
from tests.services import Services
from tracing.drops import Drops
from tracing.events import Stage, TraceEvent
from tracing.sinks.database import open_database_sink

PAUSE = "INSERT INTO lane_pauses (lane, author, reason, paused_at) VALUES ('a', '', '', 1) RETURNING number"

DAYS = r"SELECT count(*) FROM pg_class WHERE relname ~ '^trace_events_\d+$'"
CLOCK = "CREATE OR REPLACE FUNCTION hongyan_now() RETURNS bigint LANGUAGE sql AS 'SELECT 5::bigint'"


@pytest.fixture
def server(services: Services) -> Iterator[str]:
    services.require("postgres")
    drop_kept()
    yield services.stack.database_url
    drop_kept()


@contextmanager
def ledger(server: str) -> Iterator[psycopg.Connection]:
    with fresh_ledger(server) as url, connected(url) as connection:
        yield connection


def one(connection: psycopg.Connection, statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    assert row is not None
    return row[0]


def identity(connection: psycopg.Connection) -> str:
    return str(one(connection, "SELECT id FROM ledger_identity"))


def test_rows_numbers_and_the_clock_of_the_test_before_are_gone(server: str) -> None:
    with ledger(server) as first:
        name, before = first.info.dbname, identity(first)
        assert one(first, PAUSE) == 1
        first.execute("UPDATE sum_marks SET rolled_at = 7")
        first.execute("DELETE FROM id_workers")
        first.execute(CLOCK)
        assert one(first, "SELECT hongyan_now()") == 5
    with ledger(server) as second:
        assert second.info.dbname == name
        assert identity(second) != before
        assert one(second, "SELECT count(*) FROM lane_pauses") == 0
        assert one(second, PAUSE) == 1
        assert one(second, "SELECT rolled_at FROM sum_marks") == 0
        assert one(second, "SELECT count(*) FROM id_workers") == 1024
        assert one(second, "SELECT hongyan_now()") > 10**12


def test_partitions_of_trace_events_are_gone_and_the_ledger_is_used_again(server: str) -> None:
    with fresh_ledger(server) as url, connected(url) as first:
        settings = Settings(database=DatabaseSettings(url=url))
        sink = open_database_sink(settings, Drops())
        sink.write([TraceEvent(message_id="m1", stage=Stage.CLAIMED, at=1_700_000_000_000)])
        sink.close(1.0)
        name = first.info.dbname
        assert one(first, "SELECT count(*) FROM trace_events") == 1
        assert one(first, DAYS) > 0
    with ledger(server) as second:
        assert second.info.dbname == name
        assert one(second, DAYS) == one(second, "SELECT count(*) FROM trace_events") == 0


def test_a_ledger_whose_clock_stood_still_is_used_again_with_the_servers_clock(server: str) -> None:
    with fresh_ledger(server) as url:
        world = World(url)
        world.open()
        world.advance(5)
        assert world.rows("SELECT hongyan_now()") == [(NOON + 5,)]
        world.close()
    with ledger(server) as second:
        assert url.endswith(second.info.dbname)
        assert one(second, "SELECT to_regclass('test_clock')") is None
        assert one(second, "SELECT hongyan_now()") != NOON + 5


def test_a_furnished_ledger_stands_at_noon_again_and_is_no_one_elses(server: str) -> None:
    with fresh_ledger(server, stand_still) as url:
        world = World(url)
        world.open()
        world.advance(5)
        world.rows_changed("INSERT INTO duties (name, holder, until) VALUES ('a', 'b', 1)")
        world.close()
    with ledger(server) as plain:
        assert not url.endswith(plain.info.dbname)
        assert one(plain, "SELECT to_regclass('test_clock')") is None
    with fresh_ledger(server, stand_still) as again:
        assert again == url
        world = World(again)
        world.open()
        assert world.rows("SELECT hongyan_now()") == [(NOON,)]
        assert world.rows("SELECT count(*) FROM duties") == [(0,)]
        world.close()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE one_more (id int)",
        "ALTER TABLE duties ADD COLUMN one_more int",
        "ALTER TABLE lane_pauses ALTER COLUMN reason DROP NOT NULL",
        "ALTER TABLE duties DROP CONSTRAINT duties_pkey",
        "ALTER TABLE console_audit DISABLE TRIGGER ALL",
        "CREATE FUNCTION one_more() RETURNS bigint LANGUAGE sql AS 'SELECT 5::bigint'",
        "GRANT SELECT ON duties TO PUBLIC",
        "ALTER DATABASE {name} SET statement_timeout = 7",
        "ANALYZE id_workers",
        "SELECT lo_create(0)",
    ],
)
def test_one_that_is_not_as_the_template_is_dropped(server: str, change: str) -> None:
    with ledger(server) as first:
        name = first.info.dbname
        first.execute(change.format(name=name))
    with ledger(server) as second:
        assert second.info.dbname != name
        assert one(second, f"SELECT count(*) FROM pg_database WHERE datname = '{name}'") == 0


def test_one_with_an_open_connection_is_dropped(server: str) -> None:
    with fresh_ledger(server) as url:
        left = connected(url)
        name = left.info.dbname
    with ledger(server) as second:
        assert second.info.dbname != name
    with pytest.raises(psycopg.OperationalError):
        left.execute("SELECT 1")
    left.close()
