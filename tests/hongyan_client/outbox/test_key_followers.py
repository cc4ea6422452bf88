"""A recall in the business's transaction wakes the row behind, at every isolation level without harm."""

import pytest
from sqlalchemy import Connection, text

from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace
from tests.hongyan_client.outbox.test_claims import failed

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def blocked_key(place: OutboxPlace) -> tuple[str, str]:
    """Returns a parked head and its follower, which was held often."""
    head, follower = place.add("order-1"), place.add("order-1")
    batch = place.store.claim_due("a", LEASE_MS, 100)
    place.store.mark(batch.token, (), failed(batch, None))
    place.set(follower, "held = 9, next_at = next_at + 256000")
    return head, follower


def begun(connection: Connection, level: str) -> None:
    """Begins at the level, if the database has it, and reads, so that the snapshot is taken."""
    if connection.dialect.name != "sqlite":
        connection.execution_options(isolation_level=level)
    connection.begin()
    connection.execute(text("SELECT count(*) FROM hongyan_outbox_relays"))


@pytest.mark.parametrize("level", LEVELS)
def test_the_follower_of_a_recalled_head_is_due_at_once(place: OutboxPlace, level: str) -> None:
    head, follower = blocked_key(place)
    with place.engine.connect() as connection:
        begun(connection, level)
        assert place.outbox.recall(connection, head)
        connection.commit()
    if level != "SERIALIZABLE" or place.engine.dialect.name == "sqlite":
        assert place.claimed() == [follower]
    else:
        assert place.row(follower).held == 9


@pytest.mark.parametrize("level", LEVELS)
def test_a_follower_that_changes_meanwhile_does_not_undo_the_business(
    place: OutboxPlace, level: str
) -> None:
    if place.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    head, follower = blocked_key(place)
    with place.engine.connect() as connection:
        begun(connection, level)
        place.set(follower, "held = 8, next_at = next_at + 1")
        assert place.outbox.recall(connection, head)
        connection.commit()
    assert place.states() == {head: "RECALLED", follower: "PENDING"}
    repeatable = (level, place.engine.dialect.name) == ("REPEATABLE READ", "postgresql")
    asleep = repeatable or level == "SERIALIZABLE"
    assert place.row(follower).held == (8 if asleep else 0)


def test_mariadb_with_isolated_snapshots_keeps_the_business_and_wakes_nobody(
    place: OutboxPlace,
) -> None:
    if place.engine.dialect.name != "mysql":
        pytest.skip("the setting is MariaDB's")
    head, follower = blocked_key(place)
    with place.engine.connect() as connection:
        connection.execute(text("SET SESSION innodb_snapshot_isolation = ON"))
        connection.commit()
        begun(connection, "REPEATABLE READ")
        place.set(follower, "held = 8, next_at = next_at + 1")
        assert place.outbox.recall(connection, head)
        connection.commit()
        connection.invalidate()
    assert place.states()[head] == "RECALLED"
    assert place.row(follower).held == 8


def test_a_follower_that_somebody_holds_is_not_waited_for(place: OutboxPlace) -> None:
    if place.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    head, follower = blocked_key(place)
    with place.engine.begin() as other:
        other.execute(text("SELECT id FROM hongyan_outbox WHERE held = 9 FOR UPDATE"))
        with place.engine.begin() as connection:
            assert place.outbox.recall(connection, head)
    assert place.row(follower).held == 9


def test_a_row_of_another_key_stays_held(place: OutboxPlace) -> None:
    head, _follower = blocked_key(place)
    other = place.add("order-2")
    place.set(other, "held = 9, next_at = next_at + 256000")
    with place.engine.begin() as connection:
        assert place.outbox.recall(connection, head)
    assert place.row(other).held == 9
