"""The barrier: a business transaction and its check never both win, on each of three databases."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from hongyan_client.lookback.barrier import Barrier
from hongyan_client.lookback.errors import BadIdentity, TransactionFenced
from hongyan_client.lookback.identity import TransactionRef
from hongyan_client.lookback.transaction_state import StateReply, TransactionState
from message.ids import new_id

ORDERS = sa.Table("orders", sa.MetaData(), sa.Column("id", sa.String(64), primary_key=True))
RACES = 12


@pytest.fixture
def barrier(business: sa.Engine) -> Barrier:
    barrier = Barrier(business)
    barrier.table.create(business)
    ORDERS.create(business)
    return barrier


def a_transaction() -> TransactionRef:
    return TransactionRef("order", "订单-1", new_id())


def a_late_business(barrier: Barrier, business: sa.Engine, ref: TransactionRef) -> None:
    with business.begin() as connection:
        connection.execute(ORDERS.insert().values(id=ref.tx_id))
        barrier.pass_through(connection, ref)


def has_order(business: sa.Engine, name: str) -> bool:
    with business.begin() as connection:
        return bool(connection.execute(sa.select(ORDERS).where(ORDERS.c.id == name)).all())


def test_a_committed_transaction_is_answered_with_commit(
    barrier: Barrier, business: sa.Engine
) -> None:
    ref = a_transaction()
    with Session(business) as session, session.begin():
        barrier.pass_through(session, ref)

    assert barrier.decide(ref) == StateReply(TransactionState.COMMIT, "订单-1", fenced=True)


def test_a_late_commit_after_a_fenced_rollback_aborts(
    barrier: Barrier, business: sa.Engine
) -> None:
    ref = a_transaction()

    assert barrier.decide(ref).state is TransactionState.ROLLBACK
    with pytest.raises(TransactionFenced, match="roll it back"):
        a_late_business(barrier, business, ref)

    assert not has_order(business, ref.tx_id)
    assert barrier.decide(ref).state is TransactionState.ROLLBACK


def test_a_business_that_rolled_back_is_answered_with_rollback(
    barrier: Barrier, business: sa.Engine
) -> None:
    ref = a_transaction()
    with Session(business) as session:
        barrier.pass_through(session, ref)
        session.rollback()

    assert barrier.decide(ref).state is TransactionState.ROLLBACK


def test_a_check_during_an_open_transaction_decides_nothing(
    barrier: Barrier, business: sa.Engine
) -> None:
    ref = a_transaction()
    with business.begin() as connection:
        barrier.pass_through(connection, ref)
        reply = barrier.decide(ref)
        assert reply.state is TransactionState.UNKNOWN
        assert reply.detail

    assert barrier.decide(ref).state is TransactionState.COMMIT


def test_the_bound_of_a_wait_is_put_back(barrier: Barrier, business: sa.Engine) -> None:
    asks = {"sqlite": "PRAGMA busy_timeout", "postgresql": "SHOW lock_timeout"}
    ask = asks.get(business.dialect.name, "SELECT @@innodb_lock_wait_timeout")
    with business.connect() as connection:
        before = connection.exec_driver_sql(ask).scalar_one()
    barrier.decide(a_transaction())

    with business.connect() as connection:
        assert connection.exec_driver_sql(ask).scalar_one() == before


def test_one_of_two_racers_wins_and_both_know_which(barrier: Barrier, business: sa.Engine) -> None:
    """Of the business's commit and the check, at the same moment, one wins; the rows agree with it."""

    def commit(ref: TransactionRef, together: threading.Barrier) -> bool:
        together.wait()
        try:
            with business.begin() as connection:
                barrier.pass_through(connection, ref)
                connection.execute(ORDERS.insert().values(id=ref.tx_id))
        except (TransactionFenced, sa.exc.OperationalError):
            return False
        return True

    def check(ref: TransactionRef, together: threading.Barrier) -> TransactionState:
        together.wait()
        return barrier.decide(ref).state

    with ThreadPoolExecutor(2) as threads:
        for _ in range(RACES):
            ref, together = a_transaction(), threading.Barrier(2)
            committed = threads.submit(commit, ref, together)
            answer = threads.submit(check, ref, together).result()
            if answer is TransactionState.UNKNOWN:
                answer = barrier.decide(ref).state
            wanted = TransactionState.COMMIT if committed.result() else TransactionState.ROLLBACK
            assert answer is wanted is barrier.decide(ref).state
            assert has_order(business, ref.tx_id) is committed.result()


@given(moves=st.lists(st.sampled_from(["commit", "abort", "check"]), min_size=1, max_size=6))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_the_first_decision_stays(barrier: Barrier, business: sa.Engine, moves: list[str]) -> None:
    """Whatever comes in whatever order, an answer never changes once it was given."""
    ref, first = a_transaction(), TransactionState.UNKNOWN
    for move in moves:
        if move == "check":
            answer = barrier.decide(ref).state
            assert first in (TransactionState.UNKNOWN, answer)
            first = answer
            continue
        with Session(business) as session:
            try:
                barrier.pass_through(session, ref)
            except TransactionFenced:
                assert first is not TransactionState.UNKNOWN
                continue
            assert first is TransactionState.UNKNOWN
            if move == "commit":
                session.commit()
                first = TransactionState.COMMIT


def test_names_that_differ_in_their_case_are_different(
    barrier: Barrier, business: sa.Engine
) -> None:
    small = a_transaction()._replace(biz_id="a")
    with business.begin() as connection:
        barrier.pass_through(connection, small)

    assert barrier.decide(small._replace(biz_id="A")).state is TransactionState.ROLLBACK
    assert barrier.decide(small).state is TransactionState.COMMIT


def test_old_barriers_can_be_removed(business: sa.Engine) -> None:
    barrier = Barrier(business, now=lambda: 1_000.0)
    barrier.table.create(business)
    ref = a_transaction()
    barrier.decide(ref)

    with business.begin() as connection:
        assert barrier.remove_before(connection, 1_000_000) == 0
        assert barrier.remove_before(connection, 1_000_001) == 1


def test_a_database_without_the_table_decides_nothing(business: sa.Engine) -> None:
    reply = Barrier(business).decide(a_transaction())
    assert reply.state is TransactionState.UNKNOWN
    assert not reply.fenced


def test_a_name_that_no_record_may_carry_is_refused(business: sa.Engine) -> None:
    with pytest.raises(BadIdentity, match="tx_id"):
        Barrier(business).decide(TransactionRef("order", "1", "short"))


def test_while_no_connection_is_free_nothing_is_decided(
    barrier: Barrier, business: sa.Engine
) -> None:
    """It raised, and a business's own exception was lost behind it."""
    small = sa.create_engine(
        business.url, poolclass=sa.QueuePool, pool_size=1, max_overflow=0, pool_timeout=0.05
    )
    with small.connect():
        reply = Barrier(small).decide(a_transaction())
    small.dispose()
    assert (reply.state, reply.detail) == (TransactionState.UNKNOWN, "TimeoutError")
    assert barrier.decide(a_transaction()).state is TransactionState.ROLLBACK


def test_a_session_of_several_databases_passes_through_the_barriers_own(
    barrier: Barrier, business: sa.Engine
) -> None:
    ref = a_transaction()
    with Session(binds={barrier.table: business, ORDERS: business}) as session, session.begin():
        barrier.pass_through(session, ref)

    assert barrier.decide(ref).state is TransactionState.COMMIT


@pytest.mark.parametrize("business_url", ["mariadb"], indirect=True)
def test_the_table_needs_no_default_of_mysql(business: sa.Engine) -> None:
    """With latin1 no business id in Chinese was taken. MyISAM kept `commit` after a rollback, and a message
    of a transaction that never was went out."""
    with business.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {business.url.database} CHARACTER SET latin1")
    defaults = {"init_command": "SET default_storage_engine=MyISAM"}
    engine = sa.create_engine(business.url, connect_args=defaults)
    barrier, ref = Barrier(engine), a_transaction()
    barrier.table.create(engine)
    with engine.connect() as connection:
        barrier.pass_through(connection, ref)
        connection.rollback()

    assert barrier.decide(ref) == StateReply(TransactionState.ROLLBACK, "订单-1", fenced=True)
    engine.dispose()
