"""The index of dead letters, on a real broker and both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backends.kafka.clients import AdminClient, TopicPartition, producer
from backends.settings import KafkaSettings
from idempotency.dead_letters.index import PlaceMoved
from idempotency.dead_letters.rows import IndexedLetter, LetterFilter, LetterState
from idempotency.sql_ledger import SqlLedger
from recovery.dead_letters.indexer import BATCH, LEASE_S, DeadLetterIndexer
from tests.idempotency.making import World

LANE_TOPIC = "{}.dispatch.sms.notice"
MakeIndexer = Callable[..., DeadLetterIndexer]


class Time:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, sqlite_database: str) -> Iterator[World]:
    postgres = request.param == "postgres"
    one = World(request.getfixturevalue("still_database") if postgres else sqlite_database)
    yield one
    one.close()


@pytest.fixture
def ledger(world: World) -> SqlLedger:
    return world.open()


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> KafkaSettings:
    return KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)


@pytest.fixture
def indexer(ledger: SqlLedger, settings: KafkaSettings) -> Iterator[MakeIndexer]:
    made = []

    def make(name: str = "r1", time: Time | None = None, of: KafkaSettings = settings) -> Any:
        rows = ledger.recovering()
        one = DeadLetterIndexer(
            of,
            ledger.letter_index(),
            hold=lambda duty, lease_ms: rows.hold(duty, name, lease_ms),
            drop=lambda duty: rows.drop(duty, name),
            monotonic=time or Time(),
        )
        made.append(one)
        return one

    yield make
    for one in made:
        one._leave()


def topic_of(settings: KafkaSettings, partitions: int = 2) -> str:
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    topic = f"{settings.topic_prefix}.dead"
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in client.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result(30)
    return topic


def bury(settings: KafkaSettings, *origins: int, value: bytes = b"x", partition: int = 0) -> None:
    client = producer(settings)
    for origin in origins:
        named = f"{LANE_TOPIC.format(settings.topic_prefix)}/0/{origin}"
        headers: list[tuple[str, str | bytes | None]] = [
            ("hongyan-id", f"m-{origin}".encode()),
            ("hongyan-dead-reason", b"bad_ttl"),
            ("hongyan-dead-detail", b"$.ttl_ms: above 0"),
            ("hongyan-dead-origin", named.encode()),
        ]
        topic = f"{settings.topic_prefix}.dead"
        client.produce(topic, value=value, headers=headers, partition=partition)
    assert client.flush(30) == 0


def drained(one: DeadLetterIndexer, ledger: SqlLedger, count: int) -> list[IndexedLetter]:
    """Runs rounds until the index has so many letters."""
    found: list[IndexedLetter] = []
    for _ in range(60):
        one.run_once()
        found = ledger.letters().page(LetterFilter(), 1_000)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count}")


def test_letters_are_indexed_as_they_come_with_nothing_of_their_body(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic_of(settings)
    bury(settings, 1, value=b'{"receivers":["+8613800000001"],"content":{"text":"4711"}}')
    one = indexer()
    (letter,) = drained(one, ledger, 1)
    assert letter.origin == f"{LANE_TOPIC.format(settings.topic_prefix)}/0/1"
    assert (letter.partition, letter.place, letter.reason) == (0, 0, "bad_ttl")
    assert (letter.lane, letter.message_id, letter.form) == ("sms.notice", "m-1", "WHOLE")
    assert (letter.state, letter.detail) == ("OPEN", "$.ttl_ms: above 0")
    assert "4711" not in str(letter)
    assert "13800000001" not in str(letter)
    bury(settings, 2, partition=1)
    assert len(drained(one, ledger, 2)) == 2


def test_a_recovery_that_dies_is_followed_from_the_place_of_its_last_batch(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic_of(settings, 1)
    bury(settings, *range(3 * BATCH))
    first = indexer("r1")
    while not ledger.letters().page(LetterFilter(), 1):
        first.run_once()
    before = ledger.letter_index().places()[0].next_offset
    assert 0 < before <= BATCH
    ledger.recovering().drop("dead-letters", "r1")  # its lease lapsed
    assert len(drained(indexer("r2"), ledger, 3 * BATCH)) == 3 * BATCH
    assert ledger.letter_index().places()[0].next_offset == 3 * BATCH


def test_only_the_holder_of_the_duty_reads_and_a_late_one_writes_nothing(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic_of(settings, 1)
    bury(settings, 1)
    first, second = indexer("r1"), indexer("r2")
    drained(first, ledger, 1)
    assert second.run_once() > 0
    assert second._follower is None
    index = ledger.letter_index()
    topic_id = index.places()[0].topic_id
    with pytest.raises(PlaceMoved):
        index.enter(topic_id, [], {0: (0, 1)})


def test_two_letters_of_one_record_are_one_row_and_keep_its_state(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic_of(settings, 1)
    bury(settings, 1)
    one = indexer()
    (letter,) = drained(one, ledger, 1)
    browser = ledger.letters()
    with ledger.database.begin() as connection:
        assert browser.end(connection, [letter.origin], LetterState.DISCARDED, "lin", "a test") == [
            letter.origin
        ]
    bury(settings, 1)
    bury(settings, 2)
    drained(one, ledger, 2)
    again = browser.one(letter.origin)
    assert again is not None
    assert (again.state, again.ended_by, again.place) == ("DISCARDED", "lin", 1)
    bury(settings, 1, value=b"another record, of a lane's topic that was made anew")
    bury(settings, 3)
    drained(one, ledger, 3)
    other = browser.one(letter.origin)
    assert other is not None
    assert (other.state, other.ended_by) == ("OPEN", None)


def test_a_topic_that_was_made_anew_is_read_from_its_begin(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic = topic_of(settings, 1)
    bury(settings, 1, 2, 3)
    time = Time()
    one = indexer(time=time)
    drained(one, ledger, 3)
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in client.delete_topics([topic]).values():
        future.result(30)
    while topic in client.list_topics(timeout=10).topics:
        pass
    topic_of(settings, 1)
    bury(settings, 7, 8, 9, 10)
    time.now += LEASE_S  # the next round looks
    (letter,) = [x for x in drained(one, ledger, 4) if x.origin.endswith("/10")]
    assert letter.place == 3
    assert len(ledger.letters().page(LetterFilter(), 100)) == 4, "the old ones are gone"


def test_rows_leave_with_the_topic_s_retention(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic = topic_of(settings, 1)
    bury(settings, 1, 2, 3)
    time = Time()
    one = indexer(time=time)
    drained(one, ledger, 3)
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    for future in client.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(30)
    time.now += LEASE_S
    one.run_once()
    left = ledger.letters().page(LetterFilter(), 100)
    assert [letter.place for letter in left] == [2]


def test_a_replay_by_the_command_line_is_seen_before_and_after_the_letter_is_indexed(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic_of(settings, 1)
    lane = LANE_TOPIC.format(settings.topic_prefix)
    replays = ledger.replays()
    replays.begin([(f"{lane}/0/1", lane)], again=False)
    replays.end([f"{lane}/0/1"], [])
    bury(settings, 1, 2)
    drained(indexer(), ledger, 2)
    replays.begin([(f"{lane}/0/2", lane)], again=False)
    replays.end([f"{lane}/0/2"], [])
    states = {x.origin: x.state for x in ledger.letters().page(LetterFilter(), 100)}
    assert states == {f"{lane}/0/1": "REPLAYED", f"{lane}/0/2": "REPLAYED"}


def test_the_index_says_how_far_it_is_behind(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings, world: World
) -> None:
    assert ledger.letters().lag().seen_at == 0
    topic_of(settings, 1)
    bury(settings, 1, 2, 3)
    index = ledger.letter_index()
    index.look("", {0: (0, 3)})
    lag = ledger.letters().lag()
    assert (lag.letters, lag.seen_at) == (3, world.now)


def test_a_broker_that_is_away_ends_nothing(indexer: MakeIndexer, settings: KafkaSettings) -> None:
    one = indexer(of=KafkaSettings(bootstrap="127.0.0.1:9", topic_prefix=settings.topic_prefix))
    assert one.run_once() > 0
    assert one._cause
    assert one._follower is None


def test_a_topic_that_is_not_there_is_waited_for(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    one = indexer()
    assert one.run_once() > 0
    topic_of(settings, 1)
    bury(settings, 1)
    assert len(drained(one, ledger, 1)) == 1


def test_a_producers_own_headers_stop_nobody(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    """A letter keeps its record's headers before ours, whatever they are called."""
    topic = topic_of(settings, 1)
    client = producer(settings)
    stub = b'{"key_bytes":0,"value_bytes":9223372036854775808,"headers":0,"header_bytes":0,"sha256":"x"}'
    for number, size in enumerate((b"9" * 25, "\u00b2".encode(), b"12")):
        origin = LANE_TOPIC.format(settings.topic_prefix) + f"/0/{number}"
        headers: list[tuple[str, str | bytes | None]] = [
            *(("hongyan-dead-truncated", size), ("hongyan-dead-reason", b"not_json")),
            ("hongyan-dead-origin", origin.encode()),
        ]
        client.produce(topic, value=b"{", headers=headers)
    client.produce(topic, value=b"", headers=[("hongyan-dead-stub", stub)])
    assert client.flush(30) == 0
    found = drained(indexer(), ledger, 4)
    assert sorted((letter.form, letter.size) for letter in found) == [
        ("FOREIGN", 1 << 40),
        *[("WHOLE", 1)] * 3,
    ]


def test_foreign_letters_are_entered_under_their_own_place_and_any_bytes_are_taken(
    indexer: MakeIndexer, ledger: SqlLedger, settings: KafkaSettings
) -> None:
    topic = topic_of(settings, 1)
    client = producer(settings)
    client.produce(topic, value=b"\xff\x00", headers=[("hongyan-dead-reason", b"a\x00b\xff")])
    client.produce(topic, value=None, headers=[("hongyan-dead-origin", b"../../etc")])
    assert client.flush(30) == 0
    found = drained(indexer(), ledger, 2)
    assert {letter.origin for letter in found} == {f"{topic}/0/0", f"{topic}/0/1"}
    assert {letter.form for letter in found} == {"FOREIGN"}
