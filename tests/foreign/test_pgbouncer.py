"""PgBouncer (Debian's package) stands between an outbox and its database, in transaction mode. Each
transaction may get another of its few connections to the server, which keep what was set in them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from deploy.local.stack import Stack
from hongyan_client.outbox import Outbox
from hongyan_client.outbox.commit_publisher import CommitPublisher
from hongyan_client.outbox.engine import outbox_engine
from producer.relay.wakeups import Wakeups
from tests.foreign.pgbouncer import PgBouncer
from tests.harness import Fleet, await_, ground_on, notifications
from tests.hongyan_client.outbox.broker import Broker
from tests.hongyan_client.outbox.places import OutboxPlace, notice, opened
from tests.producer.relay.processes import RelayProcess, make_topic, read_ids, until
from tests.producer.relay.running import RelayRun, running

POOL = 3
"""Connections to the server."""


@pytest.fixture
def pooler(database: str) -> Iterator[PgBouncer]:
    with PgBouncer(database, pool_size=POOL) as started:
        yield started


@pytest.fixture
def place(pooler: PgBouncer) -> Iterator[OutboxPlace]:
    with opened(pooler.url.render_as_string(hide_password=False)) as made:
        yield made


def test_two_relays_publish_everything_once_and_each_key_in_order(place: OutboxPlace) -> None:
    broker = Broker()
    runs = [RelayRun(place.store, broker, name=name, batch=7) for name in "ab"]
    with running(*runs):
        added = [place.add(f"k{number % 5}") for number in range(200)]
        until(lambda: set(place.states().values()) == {"SENT"})
    assert sorted(broker.ids) == sorted(added)
    came = defaultdict[bytes | None, list[str]](list)
    for record, message_id in zip(broker.came, broker.ids, strict=True):
        came[record.key].append(message_id)
    assert all(ids == sorted(ids, key=added.index) for ids in came.values())


def test_a_relay_listens_to_nothing_in_a_connection_that_others_get(
    pooler: PgBouncer, place: OutboxPlace
) -> None:
    """A LISTEN stays with the server's connection. Whoever gets it next would be sent notifications that
    nobody reads, and keep them in memory for ever."""
    run = RelayRun(place.store, Broker())
    wakeups = Wakeups(place.store, run.signals)
    thread = threading.Thread(target=wakeups.run, daemon=True)
    try:
        with capture_logs() as logs:
            thread.start()
            until(lambda: [entry["event"] for entry in logs] == ["no_notifications"])
        assert _channels(pooler) == []
        assert thread.is_alive()
    finally:
        run.signals.stop.set()
        thread.join(10)
    assert not thread.is_alive()


def test_a_commit_publishes_at_once(pooler: PgBouncer, place: OutboxPlace) -> None:
    broker = Broker()
    relays = outbox_engine(pooler.url, pool_size=1)
    own = CommitPublisher(relays, broker)
    outbox = Outbox(after_commit=own)
    engine = create_engine(pooler.url, connect_args={"prepare_threshold": None})
    added = []
    for _ in range(20):  # psycopg would prepare from the fifth one on
        with Session(engine) as session:
            added.append(outbox.add(session, notice()).id)
            session.commit()
    until(lambda: set(place.states().values()) == {"SENT"})
    own.close()
    relays.dispose()
    engine.dispose()
    assert sorted(broker.ids) == sorted(added)


def test_a_pooler_that_is_killed_and_started_again_loses_nothing(
    pooler: PgBouncer, place: OutboxPlace
) -> None:
    broker = Broker()
    added = [place.add() for _ in range(60)]
    run = RelayRun(place.store, broker, batch=5)
    with running(run):
        until(lambda: len(broker.came) >= 5)
        pooler.kill()
        pooler.start()
        until(lambda: _all_sent(place))
    assert set(broker.ids) == set(added)


def test_the_whole_process_works_through_it(
    place: OutboxPlace, kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    place.outbox = Outbox(topic_prefix=topic_prefix)
    topic = f"{topic_prefix}.dispatch.sms.notice"
    make_topic(kafka_bootstrap, topic)
    relay = RelayProcess(place, kafka_bootstrap, topic_prefix, tmp_path / "relay.log")
    added = [place.add("k") for _ in range(10)]
    assert read_ids(kafka_bootstrap, topic, len(added)) == added
    until(lambda: set(place.states().values()) == {"SENT"})
    assert relay.end() == 0
    assert "no_notifications" in relay.events()


@pytest.mark.timeout(240)
def test_a_fleet_works_through_a_pooler_in_session_mode(stack: Stack, tmp_path: Path) -> None:
    """docs/ledger.md. The pooler is killed once, as in an update of it."""
    with (
        ground_on(stack) as ground,
        PgBouncer(ground.database_url, mode="session", pool_size=90) as pooler,
        Fleet(
            replace(ground, database_url=pooler.url.render_as_string(hide_password=False)), tmp_path
        ) as fleet,
    ):
        fleet.recovery()
        fleet.worker().wait_ready()
        fleet.send(notifications(60))
        await_(lambda: fleet.books.states()["SENT"] > 0, what="the first ones are sent")
        pooler.kill()
        pooler.start()
        fleet.send(notifications(60))
        fleet.await_settled()
        fleet.verify()


def _channels(pooler: PgBouncer) -> list[str]:
    """Returns what the server's connections behind the pooler listen to."""
    url = pooler.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with ExitStack() as stack:
        # Transactions that are open at the same time have a connection each.
        held = [stack.enter_context(psycopg.connect(url)) for _ in range(POOL)]
        asked = [one.execute("SELECT pg_listening_channels()").fetchall() for one in held]
    return [name for rows in asked for (name,) in rows]


def _all_sent(place: OutboxPlace) -> bool:
    try:
        return set(place.states().values()) == {"SENT"}
    except OperationalError:  # of a connection that the pooler took along
        return False
