"""Business producers by their own files: Java's names and librdkafka's, with the defaults of each."""

import pytest

from producer.doctor.diagnosis import diagnose
from producer.doctor.properties import producer_of
from producer.doctor.rule_list import RULES
from tests.producer.doctor.healthy import LANE, facts


def found_in(text: str) -> dict[str, str]:
    one = producer_of("shop.properties", text, [LANE])
    return {
        finding.rule: finding.source for finding in diagnose(facts(producers=[one]), RULES).findings
    }


def test_javas_defaults_are_fine() -> None:
    assert found_in("bootstrap.servers=kafka:9092\nkey.serializer=StringSerializer\n") == {}


def test_librdkafkas_defaults_are_not() -> None:
    found = found_in("metadata.broker.list=kafka:9092\n")
    assert set(found) == {"producer-idempotence", "producer-in-flight", "producer-partitioner"}
    assert set(found.values()) == {"librdkafka's default"}


def test_the_line_that_gave_a_value_is_named() -> None:
    found = found_in(
        "# the shop\n\nacks=1\nmax.request.size=9000000\npartitioner.ignore.keys=true\n"
    )
    assert found["producer-acks"] == "shop.properties:3"
    assert found["producer-partitioner"] == "shop.properties:5"
    assert "producer-message-size" in found


def test_a_partitioner_of_javas_own_class_is_named() -> None:
    assert "producer-partitioner" in found_in("partitioner.class=org.shop.RandomPartitioner\n")


def test_a_line_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match="line 2: write KEY=VALUE"):
        producer_of("shop.properties", "acks=all\nwhat\n", [])


def test_secrets_of_the_file_are_not_kept() -> None:
    one = producer_of("shop.properties", "sasl.password=hunter2\n", [])
    assert "hunter2" not in repr(one)
