"""Headers of a record as the client gives them, and of one whose header it cannot decode."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from backends.kafka.embedded import EmbeddedKafka
from backends.kafka.message_headers import headers_of
from tests.harness.raw_headers import produce_named
from tests.harness.waiting import await_

LATIN = "größe".encode("latin-1")


def read(bootstrap: str, topic: str, count: int) -> list[Message]:
    """Returns the first records of partition 0."""
    found: list[Message] = []
    given = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(given)) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])

        def there() -> bool:
            found.extend(m for m in reader.consume(10, 0.2) if m.error() is None)
            return len(found) >= count

        await_(there, what="the records")
    return found


def test_a_header_that_is_not_utf_8_is_no_headers_and_can_be_asked_for_again() -> None:
    with EmbeddedKafka(topics=["t"]) as kafka:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce("t", b"some", headers=[("a", b"1"), ("b", None)], partition=0)
        producer.produce("t", b"none", partition=0)
        producer.flush(30)
        produce_named(kafka.bootstrap, "t", LATIN, b"odd", key=b"k")
        produce_named(kafka.bootstrap, "t", "größe".encode(), b"fine")
        some, none, odd, fine = read(kafka.bootstrap, "t", 4)
    for _ in range(200):  # a call that ran often is a quicker one, which checks less
        assert headers_of(some) == [("a", b"1"), ("b", None)]
    assert headers_of(none) == []
    assert headers_of(odd) is None
    assert headers_of(odd) == [], "the client's own list would end the process"
    assert (odd.key(), odd.value()) == (b"k", b"odd")
    assert headers_of(fine) == [("größe", b"v")]
