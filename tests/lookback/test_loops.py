"""Consumer, checks and forwarder apart from Kafka: order of writes, leases, isolated failures."""

import struct
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace
from prometheus_client import generate_latest
from sqlalchemy.exc import DataError

from idempotency.ledger import LedgerUnavailable
from idempotency.payload_cipher import KEY_BYTES
from lookback.check import Answer, CheckReply
from lookback.consumer import BATCH_BYTES, ConsumerParts, ConsumerRefused, LookbackConsumer
from lookback.dead_letters import PoisonRecord, PoisonWriter
from lookback.forwarder import Forwarder, ForwardTerms, ProducerFailed, delivery_timeout_ms
from lookback.metrics import LookbackMetrics
from lookback.scheduler import CheckScheduler
from lookback.store import CLAIM_BYTES, LookbackStore, TakenRecords
from message.lookback import LookbackRecord, encode
from tests.idempotency.making import World
from tests.lookback.kafka_fakes import FakeProducer, FakeRecord
from tests.lookback.making import COMMIT, IMMUNITY, KIND, LEASE, TERMS, UNKNOWN, Ground

NO_TOPIC = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "there is no such topic")
FATAL = KafkaError(KafkaError._FATAL, "Fatal error: the broker refused it")
"""As a poll, a report and `produce` have it: its own `fatal()` is False."""
PAYLOAD_KEY = b64encode(bytes(range(KEY_BYTES))).decode()


class FakeConsumer:
    """Gives its batches out; notes what happens, in order."""

    def __init__(self, batches: Sequence[Sequence[Any]], did: list[str]) -> None:
        self.batches = list(batches)
        self.did = did
        self.committed: list[Any] = []
        self.polls = 0

    def subscribe(self, topics: list[str], **_: Any) -> None:
        self.did.append("subscribed")

    def consume(self, _most: int, _timeout: float) -> Sequence[Any]:
        return self.batches.pop(0) if self.batches else ()

    def poll(self, _timeout: float) -> None:
        self.polls += 1

    def assignment(self) -> list[Any]:
        return ["all"]

    def pause(self, _places: Any) -> None:
        self.did.append("paused")

    def resume(self, _places: Any) -> None:
        self.did.append("resumed")

    def commit(self, offsets: Any, asynchronous: bool) -> None:
        assert asynchronous
        self.did.append("committed")
        self.committed += offsets

    def close(self) -> None:
        self.did.append("closed")


class Store:
    """Notes the records taken; away as often as asked."""

    def __init__(self, did: list[str], away: int = 0) -> None:
        self.did, self.away = did, away
        self.store: LookbackStore | None = None

    def take(self, records: Sequence[LookbackRecord]) -> TakenRecords:
        if self.away:
            self.away -= 1
            raise LedgerUnavailable("away")
        assert self.store is not None
        taken = self.store.take(records)
        self.did.append("taken")
        return taken


def consuming(
    ground: Ground,
    values: Sequence[bytes],
    away: int = 0,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[Any, Any, Any]:
    """Returns consumer, its Kafka client and the producer of dead letters."""
    did: list[str] = []
    client = FakeConsumer([[FakeRecord(value, n) for n, value in enumerate(values)]], did)
    store, letters = Store(did, away), FakeProducer(did)
    store.store = ground.store
    parts = ConsumerParts(
        client,
        store,
        PoisonWriter(letters, "dead"),
        {KIND: TERMS},
        LookbackMetrics(),
        lambda topic, partition, offset: (topic, partition, offset),
    )
    taking = LookbackConsumer(
        parts, "look_back_msg", 100, wall_ms=lambda: ground.world.now, monotonic=monotonic
    )
    return taking, client, letters


def test_the_offset_passes_only_after_the_commit_in_the_database(ground: Ground) -> None:
    """Invariant 3."""
    tx_id = ground.tx()
    taking, client, _ = consuming(
        ground, [encode(ground.prepare(tx_id)), encode(ground.commit(tx_id))]
    )
    assert taking.run_once() == 2
    assert client.did == ["taken", "committed"]
    assert client.committed == [("look_back_msg", 0, 2)]
    assert ground.state(tx_id) == "COMMITTED"


def test_a_batch_ends_at_its_bytes(ground: Ground) -> None:
    """A batch of large records was in memory several times, whatever its size was."""
    taking, client, _ = consuming(ground, [])
    client.batches = [[FakeRecord(bytes(1 << 20), n)] for n in range(40)]
    assert taking.run_once() == BATCH_BYTES >> 20
    assert client.committed == [("look_back_msg", 0, BATCH_BYTES >> 20)]


def test_a_batch_ends_at_its_number(ground: Ground) -> None:
    taking, client, _ = consuming(ground, [])
    client.batches = [[FakeRecord(b"{", n)] for n in range(150)]
    assert taking.run_once() == 100


def test_while_the_database_is_away_partitions_pause_and_no_offset_passes(ground: Ground) -> None:
    """Invariant 3."""
    taking, client, _ = consuming(ground, [encode(ground.prepare(ground.tx()))], away=2)
    taking.run_once()
    assert client.did == ["paused", "paused", "taken", "resumed", "committed"]
    assert client.polls == 2, "the group keeps its member"


def test_a_stop_while_the_database_is_away_leaves_the_offsets(ground: Ground) -> None:
    taking, client, _ = consuming(ground, [encode(ground.prepare(ground.tx()))], away=99)
    taking.stop()
    taking.run_once()
    assert client.did == ["paused"]
    assert taking.away == "away", "its health page gives the ledger's own sentence"


def test_the_offset_of_a_lost_partition_is_not_committed(ground: Ground) -> None:
    taking, client, _ = consuming(ground, [encode(ground.prepare(ground.tx()))], away=1)

    class Place:
        topic, partition = "look_back_msg", 0

    client.poll = lambda _timeout: taking._gone(client, [Place])
    taking.run_once()
    assert client.committed == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"biz_type": "other"}, "unknown_biz_type"),
        ({"topic": "secrets"}, "topic_not_allowed"),
        ({"check": "http"}, "unknown_check"),
        ({"biz_id": "another"}, "other_transaction"),
        ({"tx_id": "f" * 12 + "7" + "0" * 3 + "8" + "0" * 15}, "created_ahead"),
    ],
)
def test_a_record_that_is_not_allowed_is_a_dead_letter_before_its_offset_passes(
    ground: Ground, changes: dict[str, str], reason: str
) -> None:
    tx_id = ground.prepared()
    value = encode(replace(ground.prepare(tx_id), **changes))
    taking, client, letters = consuming(ground, [value, encode(ground.commit(tx_id))])
    taking.run_once()
    assert client.did == ["taken", "produced", "committed"]
    ((topic, sent, _key, headers),) = letters.sent
    assert (topic, sent) == ("dead", value)
    assert dict(headers)["hongyan-dead-reason"] == reason.encode()
    assert dict(headers)["hongyan-dead-origin"] == b"look_back_msg/0/0"
    assert ground.state(tx_id) == "COMMITTED", "the others of the batch go on"


def test_a_key_that_no_database_keeps_is_a_dead_letter_and_the_others_go_on(ground: Ground) -> None:
    bad, tx_id = ground.tx(), ground.prepared()
    value = msgspec.json.encode(ground.prepare(bad, key=struct.pack(">Q", 42).decode()))
    taking, client, letters = consuming(ground, [value, encode(ground.commit(tx_id))])
    taking.run_once()
    assert client.did == ["taken", "produced", "committed"]
    ((_topic, sent, _key, headers),) = letters.sent
    assert sent == value
    assert dict(headers)["hongyan-dead-reason"] == b"control_character"
    assert (ground.desk.find(bad), ground.state(tx_id)) == ([], "COMMITTED")


def test_a_record_that_the_store_refuses_is_a_dead_letter_and_the_others_go_on(
    ground: Ground,
) -> None:
    bad, tx_id = ground.prepare(ground.tx()), ground.prepared()
    values = [encode(bad), encode(ground.commit(tx_id))]
    taking, client, letters = consuming(ground, values)
    take = ground.store._take

    def refuse(connection: Any, records: Sequence[LookbackRecord], now: int) -> TakenRecords:
        if bad in records:
            raise DataError("INSERT", {}, Exception("a value that nobody foresaw"))
        return take(connection, records, now)

    ground.store._take = refuse  # type: ignore[method-assign]
    taking.run_once()
    assert client.did == ["taken", "produced", "committed"]
    ((_topic, sent, _key, headers),) = letters.sent
    assert (sent, dict(headers)["hongyan-dead-reason"]) == (values[0], b"not_storable")
    assert b"nobody foresaw" not in dict(headers)["hongyan-dead-detail"]
    assert ground.state(tx_id) == "COMMITTED"


def test_poison_whose_headers_cannot_be_read_is_a_dead_letter_without_them_however_often_tried() -> (
    None
):
    odd = FakeRecord(b"{", 0, headers=SystemError("returned a result with an exception"))
    kept = FakeRecord(b"{", 1, headers=[("theirs", b"kept")])
    letters = FakeProducer()
    letters.error = NO_TOPIC
    flushes: list[float] = []

    def flush(timeout: float) -> None:
        letters.poll(timeout)
        flushes.append(timeout)
        letters.error = None

    letters.flush = flush  # type: ignore[method-assign]
    writer = PoisonWriter(letters, "dead")
    poison = [PoisonRecord(one, "not_json", "at $: no JSON") for one in (odd, kept)]
    assert writer.write(poison, lambda _cause: True)
    assert len(flushes) == 2
    for _topic, _value, key, headers in (letters.sent[0], letters.sent[2]):
        assert (key, [name for name, _ in headers if "dead" not in name]) == (b"k", [])
        assert b"name of a header is not UTF-8" in dict(headers)["hongyan-dead-detail"]
    assert letters.sent[3][3][0] == ("theirs", b"kept")
    assert dict(letters.sent[3][3])["hongyan-dead-detail"] == b"at $: no JSON"


def test_without_its_dead_letter_the_offset_holds(ground: Ground) -> None:
    taking, client, letters = consuming(ground, [b"no record"])
    letters.error = NO_TOPIC
    taking.stop()
    taking.run_once()
    assert client.did == ["taken", "produced"]
    assert client.polls == 0


def test_while_no_dead_letter_is_taken_the_group_keeps_its_member_and_stop_ends_it(
    ground: Ground,
) -> None:
    """A process that does not poll leaves the group, and one whose beat stands still is restarted."""
    now = [0.0]
    taking, client, letters = consuming(ground, [b"no record"], monotonic=lambda: now[0])
    letters.error = NO_TOPIC
    beats: list[float] = []

    def poll(_timeout: float) -> None:
        now[0] += 1
        beats.append(taking.beat)
        if len(beats) == 3:
            taking.stop()

    client.poll = poll
    taking.run()
    assert beats[:3] == [0.0, 1.0, 2.0]
    assert client.did == ["subscribed", "taken", *["produced", "paused"] * 3, "closed"]
    assert "UNKNOWN_TOPIC_OR_PART" in taking.held


def test_once_its_dead_letter_is_taken_the_partitions_go_on(ground: Ground) -> None:
    taking, client, letters = consuming(ground, [b"no record"])
    letters.error = NO_TOPIC

    def poll(_timeout: float) -> None:
        letters.error = None
        taking._gained(client, ["another"])

    client.poll = poll
    taking.run_once()
    regained = ["resumed", "paused"]
    assert client.did == [
        "taken",
        "produced",
        "paused",
        *regained,
        "produced",
        "resumed",
        "committed",
    ]
    assert taking.held is None


def polled(error: KafkaError) -> FakeRecord:
    """A report that a poll gives in a record's place."""
    found = FakeRecord(b"", 0)
    found.error = lambda: error  # type: ignore[method-assign]
    return found


def test_a_fatal_error_ends_the_process(ground: Ground) -> None:
    taking, client, _ = consuming(ground, [])
    client.batches = [[polled(FATAL)]]
    with pytest.raises(ConsumerRefused, match="refused it"):
        taking.run_once()


def test_another_error_passes_by_itself(ground: Ground) -> None:
    taking, client, _ = consuming(ground, [])
    client.batches = [[polled(NO_TOPIC)]]
    assert taking.run_once() == 0


def test_a_fatal_error_of_the_dead_letters_ends_the_process(ground: Ground) -> None:
    taking, client, letters = consuming(ground, [b"no record"])
    letters.refuses = FATAL
    with pytest.raises(KafkaException, match="refused it"):
        taking.run_once()
    assert "committed" not in client.did


# ---- forwarder ---------------------------------------------------------------------------------


def forwarding(ground: Ground, producer: FakeProducer, now: list[float] | None = None) -> Forwarder:
    clock = now if now is not None else [0.0]
    terms = ForwardTerms(batch=10, lease_s=LEASE / 1_000, poll_s=0.001, drain_s=0.001)
    return Forwarder(ground.store, producer, LookbackMetrics(), terms, monotonic=lambda: clock[0])


def committed(ground: Ground, **more: Any) -> str:
    tx_id = ground.tx()
    ground.take(ground.prepare(tx_id, **more), ground.commit(tx_id))
    return tx_id


def test_a_message_goes_as_it_was_prepared_and_is_marked(ground: Ground) -> None:
    tx_id = committed(ground, payload=b"body", headers={"hongyan-id": "n-1"})
    producer = FakeProducer()
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    forwarder.run_once()
    ((topic, value, key, headers),) = producer.sent
    assert (topic, value, key) == ("t", b"body", f"o-{tx_id[-6:]}".encode())
    assert headers == [("hongyan-id", b"n-1"), ("hongyan-tx-id", tx_id.encode())]
    assert ground.shown(tx_id).forwarded_to == "t/0/1"


def test_it_is_marked_only_after_the_acknowledgement(ground: Ground) -> None:
    tx_id = committed(ground)
    producer = FakeProducer()
    producer.holding = True
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    forwarder.run_once()
    assert ground.state(tx_id) == "COMMITTED"
    producer.holding = False
    forwarder.run_once()
    assert ground.state(tx_id) == "FORWARDED"


def test_killed_between_produce_and_mark_it_goes_again_the_same(ground: Ground) -> None:
    """Invariant 4."""
    tx_id = committed(ground, payload=b"body")
    dead = FakeProducer()
    dead.holding = True
    forwarding(ground, dead).run_once()
    ground.world.advance(LEASE)
    alive = FakeProducer()
    forwarder = forwarding(ground, alive)
    forwarder.run_once()
    forwarder.run_once()
    assert alive.sent == dead.sent
    assert ground.state(tx_id) == "FORWARDED"


def test_a_body_that_is_not_the_prepared_one_is_never_sent(ground: Ground) -> None:
    """Invariant 2."""
    tx_id = committed(ground, payload=b"body")
    with ground.ledger.database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE lookback_transactions SET topic = 'u' WHERE tx_id = '{tx_id}'"
        )
    producer = FakeProducer()
    forwarding(ground, producer).run_once()
    assert producer.sent == []
    assert ground.shown(tx_id).reason.startswith("body_damaged")


def test_a_process_held_up_past_half_its_lease_sends_nothing(ground: Ground) -> None:
    tx_id, now = committed(ground), [0.0]
    producer = FakeProducer()
    forwarder = forwarding(ground, producer, now)
    claim = ground.store.claim_forwards

    def slow(*arguments: Any) -> Any:
        rows = claim(*arguments)
        now[0] += LEASE / 1_000
        return rows

    ground.store.claim_forwards = slow  # type: ignore[method-assign,assignment]
    forwarder.run_once()
    assert producer.sent == []
    forwarder.run_once()
    assert ground.state(tx_id) == "COMMITTED"
    assert "half its lease" in ground.shown(tx_id).last_error


def test_a_message_that_no_broker_takes_stays_and_holds_up_no_other(ground: Ground) -> None:
    bad = committed(ground)
    producer = FakeProducer()
    producer.error = NO_TOPIC
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    forwarder.run_once()
    assert ground.state(bad) == "COMMITTED"
    assert ground.shown(bad).last_error == "there is no such topic"
    producer.error = None
    good = committed(ground)
    forwarder.run_once()
    forwarder.run_once()
    assert ground.state(good) == "FORWARDED"


class SilentTopic(FakeProducer):
    """Acknowledges what goes to other topics than `silent`."""

    def poll(self, _timeout: float) -> None:
        opened, self._open = self._open, []
        for report, record in opened:
            if record.topic() == "silent":
                self._open.append((report, record))
            else:
                report(None, record)


def test_a_topic_that_does_not_answer_holds_up_its_own_messages_alone(ground: Ground) -> None:
    """Messages to a partition without a leader took all the room until their delivery timed out."""
    for _ in range(30):
        committed(ground, topic="silent")
    ground.world.advance(1)
    good, now = committed(ground), [0.0]
    producer = SilentTopic()
    forwarder = forwarding(ground, producer, now)
    for _ in range(5):
        forwarder.run_once()
        now[0] += 1.1
    assert ground.state(good) == "FORWARDED"
    assert len([topic for topic, *_ in producer.sent if topic == "silent"]) == 10


def test_a_claim_ends_at_its_bytes(ground: Ground) -> None:
    """200 messages of a mebibyte took 700 MB, and most of them found the client's buffer full."""
    for _ in range(40):
        committed(ground, payload=bytes(1 << 20))
    terms = ForwardTerms(batch=40, lease_s=60, poll_s=0.001, drain_s=0.001)
    producer = FakeProducer()
    producer.holding = True
    forwarder = Forwarder(ground.store, producer, LookbackMetrics(), terms)
    forwarder.run_once()
    forwarder.run_once()
    assert len(producer.sent) == CLAIM_BYTES >> 20
    assert len(ground.store.claim_forwards(10, LEASE, 1)) == 1, "the first one always goes"
    producer.holding = False
    forwarder.run_once()
    forwarder.run_once()
    assert len(producer.sent) == 39


def test_headers_that_are_no_json_park_their_message_and_end_no_process(ground: Ground) -> None:
    tx_id = committed(ground)
    with ground.ledger.database.begin() as connection:
        connection.exec_driver_sql("UPDATE lookback_transactions SET headers = '{'")
    producer = FakeProducer()
    forwarding(ground, producer).run_once()
    assert producer.sent == []
    assert ground.shown(tx_id).reason.startswith("body_damaged")


def test_after_a_fatal_error_at_produce_the_loop_ends_and_what_was_acknowledged_is_marked(
    ground: Ground,
) -> None:
    good = committed(ground)
    producer = FakeProducer()
    producer.holding = True
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    producer.holding, producer.refuses = False, FATAL
    bad = committed(ground)
    with pytest.raises(ProducerFailed, match="refused it"):
        forwarder.run()
    assert (ground.state(good), ground.state(bad)) == ("FORWARDED", "COMMITTED")
    assert ground.shown(bad).last_error == FATAL.str()


def test_after_a_fatal_error_in_a_report_the_loop_ends(ground: Ground) -> None:
    tx_id = committed(ground)
    producer = FakeProducer()
    producer.error = FATAL
    with pytest.raises(ProducerFailed, match="refused it"):
        forwarding(ground, producer).run()
    assert ground.shown(tx_id).last_error == FATAL.str()


def test_every_report_comes_before_the_lease_is_over() -> None:
    assert delivery_timeout_ms(60) == 29_500
    assert delivery_timeout_ms(1) == 1_000


# ---- checks ------------------------------------------------------------------------------------


class Endpoint:
    """Answers by the last digits of the biz_id; notes each question."""

    def __init__(self, answer: Callable[[str], CheckReply]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def check(self, biz_type: str, biz_id: str, tx_id: str) -> CheckReply:
        self.asked.append(tx_id)
        return self.answer(tx_id)


def checking(ground: Ground, endpoint: Endpoint) -> CheckScheduler:
    return CheckScheduler(
        ground.store,
        {"orders": endpoint},
        {KIND: TERMS},
        LookbackMetrics(),
        lease_s=LEASE / 1_000,
        poll_s=0.01,
    )


def run_checks(scheduler: CheckScheduler, rounds: int) -> None:
    """Begins checks so many times, each time after those before have ended."""
    for _ in range(rounds):
        scheduler.run_once()
        while scheduler.in_check()[KIND]:
            scheduler._wake.wait(0.01)
            scheduler._wake.clear()
    scheduler.stop()
    scheduler.run()


def test_rocketmq_a_check_that_fails_does_not_stop_the_queue(ground: Ground) -> None:
    names = [ground.prepared() for _ in range(6)]
    broken = set(names[:3])

    def answer(tx_id: str) -> CheckReply:
        if tx_id in broken:
            raise OSError("connection refused")
        return COMMIT

    ground.world.advance(IMMUNITY)
    run_checks(checking(ground, Endpoint(answer)), 4)
    assert {ground.state(name) for name in names[3:]} == {"COMMITTED"}
    assert {ground.state(name) for name in broken} == {"PREPARED"}
    assert ground.shown(names[0]).last_error == "the check failed: OSError"
    assert [ground.shown(name).checks for name in names] == [1] * 6


def test_a_commit_that_comes_while_a_check_runs_wins_over_its_answer(ground: Ground) -> None:
    tx_id = ground.prepared()

    def answer(_: str) -> CheckReply:
        ground.take(ground.commit(tx_id))
        return CheckReply(Answer.ROLLBACK)

    ground.world.advance(IMMUNITY)
    run_checks(checking(ground, Endpoint(answer)), 1)
    shown = ground.shown(tx_id)
    assert (shown.state, shown.decided_by, shown.conflict) == ("COMMITTED", "business", "")


def test_no_more_checks_run_than_threads(ground: Ground) -> None:
    names = [ground.prepared() for _ in range(5)]
    go, most = threading.Event(), []
    lock = threading.Lock()
    running = [0]

    def answer(_: str) -> CheckReply:
        with lock:
            running[0] += 1
            most.append(running[0])
        go.wait(5)
        with lock:
            running[0] -= 1
        return UNKNOWN

    ground.world.advance(IMMUNITY)
    scheduler = checking(ground, Endpoint(answer))
    assert scheduler.run_once() == TERMS.threads
    assert scheduler.run_once() == 0
    assert {ground.state(name) for name in names} == {"CHECKING", "PREPARED"}
    go.set()
    run_checks(scheduler, 3)
    assert max(most) == TERMS.threads
    assert [ground.shown(name).checks for name in names] == [1] * 5


def test_checks_under_way_end_before_the_scheduler_does(ground: Ground) -> None:
    tx_id = ground.prepared()
    ground.world.advance(IMMUNITY)
    scheduler = checking(ground, Endpoint(lambda _: COMMIT))
    scheduler.run_once()
    scheduler.stop()
    scheduler.run()
    assert ground.state(tx_id) == "COMMITTED"


def test_metrics_show_the_queues_and_no_database_shows_none(ground: Ground) -> None:
    committed(ground)
    ground.world.advance(5_000)
    metrics = LookbackMetrics()
    metrics.show_queues(ground.store.oldest_committed, lambda: {KIND: 2}, lambda: {KIND: 1})
    page = generate_latest(metrics.registry).decode()
    assert "hongyan_lookback_oldest_committed_seconds 5.0" in page
    assert 'hongyan_lookback_unresolved{biz_type="order"} 2.0' in page

    def away() -> int:
        raise LedgerUnavailable("away")

    dark = LookbackMetrics()
    dark.show_queues(away, dict, lambda: {KIND: 1})
    page = generate_latest(dark.registry).decode()
    assert "\nhongyan_lookback_oldest_committed_seconds" not in page
    assert 'hongyan_lookback_in_check{biz_type="order"} 1.0' in page


def test_a_payload_is_opaque(ground: Ground) -> None:
    payload = msgspec.json.encode({"any": "thing"}) + b"\x00\xff"
    committed(ground, payload=payload)
    producer = FakeProducer()
    forwarding(ground, producer).run_once()
    assert producer.sent[0][1] == payload


@pytest.mark.parametrize(
    ("stored_with", "opened_with"), [("", ""), (PAYLOAD_KEY, PAYLOAD_KEY), ("", PAYLOAD_KEY)]
)
@pytest.mark.parametrize("payload", [b"\x01", b"\x01\x00\x07 a framing of the business's own"])
def test_a_payload_that_begins_as_a_sealed_one_is_forwarded(
    world: World, payload: bytes, stored_with: str, opened_with: str
) -> None:
    """Also a plain one that was stored before a key was configured."""
    tx_id = committed(Ground(world, key=stored_with), payload=payload)
    ground, producer = Ground(world, key=opened_with), FakeProducer()
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    forwarder.run_once()
    assert [sent[1] for sent in producer.sent] == [payload]
    assert ground.state(tx_id) == "FORWARDED"


def test_a_sealed_payload_is_not_forwarded_without_its_key(world: World) -> None:
    """The stored bytes are not the prepared ones."""
    tx_id = committed(Ground(world, key=PAYLOAD_KEY), payload=b"body")
    ground, producer = Ground(world), FakeProducer()
    forwarder = forwarding(ground, producer)
    forwarder.run_once()
    forwarder.run_once()
    assert producer.sent == []
    assert "database.payload_key" in ground.shown(tx_id).last_error


def test_a_check_that_was_kept_back_is_in_no_figure_of_checks(ground: Ground) -> None:
    """They count checks that were made."""
    ground.prepared()
    ground.world.advance(IMMUNITY)
    scheduler = checking(ground, Endpoint(lambda _: UNKNOWN._replace(made=False)))
    run_checks(scheduler, 1)
    page = generate_latest(scheduler._metrics.registry).decode()
    assert "hongyan_lookback_checks_total{" not in page
    assert "hongyan_lookback_check_seconds_count{" not in page


def test_rounds_that_follow_the_ends_of_checks_sweep_once_an_interval(ground: Ground) -> None:
    now: list[float] = [0.0]
    sweeps: list[float] = []
    scheduler = CheckScheduler(
        ground.store,
        {"orders": Endpoint(lambda _: COMMIT)},
        {KIND: TERMS},
        LookbackMetrics(),
        lease_s=LEASE / 1_000,
        poll_s=0.01,
        monotonic=lambda: now[0],
    )

    def sweep(limit: int = 500) -> int:
        sweeps.append(now[0])
        return 0

    ground.store.sweep = sweep  # type: ignore[method-assign]
    for moment in (0.0, 0.005, 0.01, 0.015):
        now[0] = moment
        scheduler.run_once()
    assert sweeps == [0.0, 0.01]
