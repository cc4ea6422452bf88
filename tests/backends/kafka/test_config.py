"""The settings on which no message being lost, doubled or reordered rests."""

import pytest

from backends.kafka import clients as kafka
from backends.kafka.config import OURS, assignors, consumer_config, producer_config
from backends.settings import KafkaSettings, SettingsError


def settings(**client: str | int | float | bool) -> KafkaSettings:
    return KafkaSettings(bootstrap="127.0.0.1:1", client=client)


def test_a_consumer_commits_nothing_by_itself_and_sees_only_what_is_committed() -> None:
    config = consumer_config(settings(), "classic")
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["auto.offset.reset"] == "earliest"
    assert config["isolation.level"] == "read_committed"
    assert config["check.crcs"] is True
    assert config["allow.auto.create.topics"] is False


def test_a_consumer_holds_little_memory_whatever_the_backlog() -> None:
    config = consumer_config(settings(), "classic")
    assert config["queued.max.messages.kbytes"] <= 32_768
    assert config["fetch.max.bytes"] <= config["queued.max.messages.kbytes"] * 1024


def test_each_protocol_spreads_every_topic_unless_told_otherwise() -> None:
    config = consumer_config(KafkaSettings(session_timeout_s=7), "classic")
    assert config["partition.assignment.strategy"] == "roundrobin"
    assert config["session.timeout.ms"] == 7_000
    assert consumer_config(settings(), "consumer")["group.remote.assignor"] == "range"
    asked = KafkaSettings(assignor="uniform")
    assert consumer_config(asked, "consumer")["group.remote.assignor"] == "uniform"
    assert "group.remote.assignor" not in consumer_config(asked, "consumer", assignor="")


def test_what_a_protocol_does_not_have_is_not_offered() -> None:
    assert assignors(KafkaSettings(assignor="uniform"), "classic") == [
        "roundrobin",
        "cooperative-sticky",
    ]
    assert assignors(KafkaSettings(assignor="range"), "classic")[0] == "range"
    assert assignors(KafkaSettings(assignor="mine"), "consumer") == ["mine", "range", ""]


def test_the_reason_of_a_fatal_error_is_read_from_its_text() -> None:
    used = kafka.KafkaError(kafka.KafkaError.UNRELEASED_INSTANCE_ID)
    fatal = kafka.KafkaError(kafka.KafkaError._FATAL, f"Fatal error: {used.str()}: heartbeat")
    assert kafka.group_refusal(fatal) == "UNRELEASED_INSTANCE_ID"
    assert kafka.group_refusal(kafka.KafkaError(kafka.KafkaError._FATAL, "a disk")) == ""
    assert kafka.group_refusal(kafka.KafkaError(kafka.KafkaError._MAX_POLL_EXCEEDED)) == ""


def test_the_new_protocol_gets_nothing_that_it_refuses() -> None:
    config = consumer_config(settings(), "consumer")
    assert not {"session.timeout.ms", "partition.assignment.strategy"} & set(config)


def test_a_fleet_with_stable_names_has_static_members() -> None:
    assert "group.instance.id" not in consumer_config(settings(), "classic")
    named = consumer_config(KafkaSettings(group_instance_id="worker-1"), "classic")
    assert named["group.instance.id"] == "worker-1"


def test_a_producer_neither_doubles_nor_reorders_and_is_bounded() -> None:
    config = producer_config(settings(), "", {})
    assert (config["acks"], config["enable.idempotence"]) == ("all", True)
    assert config["max.in.flight.requests.per.connection"] == 5
    assert config["partitioner"] == "murmur2_random"
    assert config["queue.buffering.max.kbytes"] <= 65_536
    assert config["delivery.timeout.ms"]


@pytest.mark.parametrize("key", sorted(OURS))
def test_no_property_that_safety_rests_on_can_be_set(key: str) -> None:
    with pytest.raises(SettingsError, match=key.replace(".", r"\.")):
        consumer_config(settings(**{key: "x"}), "classic")
    with pytest.raises(SettingsError):
        producer_config(settings(**{key: "x"}), "", {})


def test_other_properties_reach_every_client() -> None:
    extra = KafkaSettings(client={"security.protocol": "SSL", "socket.timeout.ms": 5_000})
    for config in (consumer_config(extra, "consumer"), producer_config(extra, "", {})):
        assert config["security.protocol"] == "SSL"
        assert config["socket.timeout.ms"] == 5_000


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("socket.timeout.msx", 1, "No such configuration property"),
        ("security.protocol", "carrier-pigeon", "security.protocol"),
    ],
)
def test_a_property_that_librdkafka_refuses_is_named(key: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=rf"kafka\.client: .*{said}"):
        kafka.producer(KafkaSettings(client={key: value}))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_takes_the_whole_configuration(protocol: kafka.GroupProtocol) -> None:
    made = kafka.consumer(settings(), protocol=protocol)
    assert made.assignment() == []
    made.close()
    assert kafka.producer(settings()).flush(0) == 0
    kafka.admin(settings())  # it would raise SettingsError


class Refusal:
    """A polled message as a broker with `group.coordinator.rebalance.protocols=classic` caused it:
    its error has the code _FATAL and yet says of itself that it is not fatal."""

    def __init__(self, code: int, *, fatal: bool) -> None:
        self._code, self._fatal = code, fatal

    def error(self) -> "Refusal":
        return self

    def fatal(self) -> bool:
        return self._fatal

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return kafka.KafkaError(self._code).name()


@pytest.mark.parametrize(
    ("code", "fatal", "refused"),
    [
        (kafka.KafkaError._FATAL, False, True),
        (kafka.KafkaError.UNSUPPORTED_VERSION, False, True),
        (kafka.KafkaError.UNKNOWN_TOPIC_OR_PART, False, False),
        (kafka.KafkaError._TRANSPORT, False, False),
        (kafka.KafkaError._TRANSPORT, True, True),
    ],
)
def test_a_fatal_answer_to_the_probe_means_the_classic_protocol(
    code: int, fatal: bool, refused: bool
) -> None:
    assert kafka._is_refused(Refusal(code, fatal=fatal)) is refused  # type: ignore[arg-type]
    assert not kafka._is_refused(None)
