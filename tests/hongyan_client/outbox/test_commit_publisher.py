"""Publication right after the commit, by the business's own process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.orm import Session

from hongyan_client.errors import BufferFull, SendInDoubt
from hongyan_client.outbox import Outbox
from hongyan_client.outbox import commit_publisher as module
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.outbox.engine import outbox_engine
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace, notice


@contextmanager
def publishing(place: OutboxPlace, broker: Broker) -> Iterator[Outbox]:
    own = CommitPublisher(place.engine, broker)
    try:
        yield Outbox(after_commit=own)
    finally:
        own.close()


def test_a_commit_publishes_and_a_rollback_does_not(place: OutboxPlace) -> None:
    broker = Broker()
    with publishing(place, broker) as outbox, Session(place.engine) as session:
        kept = outbox.add(session, notice())
        session.commit()
        outbox.add(session, notice())
        session.rollback()
    assert broker.ids == [kept.id]
    assert place.states() == {kept.id: "SENT"}


def test_rows_of_a_savepoint_that_was_undone_are_not_published(place: OutboxPlace) -> None:
    broker = Broker()
    with publishing(place, broker) as outbox, Session(place.engine) as session:
        kept = outbox.add(session, notice())
        undone = session.begin_nested()
        outbox.add(session, notice())
        undone.rollback()
        session.commit()
    assert broker.ids == [kept.id]


def test_a_delayed_row_with_the_id_of_an_undone_one_waits_for_its_time(place: OutboxPlace) -> None:
    """SQLite gives the ids of a savepoint that was undone again."""
    broker = Broker()
    tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    with publishing(place, broker) as outbox, Session(place.engine) as session:
        undone = session.begin_nested()
        outbox.add(session, notice())
        undone.rollback()
        delayed = outbox.add(session, notice(), send_at=tomorrow)
        session.commit()
    assert broker.ids == []
    assert place.states() == {delayed.id: "PENDING"}


def test_each_outbox_of_a_session_hands_over_its_own_rows(sqlite_place: OutboxPlace) -> None:
    engine = sqlite_place.engine
    mail = Outbox("mail_outbox")
    with engine.begin() as connection:
        mail.tables.rows.metadata.create_all(connection)
    brokers = Broker(), Broker()
    publishers = (
        CommitPublisher(engine, brokers[0]),
        CommitPublisher(engine, brokers[1], "mail_outbox"),
    )
    sms, mail = (
        Outbox(after_commit=publishers[0]),
        Outbox("mail_outbox", after_commit=publishers[1]),
    )
    with Session(engine) as session:
        mail.add(session, notice())
        session.rollback()
        texts = [sms.add(session, notice()).id for _ in range(2)]
        letter = mail.add(session, notice())
        session.commit()
    for own in publishers:
        own.close()
    assert [broker.ids for broker in brokers] == [texts, [letter.id]]


def test_one_key_keeps_its_order_over_commit_and_relay(place: OutboxPlace) -> None:
    earlier = place.add("order-1")
    broker = Broker()
    with publishing(place, broker) as outbox, Session(place.engine) as session:
        later = outbox.add(session, notice("order-1"))
        session.commit()
    assert broker.ids == []
    assert place.claimed() == [earlier]
    assert place.states()[later.id] == "PENDING"


@pytest.mark.parametrize("refusal", [BufferFull("full"), RuntimeError("a bug")])
def test_whatever_fails_is_left_to_the_relays_and_not_told_to_the_business(
    sqlite_place: OutboxPlace, refusal: Exception
) -> None:
    broker = Broker()
    broker.refusal = refusal
    with publishing(sqlite_place, broker) as outbox, Session(sqlite_place.engine) as session:
        queued = outbox.add(session, notice())
        session.commit()
    sqlite_place.end_lease(queued.id)
    assert sqlite_place.claimed() == [queued.id]


def test_a_publication_in_doubt_is_left_to_the_relays_with_the_same_id(
    sqlite_place: OutboxPlace,
) -> None:
    broker = Broker()
    broker.failure = SendInDoubt("no answer", "msg_timed_out")
    with publishing(sqlite_place, broker) as outbox, Session(sqlite_place.engine) as session:
        queued = outbox.add(session, notice())
        session.commit()
    row = sqlite_place.row(queued.id)
    assert (row.state, row.maybe_sent) == ("PENDING", 1)


def test_a_database_that_is_away_disturbs_nobody(sqlite_place: OutboxPlace) -> None:
    broken = outbox_engine("postgresql://nobody@127.0.0.1:1/none")
    own = CommitPublisher(broken, Broker())
    with Session(sqlite_place.engine) as session:
        queued = Outbox(after_commit=own).add(session, notice())
        session.commit()
    own.close()
    broken.dispose()
    assert sqlite_place.states() == {queued.id: "PENDING"}


def test_a_queue_that_is_full_never_blocks_a_commit(
    sqlite_place: OutboxPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 1)
    broker = Broker()
    broker.silent = True
    own = CommitPublisher(sqlite_place.engine, broker)
    began = time.monotonic()
    for row_id in range(10_000):
        own.hand_over([row_id + 1_000_000])
    assert time.monotonic() - began < 5
    assert own.left_to_relays > 0
    own.close()
