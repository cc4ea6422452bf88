"""The business's own Alembic makes the outbox, drops it, and never proposes to change it."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, inspect

from hongyan_client.outbox import Outbox, migration, outbox_tables
from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.store import OutboxStore
from tests.hongyan_client.outbox.places import KINDS, notice


@pytest.fixture
def engine(place_url: str) -> Iterator[Engine]:
    made = outbox_engine(place_url)
    yield made
    made.dispose()


@pytest.fixture(params=KINDS)
def place_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(KINDS[request.param]))


def operations(connection: Connection, **options: object) -> Operations:
    return Operations(MigrationContext.configure(connection, opts=options))


def indexes_of(engine: Engine) -> set[str | None]:
    return {index["name"] for index in inspect(engine).get_indexes("hongyan_outbox")}


def test_a_migration_makes_what_the_tables_say(engine: Engine) -> None:
    with engine.begin() as connection:
        migration.upgrade(operations(connection))
    made = indexes_of(engine)
    with engine.begin() as connection:
        message_id = Outbox().add(connection, notice()).id
    claimed = OutboxStore(engine).claim_due("a", 1_000, 10).rows
    assert [row.message_id for row in claimed] == [message_id]
    with engine.begin() as connection:
        migration.downgrade(operations(connection))
    assert inspect(engine).get_table_names() == []
    metadata = MetaData()
    outbox_tables(metadata)
    metadata.create_all(engine)
    assert made == indexes_of(engine)


def test_autogenerate_leaves_the_outbox_alone(engine: Engine) -> None:
    with engine.begin() as connection:
        migration.upgrade(operations(connection), "mail_outbox")
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    with engine.begin() as connection:
        context = MigrationContext.configure(
            connection, opts={"include_object": migration.include_object("mail_outbox")}
        )
        proposed = compare_metadata(context, metadata)
    assert [(change[0], change[1].name) for change in proposed] == [("add_table", "orders")]


def test_the_filter_asks_the_businesss_own_about_the_rest() -> None:
    asked: list[str | None] = []

    def own(_item: object, name: str | None, *_rest: object) -> bool:
        asked.append(name)
        return False

    include = migration.include_object("o", own)
    for name in ("o", "o_alerts", "o_relays", "o_default", "o_d20260101"):
        assert not include(None, name, "table", True, None)
    assert asked == []
    assert not include(None, "o_d2026", "table", True, None)
    assert asked == ["o_d2026"]


def test_a_migration_can_be_written_as_sql() -> None:
    written = io.StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": written}
    )
    migration.upgrade(Operations(context))
    sql = written.getvalue()
    assert "PARTITION BY RANGE (created_day)" in sql
    assert 'PARTITION OF "hongyan_outbox" DEFAULT' in sql
    assert "hongyan_outbox_parked" in sql
    assert "hongyan_outbox_done" not in sql


@pytest.mark.parametrize("name", ["Orders", "a b", "x" * 41, '"; DROP TABLE t', "1st", ""])
def test_a_table_name_that_is_no_plain_identifier_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        outbox_tables(MetaData(), name)
