"""The publisher: every record ends as acknowledged, refused or in doubt, in a bounded buffer."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client import publisher as publisher_module
from hongyan_client.errors import (
    BufferFull,
    ClientClosed,
    NotDelivered,
    SendFailed,
    SendInDoubt,
    WrongProperties,
)
from hongyan_client.publisher import BufferLimits, Publisher, producer_config
from hongyan_client.record_report import EndReport, RecordReport
from hongyan_client.records import Acknowledged, OnEnd, Record
from message.producer_properties import SAFE_PRODUCER
from tests.harness.waiting import await_
from tests.hongyan_client.looking import NOWHERE, PATIENCE_S, contents, make_topic, paused

Opened = Callable[..., Publisher]


def record(topic: str, number: int, key: str = "k") -> Record:
    return Record(topic, key.encode(), b"%d" % number, [("hongyan-id", b"%d" % number)])


def held(publisher: Publisher, topic: str, count: int) -> list[Future[Acknowledged]]:
    return [publisher.publish(record(topic, number), 5) for number in range(count)]


def report_to(publisher: Publisher, on_end: OnEnd) -> RecordReport:
    return EndReport(publisher.use, 1, 0, on_end)


@pytest.mark.parametrize("place", ["embedded", "real"])
def test_each_acknowledged_record_is_at_its_place_in_order_per_key(
    place: str, request: pytest.FixtureRequest, opened: Opened
) -> None:
    if place == "real":
        bootstrap = request.getfixturevalue("kafka_bootstrap")
        topic = request.getfixturevalue("topic_prefix") + ".publisher"
    else:
        bootstrap, topic = request.getfixturevalue("cluster").bootstrap, "in-order"
    if place == "real":
        make_topic(bootstrap, topic)
    publisher = opened(bootstrap)
    keys = [f"key-{number % 7}" for number in range(500)]
    futures = [publisher.publish(record(topic, n, key), 30) for n, key in enumerate(keys)]
    places = [future.result(PATIENCE_S) for future in futures]
    found = {(m.partition(), m.offset()): m for m in contents(bootstrap, topic, 500)}
    for number, acknowledged in enumerate(places):
        message = found[acknowledged.partition, acknowledged.offset]
        assert (message.value(), message.key()) == (b"%d" % number, keys[number].encode())
        if place == "real":  # the in-process cluster answers with a fixed time
            assert message.timestamp()[1] == acknowledged.timestamp_ms
        assert dict(message.headers()) == {"hongyan-id": b"%d" % number}
    offsets = defaultdict(list)
    for key, acknowledged in zip(keys, places, strict=True):
        offsets[key].append((acknowledged.partition, acknowledged.offset))
    assert all(mine == sorted(mine) for mine in offsets.values())
    assert publisher.unacknowledged == 0


def test_a_full_buffer_blocks_until_the_deadline_and_takes_no_more(opened: Opened) -> None:
    publisher = opened(NOWHERE, limits=BufferLimits(records=3))
    futures = held(publisher, "t", 3)
    began = time.monotonic()
    with pytest.raises(BufferFull, match=r"within 0\.3 s, and the buffer of 3 records"):
        publisher.publish(record("t", 4), 0.3)
    assert 0.3 <= time.monotonic() - began < 5
    assert publisher.unacknowledged == 3
    assert not any(future.done() for future in futures)


def test_the_buffer_is_bounded_by_bytes_too(opened: Opened) -> None:
    publisher = opened(NOWHERE, limits=BufferLimits(records=100, bytes=10_000))
    publisher.publish(Record("t", None, b"x" * 9_000), 0)
    with pytest.raises(BufferFull):
        publisher.publish(Record("t", None, b"x" * 2_000), 0)


def test_a_record_above_the_bound_goes_alone(cluster: EmbeddedKafka, opened: Opened) -> None:
    publisher = opened(cluster.bootstrap, limits=BufferLimits(records=100, bytes=1_000))
    future = publisher.publish(Record("large", None, b"x" * 5_000), 5)
    assert future.result(PATIENCE_S).topic == "large"


def test_waiting_callers_go_on_as_soon_as_there_is_room(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    publisher = opened(cluster.bootstrap, limits=BufferLimits(records=2))
    threads_before = threading.active_count()
    futures = [publisher.publish(record("narrow", number), 30) for number in range(200)]
    assert threading.active_count() == threads_before
    assert publisher.flush(PATIENCE_S) == 0
    offsets = [future.result(0).offset for future in futures]
    assert offsets == list(range(200))


def test_many_threads_share_one_publisher(cluster: EmbeddedKafka, opened: Opened) -> None:
    publisher = opened(cluster.bootstrap, limits=BufferLimits(records=20))
    sent: list[Future[Acknowledged]] = []

    def send() -> None:
        for number in range(100):
            sent.append(publisher.publish(record("shared", number), 30))  # noqa: PERF401

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert publisher.flush(PATIENCE_S) == 0
    assert sorted(future.result(0).offset for future in sent) == list(range(800))


def test_a_batch_ends_record_by_record_and_in_order(cluster: EmbeddedKafka, opened: Opened) -> None:
    publisher = opened(cluster.bootstrap, limits=BufferLimits(records=50))
    ends: dict[int, Acknowledged | SendFailed] = {}
    records = [record("batch", number) for number in range(300)]
    assert publisher.publish_batch(records, ends.__setitem__, PATIENCE_S) == 300
    assert publisher.flush(PATIENCE_S) == 0
    assert [(number, end.offset) for number, end in ends.items()] == [  # type: ignore[union-attr]
        (number, number) for number in range(300)
    ]
    values = [message.value() for message in contents(cluster.bootstrap, "batch", 300)]
    assert values == [b"%d" % number for number in range(300)]


def test_a_refused_record_of_a_batch_ends_alone(cluster: EmbeddedKafka, opened: Opened) -> None:
    publisher = opened(cluster.bootstrap)
    ends: dict[int, Acknowledged | SendFailed] = {}
    wrong = Record(5, None, b"x")  # type: ignore[arg-type]
    records = [record("mixed", 0), wrong, record("mixed", 2)]
    assert publisher.publish_batch(records, ends.__setitem__, PATIENCE_S) == 3
    assert publisher.flush(PATIENCE_S) == 0
    assert isinstance(ends.pop(1), NotDelivered)
    assert {number: type(end) for number, end in ends.items()} == {0: Acknowledged, 2: Acknowledged}


def test_a_batch_takes_what_fits_until_the_deadline(opened: Opened) -> None:
    publisher = opened(NOWHERE, limits=BufferLimits(records=3))
    ends: dict[int, Acknowledged | SendFailed] = {}
    records = [record("t", number) for number in range(5)]
    assert publisher.publish_batch(records, ends.__setitem__, 0.1) == 3
    assert publisher.unacknowledged == 3
    assert ends == {}
    publisher.close(0)
    assert {number: type(end) for number, end in ends.items()} == dict.fromkeys(
        range(3), SendInDoubt
    )


def test_a_closed_publisher_takes_none_of_a_batch(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    publisher.close(0)
    assert publisher.publish_batch([record("t", 1)], lambda *_: None, 0.1) == 0


def test_a_record_that_no_broker_acknowledges_is_in_doubt(opened: Opened) -> None:
    publisher = opened(NOWHERE, delivery_timeout_s=1)
    future = publisher.publish(record("t", 1), 5)
    with pytest.raises(SendInDoubt, match="send it again with the same id") as caught:
        future.result(PATIENCE_S)
    assert (caught.value.code, caught.value.repeatable) == ("msg_timed_out", True)


def test_a_record_above_the_limit_is_refused_for_good(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    limit = SAFE_PRODUCER["message.max.bytes"]
    publisher = opened(cluster.bootstrap)
    future = publisher.publish(Record("t", None, b"x" * (int(limit) + 1)), 5)
    with pytest.raises(NotDelivered, match="smaller") as caught:
        future.result(0)
    assert not caught.value.repeatable
    assert publisher.unacknowledged == 0


def test_a_record_of_wrong_types_is_refused_and_counts_as_no_open_one(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    future = publisher.publish(Record(5, None, b"x"), 5)  # type: ignore[arg-type]
    with pytest.raises(NotDelivered, match="wrong type"):
        future.result(0)
    assert publisher.unacknowledged == 0


def test_a_missing_topic_is_refused_with_the_command_that_makes_it(
    kafka_bootstrap: str, topic_prefix: str, opened: Opened
) -> None:
    properties = {"topic.metadata.propagation.max.ms": 100}
    publisher = opened(kafka_bootstrap, properties=properties)
    future = publisher.publish(record(f"{topic_prefix}.none", 1), 5)
    with pytest.raises(NotDelivered, match="hongyan topics apply"):
        future.result(PATIENCE_S)


def test_flush_counts_what_did_not_go(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    held(publisher, "t", 4)
    began = time.monotonic()
    assert publisher.flush(0.2) == 4
    assert 0.2 <= time.monotonic() - began < 5


def test_close_ends_every_future_and_refuses_more(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    futures = held(publisher, "t", 4)
    assert publisher.close(0.1) == 4
    assert [type(future.exception(0)) for future in futures] == [SendInDoubt] * 4
    assert publisher.close(0.1) == 0
    with pytest.raises(ClientClosed, match="open another"):
        publisher.publish(record("t", 5), 0)


def test_a_callback_of_a_future_never_waits_for_room(opened: Opened) -> None:
    publisher = opened(NOWHERE, limits=BufferLimits(records=2), delivery_timeout_s=1)
    raised: list[BaseException] = []

    def again(_future: Future[Acknowledged]) -> None:
        try:
            for number in range(5):
                publisher.publish(record("t", number), 60)
        except BufferFull as exc:
            raised.append(exc)

    publisher.publish(record("t", 0), 5).add_done_callback(again)
    await_(lambda: raised, what="the callback ends")


def test_a_callback_has_the_room_of_the_record_that_ended(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    publisher = opened(cluster.bootstrap, limits=BufferLimits(records=1))
    ends: list[Acknowledged | SendFailed | BufferFull] = []

    def again(end: Acknowledged | SendFailed) -> None:
        ends.append(end)
        try:
            publisher.publish_to(record("again", 2), ends.append, 0)
        except BufferFull as exc:
            ends.append(exc)

    publisher.publish_to(record("again", 1), again, PATIENCE_S)
    assert publisher.flush(PATIENCE_S) == 0
    assert [type(end) for end in ends] == [Acknowledged, Acknowledged]


def test_a_callback_may_publish_while_close_ends_its_record(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    futures = held(publisher, "t", 3)
    raised: list[BaseException] = []

    def again(_future: Future[Acknowledged]) -> None:
        try:
            publisher.publish(record("t", 9), 0)
        except ClientClosed as exc:
            raised.append(exc)

    futures[0].add_done_callback(again)
    publisher.close(0.1)
    assert [future.done() for future in futures] == [True] * 3
    assert len(raised) == 1


def test_a_callback_sends_again_what_a_fatal_error_left_in_doubt(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    publisher = opened(cluster.bootstrap, properties={"linger.ms": 60_000})
    again: list[Future[Acknowledged]] = []

    def send_again(future: Future[Acknowledged]) -> None:
        assert isinstance(future.exception(0), SendInDoubt)
        again.append(publisher.publish(record("doubt", 0), 0))

    for future in held(publisher, "doubt", 3):
        future.add_done_callback(send_again)
    publisher._config["linger.ms"] = 0
    publisher._on_error(FatalError())  # type: ignore[arg-type]
    await_(lambda: len(again) == 3, what="the callbacks end")
    assert [future.result(PATIENCE_S).offset for future in again] == [0, 1, 2]
    assert publisher.publish(record("doubt", 9), 5).result(PATIENCE_S).offset == 3


def test_records_that_end_together_have_all_ended_before_another_is_taken(opened: Opened) -> None:
    """Else a later record of a key overtakes an earlier one, which is on its way to the overflow."""
    publisher = opened(NOWHERE, together=True)
    ended: list[int] = []
    raised: list[BaseException] = []
    asked: list[int] = []
    others: list[threading.Thread] = []

    def may_pass(_topic: str, _key: bytes | None) -> bool:
        asked.append(len(ended))
        return True

    def take() -> None:
        publisher.take_by(report_to(publisher, lambda _: None), ("t", b"k", b"9", []), 0, may_pass)

    def report(number: int, _end: object) -> None:
        try:
            take()
        except BufferFull as exc:
            raised.append(exc)
        others.append(threading.Thread(target=take))
        others[-1].start()
        others[-1].join(0.05)  # it does not pass, however long it is waited for
        ended.append(number)

    for number in range(3):
        publisher.take_by(report_to(publisher, partial(report, number)), ("t", b"k", b"x", []), 5)
    assert publisher.take_back()
    for other in others:
        other.join(PATIENCE_S)
    assert (ended, len(raised), asked) == ([0, 1, 2], 3, [3, 3, 3])
    assert publisher.unacknowledged == 3


def test_a_period_that_ends_while_a_record_is_taken_leaves_no_count_behind(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    """A count without a record makes an idle publisher open new producers for ever."""
    publisher = opened(cluster.bootstrap, together=True)
    client = publisher._client

    class LatePeriod:
        """A producer during whose call the polling thread begins the next period."""

        def produce(self, *given: Any) -> None:
            client.produce(*given)
            publisher.use.age += 1

    with publisher._poll_lock:
        publisher._client = LatePeriod()  # type: ignore[assignment]
        publisher.take(report_to(publisher, lambda _: None), ("ages", b"k", b"v", []))
        publisher._client = client
    assert publisher.flush(PATIENCE_S) == 0
    assert publisher.use.ages is not None
    assert publisher.use.ages._taken == publisher.use.ages._ended


def test_a_pending_record_cannot_be_cancelled(opened: Opened) -> None:
    assert not held(opened(NOWHERE), "t", 1)[0].cancel()


def test_a_broker_that_answers_late_gets_all_records_in_order(opened: Opened) -> None:
    with EmbeddedKafka() as late:
        publisher = opened(late.bootstrap)
        with paused(late):
            futures = held(publisher, "later", 50)
            assert publisher.flush(0.2) == 50
        places = [future.result(PATIENCE_S) for future in futures]
        found = contents(late.bootstrap, "later", 50)
    assert [place.offset for place in places] == list(range(50))
    assert [message.value() for message in found] == [b"%d" % n for n in range(50)]


def test_a_fatal_error_ends_the_open_records_and_a_new_producer_takes_over(
    cluster: EmbeddedKafka, opened: Opened
) -> None:
    publisher = opened(cluster.bootstrap, properties={"linger.ms": 60_000})
    lost = held(publisher, "fatal", 3)
    before = publisher._client
    publisher._on_error(FatalError())  # type: ignore[arg-type]
    await_(lambda: not publisher._fatal, what="a new producer")
    assert publisher._client is not before
    assert [type(future.exception(0)) for future in lost] == [SendInDoubt] * 3
    publisher._config["linger.ms"] = 0
    publisher._on_error(FatalError())  # type: ignore[arg-type]
    await_(lambda: not publisher._fatal, what="a quick producer")
    assert publisher.publish(record("fatal", 9), 5).result(PATIENCE_S).topic == "fatal"


def test_a_refused_producer_is_opened_later_and_no_record_is_lost_meanwhile(
    cluster: EmbeddedKafka,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of certificates is being exchanged while a new producer is opened."""
    monkeypatch.setattr(publisher_module, "_REOPEN_S", 0.05)
    errors: list[str] = []
    monkeypatch.setattr(publisher_module.log, "error", lambda text, *_: errors.append(text))
    publisher = opened(cluster.bootstrap, properties={"linger.ms": 60_000}, together=True)
    lost = held(publisher, "refused", 3)
    publisher._config |= {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}
    publisher._on_error(FatalError())  # type: ignore[arg-type]
    assert [type(future.exception(PATIENCE_S)) for future in lost] == [SendInDoubt] * 3
    began = time.monotonic()
    with pytest.raises(BufferFull):
        publisher.publish(record("refused", 8), 0.3)
    assert time.monotonic() - began < 2
    assert publisher.take_back()
    publisher._config |= {"security.protocol": "plaintext", "linger.ms": 0}
    assert publisher.publish(record("refused", 9), PATIENCE_S).result(PATIENCE_S).offset == 0
    assert sum(one.startswith("no new producer") for one in errors) == 1
    assert publisher.close(PATIENCE_S) == 0


def test_close_ends_the_records_of_a_publisher_whose_thread_has_died(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = opened(NOWHERE)
    monkeypatch.setattr(threading, "excepthook", lambda _args: None)
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "_poll", dict[str, str]().__getitem__)
        publisher._thread.join(PATIENCE_S)
    futures = held(publisher, "t", 4)
    assert publisher.close(0.1) == 4
    assert [type(future.exception(0)) for future in futures] == [SendInDoubt] * 4
    assert publisher.close(0.1) == 0


class FatalError:
    """What librdkafka hands to `error_cb` when the idempotent producer cannot go on."""

    def fatal(self) -> bool:
        return True

    def name(self) -> str:
        return "_FATAL"

    def str(self) -> str:
        return "sequence out of order"


def test_a_forked_child_is_told_to_open_its_own(opened: Opened) -> None:
    publisher = opened(NOWHERE)
    child = os.fork()
    if not child:
        try:
            publisher.publish(record("t", 1), 5)
        except ClientClosed as exc:
            os._exit(0 if "forked" in str(exc) else 3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_process_that_ends_without_close_still_delivers(cluster: EmbeddedKafka) -> None:
    program = (
        "from hongyan_client.publisher import Publisher\n"
        "from hongyan_client.records import Record\n"
        f"publisher = Publisher({cluster.bootstrap!r}, client_id='short')\n"
        "for number in range(100): publisher.publish(Record('short', b'k', b'%d' % number), 5)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    found = contents(cluster.bootstrap, "short", 100)
    assert [message.value() for message in found] == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        ({"acks": 1}, "'acks' cannot be set"),
        ({"partitioner": "random"}, "'partitioner' cannot be set"),
        ({"on_delivery_cb": 1}, "cannot be set"),
        ({"no.such.property": 1}, "no.such.property"),
    ],
)
def test_a_property_that_breaks_a_promise_is_refused(
    properties: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(WrongProperties, match=sentence):
        Publisher(NOWHERE, client_id="x", properties=properties)


def test_the_producer_is_safe_whatever_the_user_adds() -> None:
    config = producer_config(NOWHERE, "x", {"linger.ms": 50, "security.protocol": "SSL"}, 30)
    assert config["acks"] == "all"
    assert config["enable.idempotence"] is True
    assert config["partitioner"] == "murmur2_random"
    assert config["max.in.flight.requests.per.connection"] == 5
    assert config["delivery.timeout.ms"] == 30_000
    assert (config["linger.ms"], config["security.protocol"]) == (50, "SSL")


class ListedPolls:
    """A producer that notes the longest wait of each poll."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.waits: list[float] = []

    def __len__(self) -> int:
        return len(self._inner)

    def poll(self, timeout_s: float) -> int:
        self.waits.append(timeout_s)
        found: int = self._inner.poll(timeout_s)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_the_thread_polls_in_short_turns_after_a_caller(opened: Opened) -> None:
    """`close` waits for the end of one turn."""
    publisher = opened(NOWHERE)
    with publisher._poll_lock:
        listed = ListedPolls(publisher._client)
        publisher._client = listed  # type: ignore[assignment]
    await_(lambda: 0.1 in listed.waits, what="a long turn of an idle publisher")
    for callers in (publisher.poll_now, lambda: publisher.await_ends(0)):
        listed.waits.clear()
        callers()
        await_(lambda: 0.005 in listed.waits, what="a short turn")
        await_(lambda: listed.waits[-1] == 0.1, what="a long turn again")
