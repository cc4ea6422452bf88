"""Business producers by their own files: Java's names and librdkafka's, with the defaults of each."""

import pytest
from confluent_kafka import KafkaException, Producer

from producer.doctor.client_keys import ONLY_JAVA, ONLY_LIBRDKAFKA
from producer.doctor.diagnosis import Diagnosis, diagnose
from producer.doctor.properties import producer_of
from producer.doctor.rule_list import RULES
from tests.producer.doctor.healthy import LANE, facts

PYTHON = "partitioner=murmur2_random\nmessage.timeout.ms=50000\n"


def told_of(text: str) -> Diagnosis:
    one = producer_of("shop.properties", text, [LANE])
    return diagnose(facts(producers=[one]), RULES)


def found_in(text: str) -> dict[str, str]:
    return {finding.rule: finding.source for finding in told_of(text).findings}


def refused_by_librdkafka(key: str) -> str:
    """Returns why the client does not start with the key; empty: it does."""
    value: object = True if key == "delivery.report.only.error" else "1"
    try:
        Producer({key: value})
    except KafkaException as exc:
        return str(exc.args[0].str())
    return ""


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


@pytest.mark.parametrize("key", sorted(ONLY_LIBRDKAFKA))
def test_librdkafka_knows_each_key_that_is_said_to_be_its_own(key: str) -> None:
    assert "No such configuration property" not in refused_by_librdkafka(key)


@pytest.mark.parametrize("key", sorted(ONLY_JAVA))
def test_librdkafka_refuses_each_key_that_is_said_to_be_javas(key: str) -> None:
    refusal = refused_by_librdkafka(key)
    assert "No such configuration property" in refusal or "Java" in refusal


@pytest.mark.parametrize("line", ["enable.idempotence=true", "transactional.id=shop"])
def test_librdkafka_adjusts_its_requests_in_flight_to_idempotence(line: str) -> None:
    assert found_in(f"{PYTHON}{line}\n") == {}
    more = f"{PYTHON}{line}\nmax.in.flight=10\n"
    assert found_in(more) == {"producer-in-flight": "shop.properties:4"}


def test_librdkafka_gives_a_transactions_record_up_with_its_transaction() -> None:
    given = "transactional.id=shop\npartitioner=murmur2_random\ntransaction.timeout.ms=20000\n"
    assert found_in(given) == {"producer-delivery-timeout": "librdkafka's default"}


@pytest.mark.parametrize("line", ["retries=0", "max.in.flight.requests.per.connection=6"])
def test_java_switches_its_idempotence_off_for_some_keys(line: str) -> None:
    java = "key.serializer=StringSerializer\n"
    assert found_in(f"{java}{line}\n")["producer-idempotence"] == "Java's default"
    assert "producer-idempotence" not in found_in(f"{java}{line}\nenable.idempotence=true\n")


@pytest.mark.parametrize(
    "line", ["sasl.username=u", "ssl.ca.location=/ca.pem", "statistics.interval.ms=1000"]
)
def test_a_python_clients_file_is_not_taken_for_javas(line: str) -> None:
    found = found_in(f"bootstrap.servers=kafka:9092\nsecurity.protocol=SASL_SSL\n{line}\n")
    assert set(found.values()) == {"librdkafka's default"}
    assert "producer-idempotence" in found


def test_a_file_that_shows_no_client_is_not_known_where_the_defaults_differ() -> None:
    told = told_of("bootstrap.servers=kafka:9092\nacks=1\n")
    assert [(one.rule, one.source) for one in told.findings] == [
        ("producer-acks", "shop.properties:2")
    ]
    unknown = {gap.rule: gap.subjects for gap in told.unknown}
    assert unknown.keys() == {"producer-idempotence", "producer-in-flight", "producer-partitioner"}
    assert set(map(tuple, unknown.values())) == {("shop.properties",)}
    assert "producer-delivery-timeout" in told.passed
    assert not told.healthy


def test_what_such_a_file_writes_itself_is_known() -> None:
    told = told_of("bootstrap.servers=kafka:9092\nenable.idempotence=true\n")
    assert [gap.rule for gap in told.unknown] == ["producer-partitioner"]
    assert told.findings == []
