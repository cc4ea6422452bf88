"""Where events go: arrays in Kafka, rows in the database, and back as a timeline."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from backends.settings import DatabaseSettings, Settings, TraceSettings
from backends.sql.database import Database, database_url
from tests.harness.databases import upgraded
from tracing import open_recorder
from tracing.drops import Drops
from tracing.events import NoRecorder, Stage, TraceEvent
from tracing.recorder import SinkAway
from tracing.rows import DAY_MS, copy_text, events_in, rows_of
from tracing.sinks.database import DatabaseSink, open_database_sink
from tracing.sinks.kafka import KafkaSink
from tracing.stories import COPIES, find
from tracing.timeline import moments
from tracing.trace_records import RECORD_BYTES, TraceLife, records

NOW = 1_795_000_000_000
NASTY = 'tab\t back\\slash "quote" \n鸿雁'


def event(message_id: str, stage: Stage = Stage.SETTLED, **fields: Any) -> TraceEvent:
    return TraceEvent(**{"at": NOW, "stage": stage, "message_id": message_id, **fields})


# ---- Kafka -----------------------------------------------------------------------------------


class FakeProducer:
    """Answers as it is told; keeps what was produced."""

    def __init__(self, full: int = 0, error: Any = None) -> None:
        self.values: list[bytes] = []
        self.polls = 0
        self._full = full
        self._error = error

    def produce(self, topic: str, *, value: bytes, headers: Any, on_delivery: Any) -> None:
        if self.polls < self._full:
            raise BufferError
        self.values.append(value)
        on_delivery(self._error, None)

    def poll(self, _timeout: float) -> None:
        self.polls += 1

    def flush(self, _timeout: float) -> int:
        return 0


class Error:
    def name(self) -> str:
        return "_MSG_TIMED_OUT"


def test_a_flush_is_one_record_with_an_array_of_events() -> None:
    producer = FakeProducer()
    sent = [event("a"), event("b", detail=NASTY)]
    KafkaSink(producer, "hongyan.trace", Drops(), TraceLife("w")).write(sent)
    assert [msgspec.json.decode(v, type=list[TraceEvent]) for v in producer.values] == [sent]


def test_no_record_is_much_longer_than_the_limit_and_no_event_is_lost() -> None:
    sent = [event(f"m{n}", detail="x" * 100) for n in range(10_000)]
    made = list(records(sent))
    assert max(len(value) for _, value in made) <= RECORD_BYTES + 2
    back = [e for _, value in made for e in msgspec.json.decode(value, type=list[TraceEvent])]
    assert back == sent
    assert sum(count for count, _ in made) == len(sent)


def test_an_event_longer_than_the_limit_travels_alone() -> None:
    made = list(records([event("a"), event("b", detail="x" * 500), event("c")], limit=200))
    assert [count for count, _ in made] == [1, 1, 1]


def test_what_kafka_did_not_take_is_counted() -> None:
    drops = Drops()
    sink = KafkaSink(FakeProducer(error=Error()), "t", drops, TraceLife("w"))
    sink.write([event("a"), event("b")])
    assert drops.counts() == {("kafka", "msg_timed_out"): 2}


def test_a_full_producer_is_waited_for_and_then_given_up() -> None:
    drops, now = Drops(), iter(range(0, 1_000, 2))
    patient = FakeProducer(full=2)
    KafkaSink(patient, "t", drops, TraceLife("w"), lambda: float(next(now))).write([event("a")])
    assert len(patient.values) == 1
    full = FakeProducer(full=10**6)
    KafkaSink(full, "t", drops, TraceLife("w"), lambda: float(next(now))).write([event("a")])
    assert drops.counts() == {("kafka", "unreachable"): 1}


# ---- rows ------------------------------------------------------------------------------------


def test_a_message_is_one_row_however_many_its_events() -> None:
    rows = rows_of([event("a", Stage.CLAIMED), event("b"), event("a")])
    assert [row.message_id for row in rows] == ["a", "b"]
    assert events_in([rows[0].events]) == [event("a", Stage.CLAIMED), event("a")]
    assert rows[0].day == NOW // DAY_MS


def test_a_record_without_an_id_is_found_by_its_place() -> None:
    (row,) = rows_of([event("", Stage.DEAD_LETTER, origin="hongyan.dispatch.sms.notice/0/7")])
    assert row.message_id == "hongyan.dispatch.sms.notice/0/7"


@given(st.text(max_size=30), st.text(max_size=30))
def test_a_row_of_copy_is_one_line_of_four_fields(message_id: str, detail: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in message_id + detail):
        return
    line = copy_text(rows_of([event(message_id or "x", detail=detail)]))
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.count("\t") == 3
    assert "\x00" not in line


# ---- the database ----------------------------------------------------------------------------


@pytest.fixture
def settings(trace_url: str) -> Settings:
    found = Settings(database=DatabaseSettings(url=trace_url), trace=TraceSettings(kafka=False))
    upgraded(found)
    return found


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Database]:
    database = Database(database_url(settings.database.url), pool_size=1)
    yield database
    database.close()


@pytest.fixture
def sink(settings: Settings) -> Iterator[DatabaseSink]:
    opened = open_database_sink(settings, Drops())
    assert isinstance(opened, DatabaseSink)
    yield opened
    opened.close(0)


def enter(database: Database, **fields: Any) -> None:
    """One delivery, as the ledger would have it."""
    row = {
        "delivery_key": "k1",
        "message_id": "m1",
        "biz_id": "order-1",
        "day": NOW // DAY_MS,
        "token": 1,
        "created_at": NOW,
        "updated_at": NOW,
        "expires_at": NOW + 1_000,
        "attempt": 1,
        "owner_epoch": 1,
        "state": "SENT",
        "lane": "sms.notice",
        "owner": "w1",
        "receiver": b"r",
        "body_digest": b"d",
        "policy_version": "default",
        **fields,
    }
    names = ", ".join(row)
    values = ", ".join(f":{name}" for name in row)
    with database.engine.begin() as connection:
        connection.execute(text(f"INSERT INTO deliveries ({names}) VALUES ({values})"), row)
        if database.is_postgres:
            key = "INSERT INTO delivery_keys (delivery_key, day) VALUES (:delivery_key, :day)"
            connection.execute(text(key), row)


def told(database: Database, name: str) -> list[tuple[str, list[str]]]:
    return [
        (delivery.delivery_key, [moment.what for moment in delivery.moments])
        for story in find(database, name)
        for delivery in story.deliveries
    ]


def test_what_was_written_comes_back_as_a_timeline(
    settings: Settings, sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger)
    common: dict[str, Any] = {"delivery_key": "k1", "biz_id": "order-1", "created_at": NOW - 50}
    sink.write([event("m1", Stage.CLAIMED, received_at=NOW - 20, detail=NASTY, **common)])
    sink.write(
        [event("m1", at=NOW + 30, started_at=NOW + 1, answered_at=NOW + 20, state="SENT", **common)]
    )
    way = ["created", "received", "claimed", "called", "answered", "settled"]
    for name in ("m1", "k1", "order-1"):
        assert told(ledger, name) == [("k1", way)]
    (story,) = find(ledger, "m1")
    assert story.deliveries[0].row is not None
    assert story.deliveries[0].row.state == "SENT"
    assert story.deliveries[0].moments[2].detail == NASTY


def test_a_message_without_a_ledger_row_still_has_its_events(
    sink: DatabaseSink, ledger: Database
) -> None:
    sink.write([event("m9", delivery_key="k9")])
    (story,) = find(ledger, "m9")
    assert story.deliveries[0].row is None
    assert told(ledger, "m9") == [("k9", ["settled"])]


def test_a_dead_letter_is_found_by_its_place_in_kafka(sink: DatabaseSink, ledger: Database) -> None:
    sink.write([event("", Stage.DEAD_LETTER, origin="t/0/7", reason="not_json")])
    (story,) = find(ledger, "t/0/7")
    assert story.deliveries[0].moments[0].reason == "not_json"


def test_every_receiver_of_a_message_is_told_when_one_is_asked_for(ledger: Database) -> None:
    enter(ledger)
    enter(ledger, delivery_key="k2", state="UNKNOWN", biz_id=None)
    enter(ledger, delivery_key="k3", message_id="m2")
    assert {key for key, _ in told(ledger, "k2")} == {"k1", "k2"}
    assert {key for key, _ in told(ledger, "order-1")} == {"k1", "k3"}


def test_events_of_a_later_version_hide_no_others() -> None:
    """While versions are mixed, or after a way back."""
    texts = [
        """[{"at":1,"stage":"later_stage","message_id":"m","new":{}},
            {"at":2,"stage":"settled","message_id":"m","new":{}}]""",
        '[{"at":3,"stage":"receipt","message_id":"m"}]',
    ]
    assert [(one.at, one.stage) for one in events_in(texts)] == [
        (2, Stage.SETTLED),
        (3, Stage.RECEIPT),
    ]


def test_nothing_is_told_of_what_nobody_knows(ledger: Database) -> None:
    assert find(ledger, "nobody") == []


class MovedClock:
    """The clock of a database, which a test moves, and a sink that goes by it."""

    def __init__(self, settings: Settings, ledger: Database) -> None:
        self._ledger, self._now = ledger, NOW
        self.sink = DatabaseSink(
            Database(database_url(settings.database.url), pool_size=1),
            keep_days=2,
            now_ms=lambda: self._now,
            monotonic=lambda: self._now / 1000,
        )
        self.day(0)

    def day(self, number: int) -> int:
        """Lets that day after NOW begin. Returns its time, epoch milliseconds."""
        self._now = NOW + number * DAY_MS
        if self._ledger.is_postgres:
            self.run(
                "CREATE OR REPLACE FUNCTION hongyan_now() RETURNS BIGINT LANGUAGE sql STABLE"
                f" PARALLEL SAFE AS 'SELECT {self._now}::bigint'"
            )
        return self._now

    def run(self, statement: str) -> None:
        with self._ledger.engine.begin() as connection:
            connection.execute(text(statement))

    def left(self, query: str = "SELECT message_id FROM trace_events ORDER BY 1") -> list[str]:
        with self._ledger.engine.begin() as connection:
            return list(connection.execute(text(query)).scalars())


@pytest.fixture
def clock(settings: Settings, ledger: Database) -> Iterator[MovedClock]:
    made = MovedClock(settings, ledger)
    yield made
    made.sink.close(0)


def test_days_past_their_time_are_removed(clock: MovedClock) -> None:
    for day in range(4):
        clock.sink.write([event(f"m{day}", at=clock.day(day))])
    assert clock.left() == ["m1", "m2", "m3"]


@pytest.mark.parametrize("days", [365, 3, -365], ids=["a year ahead", "ahead", "a year behind"])
def test_an_event_of_a_wrong_clock_lives_as_long_as_the_others_and_removes_none(
    clock: MovedClock, days: int
) -> None:
    for day in range(3):
        clock.sink.write([event(f"m{day}", at=clock.day(day))])
    clock.sink.write([event("wrong", at=clock.day(2) + days * DAY_MS)])
    assert clock.left() == ["m0", "m1", "m2", "wrong"]
    clock.sink.write([event("m4", at=clock.day(4))])
    assert clock.left() == ["m2", "m4", "wrong"]
    clock.sink.write([event("m5", at=clock.day(5))])
    assert clock.left() == ["m4", "m5"]


@pytest.mark.parametrize("trace_url", ["sqlite"], indirect=True)
def test_old_days_leave_sqlite_in_short_transactions(
    clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One long statement would hold up the ledger's writers."""
    monkeypatch.setattr("tracing.sinks.database._PAGE", 3)
    monkeypatch.setattr("tracing.sinks.database._PAGES", 4)
    for number in range(4):  # of a time when this host's clock was ahead
        values = f"{NOW // DAY_MS + 400}, {NOW}, 'wrong{number}', '[]'"
        clock.run(f"INSERT INTO trace_events (day, at, message_id, events) VALUES ({values})")
    for number in range(18):
        clock.sink.write([event(f"m{number:02}", at=clock.day(0))])
    clock.sink.write([event("now", at=clock.day(3))])
    assert len(clock.left()) == 4 + 10 + 1, "a look ends after some pages"
    for later in (1, 2):
        clock.day(3)
        clock._now += later * 601_000
        clock.sink.write([event(f"now{later}", at=clock._now)])
    assert clock.left() == ["now", "now1", "now2", *(f"wrong{n}" for n in range(4))]


@pytest.mark.parametrize("trace_url", ["postgresql"], indirect=True)
def test_a_long_reader_holds_up_no_writer_of_the_trace(
    clock: MovedClock, settings: Settings, ledger: Database
) -> None:
    """A process that waits for the lock of a partition holds up every other writer."""
    clock.sink.write([event("m0", at=clock.day(0))])
    clock.day(4)
    with ledger.connection() as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT count(*) FROM trace_events")
        begun = time.monotonic()
        clock.sink.write([event("m4", at=clock._now)])
        took = time.monotonic() - begun
        backup.execute("COMMIT")
    assert took < 4, "three steps, none of which waits for 5 s"
    assert clock.left() == ["m0", "m4"]
    clock._now += 601_000
    clock.sink.write([event("m5", at=clock._now)])
    assert clock.left() == ["m4", "m5"], "the old day is removed once its lock is free"


@pytest.mark.parametrize("trace_url", ["postgresql"], indirect=True)
def test_a_day_in_the_default_partition_stops_no_other_and_is_removed_in_its_turn(
    clock: MovedClock,
) -> None:
    def enter(day: int) -> None:
        values = f"{(NOW + day * DAY_MS) // DAY_MS}, {NOW}, 'stray{day}', '[]'"
        clock.run(f"INSERT INTO trace_events (day, at, message_id, events) VALUES ({values})")

    for day in (-3, 0, 1):
        enter(day)
    clock.sink.write([event("m0", at=clock.day(0))])
    assert clock.left() == ["m0", "stray0", "stray1"]
    clock.sink.write([event("m1", at=clock.day(1))])
    clock.sink.write([event("m3", at=clock.day(3))])
    assert clock.left() == ["m1", "m3", "stray1"]
    clock.sink.write([event("m4", at=clock.day(4))])
    assert clock.left() == ["m3", "m4"]
    of_default = "SELECT message_id FROM trace_events_default"
    assert clock.left(of_default) == []


def test_without_the_table_the_sink_waits_instead_of_dropping(sqlite_database: str) -> None:
    sink = DatabaseSink(Database(database_url(sqlite_database), pool_size=1), keep_days=2)
    with pytest.raises(SinkAway, match="trace_events"):
        sink.write([event("m1")])
    sink.close(0)


def test_the_recorder_of_the_settings_writes_into_the_database(
    settings: Settings, ledger: Database
) -> None:
    recorder = open_recorder(settings)
    recorder.record([event("m1", delivery_key="k1")])
    recorder.close(10.0)
    assert told(ledger, "m1") == [("k1", ["settled"])]


def test_with_every_sink_off_nothing_is_kept() -> None:
    off = Settings(trace=TraceSettings(kafka=False, database=False))
    assert isinstance(open_recorder(off), NoRecorder)


def test_moments_of_the_same_millisecond_keep_their_natural_order() -> None:
    same: Sequence[TraceEvent] = [
        event("m", Stage.SETTLED, started_at=NOW, answered_at=NOW, created_at=NOW),
        event("m", Stage.CLAIMED, received_at=NOW, created_at=NOW),
    ]
    way = ["created", "received", "claimed", "called", "answered", "settled"]
    assert [moment.what for moment in moments(same)] == way


def test_one_event_tells_the_whole_way_by_its_marks() -> None:
    whole = event(
        "m",
        at=NOW + 5,
        created_at=NOW,
        received_at=NOW + 1,
        claimed_at=NOW + 2,
        started_at=NOW + 3,
        answered_at=NOW + 4,
    )
    told_once = moments([whole])
    assert [m.what for m in told_once] == [
        *("created", "received", "claimed", "called", "answered", "settled")
    ]
    assert [m.at - NOW for m in told_once] == [0, 1, 2, 3, 4, 5]


def test_a_message_that_came_forty_thousand_times_is_told_soon() -> None:
    """A producer may repeat an id, and its key may ask the gateway about it."""
    came = [
        event("m1", Stage.DUPLICATE, delivery_key="k1", at=NOW + n, received_at=NOW + n - 1)
        for n in range(40_000)
    ]
    begun = time.process_time()
    assert len(moments(came)) == 80_000
    assert time.process_time() - begun < 5, "one look at all others for each took half a minute"


def test_a_mark_that_several_events_carry_is_told_once() -> None:
    first = event("m", Stage.FENCED, at=NOW + 5, received_at=NOW + 1)
    second = event("m", at=NOW + 9, received_at=NOW + 1)
    assert [m.what for m in moments([first, second])] == ["received", "fenced", "settled"]


def test_a_claim_that_nothing_followed_is_told_from_the_ledger(ledger: Database) -> None:
    enter(ledger, state="UNKNOWN")
    assert told(ledger, "m1") == [("k1", ["claimed"])]
    enter(ledger, delivery_key="k2", message_id="m2", state="EXPIRED", attempt=0)
    assert told(ledger, "m2") == [("k2", [])]


# ---- the story -------------------------------------------------------------------------------


def deaths(database: Database) -> list[tuple[str, int, str]]:
    """What is told of claims, deaths and ends: what, attempt, worker."""
    (story,) = find(database, "m1")
    return [(m.what, m.attempt, m.worker) for m in story.deliveries[0].moments]


def test_the_row_tells_of_a_worker_that_died_before_it_could(ledger: Database) -> None:
    enter(ledger, state="UNKNOWN", reason="owner_dead", updated_at=NOW + 30_000, account="main")
    assert deaths(ledger) == [("claimed", 1, "w1"), ("owner_dead", 1, "w1")]
    (story,) = find(ledger, "m1")
    death = story.deliveries[0].moments[-1]
    assert (death.at, death.account, death.state) == (NOW + 30_000, "main", "UNKNOWN")


def test_the_attempt_of_the_dead_is_told_and_not_its_successors_for_it(
    sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger, state="SENT", attempt=2, owner="r1", updated_at=NOW + 40_000)
    common: dict[str, Any] = {"delivery_key": "k1"}
    death: dict[str, Any] = {"worker": "w1", "attempt": 1, "claimed_at": NOW + 10}
    sink.write(
        [
            event("m1", Stage.OWNER_DEAD, at=NOW + 30_000, **death, **common),
            event("m1", Stage.RESOLVED, at=NOW + 31_000, worker="r1", attempt=1, **common),
            event("m1", at=NOW + 40_000, worker="r1", attempt=2, state="SENT", **common),
        ]
    )
    assert deaths(ledger) == [
        ("claimed", 1, "w1"),
        ("owner_dead", 1, "w1"),
        ("resolved", 1, "r1"),
        ("settled", 2, "r1"),
    ]


@pytest.mark.parametrize(
    ("stage", "state"),
    [
        (Stage.HELD, "RETRY"),
        (Stage.BEHIND, "RETRY"),
        (Stage.FOUND, "RETRY"),
        (Stage.PARKED, "PARKED"),
        (Stage.EXPIRED, "EXPIRED"),
    ],
)
def test_no_claim_is_told_of_a_row_that_entered_without_one(
    sink: DatabaseSink, ledger: Database, stage: Stage, state: str
) -> None:
    """Recovery is the first to send it, hours later."""
    enter(ledger, state="SENT", owner="r1", updated_at=NOW + 36_000_000)
    common: dict[str, Any] = {"delivery_key": "k1"}
    taken: dict[str, Any] = {"at": NOW + 36_000_000, "worker": "r1", "attempt": 1}
    sink.write([event("m1", stage, worker="w1", state=state, **common)])
    sink.write([event("m1", Stage.TAKEN, **taken, **common), event("m1", **taken, **common)])
    assert deaths(ledger) == [(stage, 0, "w1"), ("taken", 1, "r1"), ("settled", 1, "r1")]


def test_a_first_attempt_that_recovery_took_has_no_earlier_claim(
    sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger, state="SENT", owner="r1")
    sink.write([event("m1", Stage.TAKEN, worker="r1", attempt=1, delivery_key="k1")])
    assert deaths(ledger) == [("taken", 1, "r1")], "the event of its entry was dropped"


def test_the_row_tells_of_the_first_call_of_one_that_was_held(
    sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger, state="IN_FLIGHT", owner="r1", updated_at=NOW + 36_000_000)
    sink.write([event("m1", Stage.HELD, worker="w1", state="RETRY", delivery_key="k1")])
    assert deaths(ledger) == [("held", 0, "w1"), ("claimed", 1, "r1")]
    (story,) = find(ledger, "m1")
    assert story.deliveries[0].moments[-1].at == NOW + 36_000_000


def test_an_end_after_a_claim_hides_no_claim(sink: DatabaseSink, ledger: Database) -> None:
    enter(ledger, state="EXPIRED")
    ended: dict[str, Any] = {"at": NOW + 9, "worker": "r1", "attempt": 1, "delivery_key": "k1"}
    sink.write([event("m1", Stage.EXPIRED, **ended)])
    assert deaths(ledger) == [("claimed", 1, "w1"), ("expired", 1, "r1")]


def test_a_first_claim_that_nobody_told_of_is_not_the_last_owners(
    sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger, state="SENT", attempt=2, owner="r1")
    sink.write([event("m1", at=NOW + 9, worker="r1", attempt=2, state="SENT", delivery_key="k1")])
    assert deaths(ledger) == [("claimed", 1, ""), ("settled", 2, "r1")]


def test_a_second_attempt_under_way_is_told_by_its_row(
    sink: DatabaseSink, ledger: Database
) -> None:
    enter(ledger, state="IN_FLIGHT", attempt=2, owner="r1", updated_at=NOW + 50)
    first: dict[str, Any] = {"worker": "w1", "attempt": 1, "claimed_at": NOW, "state": "RETRY"}
    sink.write([event("m1", at=NOW + 9, delivery_key="k1", **first)])
    assert deaths(ledger) == [("claimed", 1, "w1"), ("settled", 1, "w1"), ("claimed", 2, "r1")]


@pytest.mark.parametrize("end", ["", "timed_out", "lost", "not_started"])
def test_a_call_without_an_answer_is_not_told_as_answered(end: str) -> None:
    told = moments([event("m1", started_at=NOW - 9, answered_at=NOW - 2, call_end=end)])
    assert [m.what for m in told] == ["called", end or "answered", "settled"]
    assert told[1].took_ms == 7


def test_a_copy_and_its_original_name_each_other(ledger: Database) -> None:
    enter(ledger)
    enter(ledger, message_id="m2", delivery_key="k2", resend_of="m1", created_at=NOW + 2)
    enter(ledger, message_id="m2", delivery_key="k3", resend_of="m1", created_at=NOW + 2)
    enter(ledger, message_id="m3", delivery_key="k4", resend_of="m1", created_at=NOW + 1)
    (original,), (copy,) = find(ledger, "m1"), find(ledger, "m2")
    assert (original.copies, original.copy_of) == (["m3", "m2"], None)
    assert (copy.copies, copy.copy_of) == ([], "m1")


def test_copies_are_found_by_an_index_that_holds_copies_alone(ledger: Database) -> None:
    query = COPIES.replace(":messages", "('m1')")
    with ledger.engine.begin() as connection:
        if not ledger.is_postgres:
            found = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
            assert "deliveries_copies" in str(found)
            return
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        found = connection.exec_driver_sql(f"EXPLAIN {query}").all()
    assert "resend_of_created_at_idx" in str(found)
