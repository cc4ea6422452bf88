"""A `CommitPublisher` on an engine that the business made: no setting of it lets a row go twice."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from hongyan_client.outbox import Outbox
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.outbox.store import OutboxStore
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace, notice

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
OPTIONS: dict[str, dict[str, Any]] = {
    "as documented": {"pool_size": 1},
    "autocommit": {"isolation_level": "AUTOCOMMIT"},
}


@contextmanager
def own_engine(place: OutboxPlace, **options: Any) -> Iterator[Engine]:
    url = make_url(place.url)
    made = create_engine(url.set(drivername=DRIVERS[url.get_backend_name()]), **options)
    try:
        yield made
    finally:
        made.dispose()


def before_the_update(engine: Engine, act: Callable[[], object]) -> None:
    """Has `act` done once, between the claim's SELECT and its UPDATE."""
    left = [act]

    @event.listens_for(engine, "before_cursor_execute")
    def _between(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.lstrip().startswith("UPDATE") and left:
            left.pop()()


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_row_goes_out_after_the_commit(place: OutboxPlace, options: dict[str, Any]) -> None:
    broker = Broker()
    with own_engine(place, **options) as engine, Session(place.engine) as session:
        own = CommitPublisher(engine, broker)
        queued = Outbox(after_commit=own).add(session, notice())
        session.commit()
        own.close()
    assert broker.ids == [queued.id]
    assert place.states() == {queued.id: "SENT"}
    place.add()  # no lock is left


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_no_other_writer_comes_between_sqlites_read_and_update(
    sqlite_place: OutboxPlace, options: dict[str, Any]
) -> None:
    message_id = sqlite_place.add()
    refused: list[str] = []

    def recall() -> None:
        with own_engine(sqlite_place, connect_args={"timeout": 0}) as other:
            try:
                with other.begin() as connection:
                    Outbox().recall(connection, message_id)
            except OperationalError as exc:
                refused.append(str(exc.orig))

    with own_engine(sqlite_place, **options) as engine:
        before_the_update(engine, recall)
        batch = OutboxStore(engine).claim_due("a", LEASE_MS, 10)
    assert refused == ["database is locked"]
    assert [row.message_id for row in batch.rows] == [message_id]


def test_a_failed_claim_leaves_no_transaction_on_sqlite(sqlite_place: OutboxPlace) -> None:
    sqlite_place.add()

    def fail() -> None:
        raise sqlite3.OperationalError("disk full")

    with own_engine(sqlite_place, **OPTIONS["autocommit"]) as engine:
        before_the_update(engine, fail)
        with pytest.raises(Exception, match="disk full"):
            OutboxStore(engine).claim_due("a", LEASE_MS, 10)
        sqlite_place.add()
        assert len(OutboxStore(engine).claim_due("a", LEASE_MS, 10).rows) == 2


def test_a_row_that_was_recalled_since_its_read_is_not_taken(place: OutboxPlace) -> None:
    """In autocommit the lock of MariaDB ends with the SELECT."""
    gone, kept = place.add(), place.add()

    def recall() -> None:
        with place.engine.begin() as connection:
            assert place.outbox.recall(connection, gone)

    with own_engine(place, **OPTIONS["autocommit"]) as engine:
        if place.engine.dialect.name == "mysql":
            before_the_update(engine, recall)
        else:
            recall()  # these claim in one statement, or as the only writer
        batch = OutboxStore(engine).claim_due("a", LEASE_MS, 10)
    assert [row.message_id for row in batch.rows] == [kept]
    assert place.states() == {gone: "RECALLED", kept: "SENDING"}


def test_a_row_that_another_publisher_took_since_its_read_is_not_taken(place: OutboxPlace) -> None:
    ids = [place.add("order-1"), place.add(), place.add("order-1")]
    others: list[str] = []

    with own_engine(place, **OPTIONS["autocommit"]) as engine:
        if place.engine.dialect.name == "mysql":
            before_the_update(engine, lambda: others.extend(place.claimed()))
        else:
            others += place.claimed()
        batch = OutboxStore(engine).claim_due("a", LEASE_MS, 10)
    assert others == ids[:2]
    assert batch.rows == []
    assert [place.row(one).attempt for one in ids] == [1, 1, 0]
