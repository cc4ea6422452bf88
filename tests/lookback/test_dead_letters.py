"""Dead letters that the topic refuses for their size, on real Kafka."""

import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from backends.kafka.clients import producer
from backends.settings import KafkaSettings
from lookback.dead_letters import PRODUCER, PoisonRecord, PoisonWriter
from tests.harness.wire import Wire
from tests.lookback.kafka_fakes import FakeRecord


class Waits:
    """Tries again, three times; keeps the causes."""

    def __init__(self) -> None:
        self.causes: list[str] = []

    def __call__(self, cause: str) -> bool:
        self.causes.append(cause)
        return len(self.causes) <= 3


BROKERS_MIB = 1
"""Limit of a topic that names none, about."""


@pytest.fixture
def wire(kafka_bootstrap: str, topic_prefix: str) -> Iterator[Wire]:
    with closing(Wire(kafka_bootstrap, topic_prefix, topic_prefix)) as wire:
        wire.make_topic(f"{topic_prefix}.dead", 1)
        yield wire


@pytest.fixture
def writer(kafka_bootstrap: str, topic_prefix: str) -> PoisonWriter:
    client = producer(KafkaSettings(bootstrap=kafka_bootstrap), client_id="dead", changes=PRODUCER)
    return PoisonWriter(client, f"{topic_prefix}.dead")


@pytest.mark.parametrize("mib", [2 * BROKERS_MIB, 5], ids=["broker", "client"])
def test_a_record_too_large_for_the_topic_leaves_its_beginning_and_the_others_go_whole(
    wire: Wire, writer: PoisonWriter, mib: int
) -> None:
    """It held its partition for ever. A compressed record may be larger than each topic's limit."""
    large = FakeRecord(os.urandom(mib << 20), 1)
    poison = [PoisonRecord(one, "too_large", "why") for one in (large, FakeRecord(b"small", 2))]
    waits = Waits()

    assert writer.write(poison, waits)

    found = {one.origin: one for one in wire.dead_letters()}
    cut = found["look_back_msg/0/1"]
    assert cut.headers["hongyan-dead-truncated"] == str(mib << 20)
    assert cut.value
    assert large.value().startswith(cut.value)
    assert found["look_back_msg/0/2"].value == b"small"
    assert all("MSG_SIZE_TOO_LARGE" in cause for cause in waits.causes)


def test_a_record_whose_headers_are_too_large_leaves_a_stub(
    wire: Wire, writer: PoisonWriter
) -> None:
    odd = FakeRecord(b"{", 1, headers=[("theirs", os.urandom(2 << 20))])

    assert writer.write([PoisonRecord(odd, "not_json", "why")], Waits())

    (stub,) = wire.dead_letters()
    assert "hongyan-dead-stub" in stub.headers
    assert (stub.reason, stub.origin) == ("not_json", "look_back_msg/0/1")
