"""`Outbox.add` in the business's transaction: sync and async sessions, connections, savepoints."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from hongyan_client.outbox import Outbox, RetryTerms
from message.envelope import EnvelopeError, decode
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace, notice
from tests.services import give_up

ASYNC_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+aiomysql",
}


class HandOver:
    """Keeps what `CommitPublisher` would get."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def hand_over(self, row_ids: list[int]) -> None:
        self.rows.append(row_ids)


@pytest.fixture
def handed() -> HandOver:
    return HandOver()


def test_a_committed_notification_is_there_and_a_rolled_back_one_is_not(place: OutboxPlace) -> None:
    with Session(place.engine) as session:
        kept = place.outbox.add(session, notice())
        session.commit()
        place.outbox.add(session, notice())
        session.rollback()
    assert place.states() == {kept.id: "PENDING"}
    assert place.claimed() == [kept.id]


def test_an_async_session_and_an_async_connection_write_it(place: OutboxPlace) -> None:
    async def write() -> list[str]:
        url = make_url(place.url)
        driver = ASYNC_DRIVERS[url.get_backend_name()]
        engine = create_async_engine(url.set(drivername=driver))
        async with AsyncSession(engine) as session:
            first = await place.outbox.add(session, notice())
            await session.commit()
            await place.outbox.add(session, notice())
            await session.rollback()
            recalled = await place.outbox.add(session, notice())
            assert await place.outbox.recall(session, recalled.id)
            await session.commit()
        async with engine.begin() as connection:
            assert isinstance(connection, AsyncConnection)
            second = await place.outbox.add(connection, notice())
        await engine.dispose()
        return [first.id, second.id]

    ids = asyncio.run(write())
    assert place.claimed() == ids


def test_a_scoped_session_writes_it(place: OutboxPlace, handed: HandOver) -> None:
    sessions = scoped_session(sessionmaker(place.engine))
    queued = Outbox(after_commit=handed).add(sessions, notice())
    sessions.commit()
    sessions.remove()
    assert handed.rows == [[queued.row_id]]


def test_a_notification_that_breaks_a_rule_is_refused_before_the_insert(place: OutboxPlace) -> None:
    with Session(place.engine) as session:
        with pytest.raises(EnvelopeError, match=r"at \$\.kind: must be one of"):
            place.outbox.add(session, {**notice(), "kind": "gossip"})
        with pytest.raises(EnvelopeError, match="too_large"):
            place.outbox.add(session, {**notice(), "attributes": {"x": "y" * (1 << 20)}})
        session.commit()
    assert place.states() == {}


def test_a_message_of_a_mebibyte_fits(place: OutboxPlace) -> None:
    with place.engine.begin() as connection:
        place.outbox.add(connection, {**notice(), "attributes": {"x": "y" * 1_048_000}})
    (row,) = place.store.claim_due("a", LEASE_MS, 1).rows
    assert len(decode(row.payload.encode()).attributes["x"]) == 1_048_000


def test_the_terms_of_a_row_win_over_the_outboxs(place: OutboxPlace) -> None:
    message_id = place.add(retry=RetryTerms(3, 2.5, 40))
    row = place.row(message_id)
    assert (row.max_attempts, row.retry_base_ms, row.retry_cap_ms) == (3, 2_500, 40_000)
    for wrong in (RetryTerms(0), RetryTerms(interval_s=9, limit_s=1), RetryTerms(limit_s=1e9)):
        with pytest.raises(ValueError, match=r"attempts|interval_s"):
            place.add(retry=wrong)


def test_a_delayed_notification_lives_from_its_time_on(place: OutboxPlace) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    message_id = place.add(send_at=at)
    assert place.claimed() == []
    millis = int(at.timestamp() * 1_000)
    assert decode(place.row(message_id).payload.encode()).created_at == millis
    place.set(message_id, "next_at = next_at - 7200001")
    assert place.claimed() == [message_id]


def test_a_delay_without_a_time_zone_or_in_seconds_is_refused(place: OutboxPlace) -> None:
    with pytest.raises(ValueError, match="no time zone"):
        place.add(send_at=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake
    with pytest.raises(ValueError, match="epoch milliseconds"):
        place.add(send_at=time.time_ns())


def test_a_delayed_notification_can_be_recalled_in_the_business_transaction(
    place: OutboxPlace,
) -> None:
    message_id = place.add(send_at=time.time_ns() // 1_000_000 + 3_600_000)
    with Session(place.engine) as session:
        assert place.outbox.recall(session, message_id)
        session.rollback()
    assert place.states() == {message_id: "PENDING"}
    with Session(place.engine) as session:
        assert place.outbox.recall(session, message_id)
        session.commit()
    with Session(place.engine) as session:
        assert place.outbox.recall(session, message_id), "a transaction that is repeated"
    assert place.states() == {message_id: "RECALLED"}
    place.set(message_id, "send_at = 0")
    assert place.claimed() == []


def test_what_is_on_its_way_or_in_doubt_is_not_recalled(place: OutboxPlace) -> None:
    flying, doubtful = place.add(), place.add()
    place.claimed()
    place.set(doubtful, "state = 'PENDING', maybe_sent = 1")
    with place.engine.begin() as connection:
        assert not place.outbox.recall(connection, flying)
        assert not place.outbox.recall(connection, doubtful)
        assert not place.outbox.recall(connection, "unknown")


def test_ids_that_differ_in_case_alone_are_two(place: OutboxPlace) -> None:
    with place.engine.begin() as connection:
        for one in ("Order-1", "order-1"):
            place.outbox.add(connection, {**notice(), "id": one})
        assert place.outbox.recall(connection, "order-1")
    assert place.states() == {"Order-1": "PENDING", "order-1": "RECALLED"}


def test_rows_are_handed_over_after_the_outermost_commit(
    place: OutboxPlace, handed: HandOver
) -> None:
    outbox = Outbox(after_commit=handed)
    with Session(place.engine) as session:
        first = outbox.add(session, notice())
        with session.begin_nested():
            second = outbox.add(session, notice())
        assert handed.rows == []
        session.commit()
        assert handed.rows == [[first.row_id, second.row_id]]
        outbox.add(session, notice())
        session.rollback()
        third = outbox.add(session, notice())
        session.commit()
    assert handed.rows[1:] == [[third.row_id]]


def test_a_row_that_a_savepoint_undid_is_never_claimed(
    place: OutboxPlace, handed: HandOver
) -> None:
    outbox = Outbox(after_commit=handed)
    with Session(place.engine) as session:
        first = outbox.add(session, notice())
        undone = session.begin_nested()
        gone = outbox.add(session, notice())
        undone.rollback()
        session.commit()
    batch = place.store.claim_these([first.row_id, gone.row_id], "a", LEASE_MS)
    assert [row.message_id for row in batch.rows] == [first.id]


def test_relays_leave_a_handed_over_row_to_its_process_for_a_while(
    place: OutboxPlace, handed: HandOver
) -> None:
    with Session(place.engine) as session:
        queued = Outbox(after_commit=handed).add(session, notice())
        session.commit()
    assert place.claimed() == []
    place.set(queued.id, "next_at = next_at - 2000")
    assert place.claimed() == [queued.id]


def test_unknown_fields_and_the_trace_context_travel_on(place: OutboxPlace) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with place.engine.begin() as connection:
        place.outbox.add(connection, {**notice(), "campaign": 7}, traceparent=parent)
    (row,) = place.store.claim_due("a", LEASE_MS, 1).rows
    assert msgspec.json.decode(row.payload)["campaign"] == 7
    assert parent in row.headers


def test_a_context_that_is_none_of_w3c_is_left_out(sqlite_place: OutboxPlace) -> None:
    """A web server gives bytes of a header that are no text as lone surrogates."""
    header = b"00-4bf92f3577b34da6a3ce929d0e0e4736-\xff".decode("utf-8", "surrogateescape")
    message_id = sqlite_place.add(traceparent=header)
    assert msgspec.json.decode(sqlite_place.row(message_id).headers) == [["hongyan-id", message_id]]


def test_a_slow_transaction_loses_nothing_to_the_ones_that_overtake_it(place: OutboxPlace) -> None:
    """Id 1 in flight, id 2 commits and goes, then id 1 commits: no cursor may have passed it."""
    if place.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    slow = place.engine.connect()
    with slow.begin():
        first = place.outbox.add(slow, notice())
        second = place.add()
        batch = place.store.claim_due("a", LEASE_MS, 10)
        assert [row.message_id for row in batch.rows] == [second]
        place.store.mark(batch.token, batch.rows)
    slow.close()
    assert place.claimed() == [first.id]


def test_the_databases_clock_counts_and_not_ours(place: OutboxPlace) -> None:
    message_id = place.add()
    row = place.row(message_id)
    with place.engine.begin() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    assert abs(row.created_at - time.time_ns() // 1_000_000) < 5_000
    assert row.next_at - row.created_at <= 1


def test_open_rows_are_listed_by_id_across_states_and_pages(place: OutboxPlace) -> None:
    states = ("PENDING", "PARKED", "SENT", "SENDING", "PARKED", "RECALLED", "PENDING")
    first, ids = place.add(), []
    for number, state in enumerate(states):
        message_id = place.add() if number else first
        ids.append(place.row(message_id).id)
        at = "next_at" if state in ("PENDING", "SENDING") else "NULL"
        place.set(message_id, f"state = '{state}', next_at = {at}")
    place.set(first, "next_at = next_at + 1000000")  # due last, and listed first
    wanted = [ids[0], ids[1], ids[3], ids[4], ids[6]]
    found: list[int] = []
    while page := place.operator.rows(
        ("PENDING", "SENDING", "PARKED"), 2, found[-1] if found else 0
    ):
        found += [row.id for row in page]
    assert found == wanted
    assert [row.id for row in place.operator.rows(("PARKED",), 10, ids[1])] == [ids[4]]
    assert [row.id for row in place.operator.rows(("PENDING",), 1, ids[0])] == [ids[6]]
    with pytest.raises(ValueError, match="SENT"):
        place.operator.rows(("PENDING", "SENT"))


def test_a_session_with_binds_alone_finds_the_outboxs_engine(place: OutboxPlace) -> None:
    with Session(binds={place.outbox.tables.rows: place.engine}) as session:
        kept = place.outbox.add(session, notice())
        recalled = place.outbox.add(session, notice())
        assert place.outbox.recall(session, recalled.id)
        session.commit()
    assert place.states() == {kept.id: "PENDING", recalled.id: "RECALLED"}


def executed(connection: Connection) -> list[str]:
    """Returns the list of the connection's later statements."""
    statements: list[str] = []

    @event.listens_for(connection, "before_cursor_execute")
    def _keep(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    return statements


@pytest.mark.parametrize("two_phases", [False, True])
def test_a_transaction_that_is_prepared_holds_no_notify(
    postgres_place: OutboxPlace, two_phases: bool
) -> None:
    with Session(postgres_place.engine, twophase=two_phases) as session:
        statements = executed(session.connection())
        Outbox().add(session, notice())
        session.rollback()
    assert any("pg_notify" in one for one in statements) is not two_phases


def test_a_transaction_in_two_phases_is_published_after_its_commit(
    postgres_place: OutboxPlace,
) -> None:
    with postgres_place.engine.connect() as connection:
        if connection.execute(text("SHOW max_prepared_transactions")).scalar_one() == "0":
            give_up("this PostgreSQL prepares no transactions; start the stack again")
    recalled = postgres_place.add()
    with Session(postgres_place.engine, twophase=True) as session:
        queued = Outbox().add(session, notice())
        assert Outbox().recall(session, recalled)
        session.prepare()
        # Nothing is committed yet, and the recalled row is locked.
        assert postgres_place.claimed() == []
        session.commit()
    assert postgres_place.claimed() == [queued.id]
    assert postgres_place.states()[recalled] == "RECALLED"
