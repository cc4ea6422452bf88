"""Indexes of a ledger in use: made without holding claims up, resumed after a kill, whole for new days."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest
from sqlalchemy import make_url

from backends.sql import online_indexes, schema
from backends.sql.database import Database
from backends.sql.online_indexes import INDEXES, build, missing
from benchmarks.console_upgrade import migrate
from idempotency.claims.store import MS_PER_DAY
from idempotency.partitions import ensure_partitions
from idempotency.sql_ledger import upgrade
from tests.idempotency.making import World, claimed, delivery


@pytest.fixture
def world(ledger_database: str) -> World:
    """A ledger with a row and none of the indexes, as the version before left it."""
    world = World(ledger_database)
    claimed(world.open(), delivery())
    for index in INDEXES:
        world.run(f"DROP INDEX {index.name}")
    return world


def parts(world: World, name: str) -> int:
    return int(
        world.rows(f"SELECT count(*) FROM pg_inherits WHERE inhparent = to_regclass('{name}')")[0][
            0
        ]
    )


def partitions(world: World) -> int:
    return parts(world, "deliveries")


def database_of(world: World) -> Database:
    return Database(make_url(world.url), pool_size=1)


def test_an_upgrade_makes_what_is_missing_and_says_so(world: World) -> None:
    told: list[str] = []
    assert missing(world.open().database) == [index.name for index in INDEXES]
    upgrade(world.settings, told.append)
    assert missing(world.open().database) == []
    assert "receipts_delivery" in told
    for name in ("deliveries_created", "deliveries_receiver_text", "deliveries_template"):
        assert parts(world, name) == partitions(world)
    again: list[str] = []
    upgrade(world.settings, again.append)
    assert again == []
    world.close()


def test_an_index_in_whose_place_others_are_goes_at_the_upgrade_after_them(world: World) -> None:
    world.run("CREATE INDEX deliveries_receiver ON deliveries (receiver_hash, created_at)")
    build(make_url(world.url), lambda _step: None)
    assert parts(world, "deliveries_receiver") == partitions(world), "an older console reads it"
    told: list[str] = []
    upgrade(world.settings, told.append)
    assert told == ["deliveries_receiver: dropped"]
    assert world.rows("SELECT to_regclass('deliveries_receiver')") == [(None,)]
    world.close()


def test_a_day_in_use_keeps_the_index_and_holds_no_claim_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online_indexes, "_DROP_TRIES", 2)
    monkeypatch.setattr(online_indexes, "_PAUSE_S", 0.05)
    world.run("CREATE INDEX deliveries_receiver ON deliveries (receiver_hash, created_at)")
    build(make_url(world.url), lambda _step: None)
    told: list[str] = []
    with psycopg.connect(world.url.replace("+psycopg", "")) as holder:
        holder.execute("SELECT * FROM deliveries LIMIT 1")
        upgrade(world.settings, told.append)
    assert told == ["deliveries_receiver: still there, since it is in use"]
    assert parts(world, "deliveries_receiver") == partitions(world)
    world.close()


def test_a_build_that_was_killed_goes_on_where_it_was(world: World) -> None:
    stopped = RuntimeError("killed")

    def stop(step: str) -> None:
        if "_2" in step:
            raise stopped

    with pytest.raises(RuntimeError):
        build(make_url(world.url), stop)
    # As a CREATE INDEX CONCURRENTLY that was cut off leaves it.
    (left,) = world.rows(
        "SELECT inhrelid::regclass::text FROM pg_inherits"
        " WHERE inhparent = 'deliveries'::regclass ORDER BY 1 LIMIT 1"
    )
    own = f"{left[0]}_receiver_text"
    world.run(f"CREATE INDEX {own} ON {left[0]} (receiver_text_hash)")
    world.run(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{own}'::regclass")
    assert "deliveries_receiver_text" in missing(world.open().database)
    upgrade(world.settings)
    assert missing(world.open().database) == []
    world.close()


def test_days_made_meanwhile_and_archived_days_have_them_too(world: World) -> None:
    ledger = world.open()
    world.run("CREATE SCHEMA archive")
    world.run("CREATE TABLE archive.deliveries_20260101 (LIKE deliveries)")

    def next_day(step: str) -> None:
        if step.startswith("deliveries_receiver_text: ") and partitions(world) < 20:
            world.advance(10 * MS_PER_DAY)
            ensure_partitions(ledger.database)

    build(make_url(world.url), next_day)
    upgrade(world.settings)
    assert missing(ledger.database) == []
    world.advance(5 * MS_PER_DAY)
    ensure_partitions(ledger.database)
    for name in ("deliveries_created", "deliveries_receiver_text"):
        assert parts(world, name) == partitions(world)
    found = world.rows("SELECT indexname FROM pg_indexes WHERE tablename = 'deliveries_20260101'")
    assert ("deliveries_20260101_receiver_text",) in found
    world.close()


def test_a_day_that_came_back_from_an_older_dump_gets_its_columns_and_indexes(world: World) -> None:
    world.run("CREATE SCHEMA archive")
    world.run("CREATE TABLE archive.deliveries_20260101 (LIKE deliveries)")
    for column in ("receiver_text_hash", "template"):
        world.run(f"ALTER TABLE archive.deliveries_20260101 DROP COLUMN {column}")
    upgrade(world.settings)
    found = world.rows("SELECT receiver_text_hash, template FROM archive.deliveries_20260101")
    assert found == []
    indexes = world.rows("SELECT indexname FROM pg_indexes WHERE tablename = 'deliveries_20260101'")
    assert ("deliveries_20260101_receiver_text",) in indexes
    assert ("deliveries_20260101_receiver_old",) not in indexes
    world.close()


def test_claims_wait_for_a_build_no_longer_than_for_its_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that keeps the table for a while delays the build, and the build no claim."""
    monkeypatch.setattr(online_indexes, "LOCK_MS", 100)
    monkeypatch.setattr(online_indexes, "_PAUSE_S", 0.05)
    ledger = world.open()
    with psycopg.connect(world.url.replace("+psycopg", "")) as holder:
        holder.execute("LOCK TABLE deliveries IN ROW EXCLUSIVE MODE")
        building = threading.Thread(target=build, args=(make_url(world.url), lambda _step: None))
        building.start()
        worst = 0.0
        for _ in range(10):
            began = time.monotonic()
            claimed(ledger, delivery())
            worst = max(worst, time.monotonic() - began)
            building.join(0.03)
        assert building.is_alive()
        holder.commit()
    building.join(30)
    assert not building.is_alive()
    assert worst < 2.0
    assert missing(ledger.database) == []
    world.close()


def test_a_migration_gives_its_locks_back_and_tries_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate(database, "0020")
    monkeypatch.setattr(schema, "LOCK_MS", 50)
    pauses: list[float] = []
    holder = psycopg.connect(database.replace("+psycopg", ""))
    holder.execute("SELECT * FROM deliveries LIMIT 1")

    def released(seconds: float) -> None:
        pauses.append(seconds)
        holder.rollback()

    try:
        assert schema.upgrade(make_url(database), released) == "0020"
    finally:
        holder.close()
    assert len(pauses) == 1
