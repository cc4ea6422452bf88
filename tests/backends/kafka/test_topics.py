"""Which topics should be there, and what is said of those that differ."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from backends.kafka import clients as kafka
from backends.kafka import topics as kafka_topics
from backends.kafka.topic_demands import TopicPlan
from backends.kafka.topics import TopicsRefused, Wish, apply, plan
from backends.settings import KafkaSettings
from message.vocabulary import LANES, Lane

LANE = Lane("sms", "notice")
PATIENCE_S = 30.0


def planned(wish: Wish, brokers: int) -> dict[str, TopicPlan]:
    return {p.name: p for p in plan("hongyan", [LANE], wish, brokers)}


def test_three_brokers_keep_three_copies_of_which_two_must_have_a_record() -> None:
    for topic in planned(Wish(), 3).values():
        assert topic.replication == 3
        assert topic.config["min.insync.replicas"] == "2"
        assert topic.config["unclean.leader.election.enable"] == "false"


def test_one_broker_keeps_one_copy() -> None:
    assert {t.replication for t in planned(Wish(), 1).values()} == {1}


def test_the_topics_are_those_of_the_lanes_dead_letters_trace_and_outcomes() -> None:
    assert list(planned(Wish(), 1)) == [
        "hongyan.dispatch.sms.notice",
        "hongyan.dead",
        "hongyan.trace",
        "hongyan.outcomes",
    ]
    assert len(plan("hongyan", LANES, Wish(), 1)) == 33


def test_a_topic_takes_the_largest_envelope_and_the_dead_letters_take_more() -> None:
    topics = planned(Wish(), 1)
    dispatch = int(topics["hongyan.dispatch.sms.notice"].config["max.message.bytes"])
    assert 1 << 20 < dispatch < int(topics["hongyan.dead"].config["max.message.bytes"])


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_a_broker_refuses_what_inflates_too_far_where_lanes_are_kept_uncompressed(
    kafka_bootstrap: str, topic_prefix: str, codec: str
) -> None:
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    apply(settings, [LANE], Wish(partitions=1, uncompressed=True))
    told: list[Any] = []
    producer = kafka.producer(
        settings, changes={"compression.type": codec, "message.max.bytes": 100 << 20}
    )
    producer.produce(
        LANE.topic(topic_prefix), bytes(20 << 20), on_delivery=lambda error, _: told.append(error)
    )
    producer.flush(60)
    assert [error.name() for error in told] == ["MSG_SIZE_TOO_LARGE"]


def test_a_lane_that_is_kept_compressed_is_told_where_it_shall_not_be(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    apply(settings, [LANE], Wish(partitions=1))
    name = LANE.topic(topic_prefix)

    def report(wish: Wish) -> kafka_topics.TopicReport:
        return next(r for r in apply(settings, [LANE], wish) if r.name == name)

    assert report(Wish(partitions=1)).status == "exists"
    differs = report(Wish(partitions=1, uncompressed=True))
    assert differs.status == "differs"
    assert "--add-config compression.type=uncompressed" in differs.remarks[0]


@pytest.mark.parametrize(
    ("prefix", "wish", "said"),
    [
        ("hongyan", Wish(replication=2), "2 copies need 2 brokers"),
        ("hongyan", Wish(min_isr=2), "would refuse every write"),
        ("hongyan", Wish(partitions=0), "at least 1 partition"),
        ("hong yan", Wish(), "cannot begin a topic's name"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(prefix: str, wish: Wish, said: str) -> None:
    with pytest.raises(TopicsRefused, match=said):
        plan(prefix, [LANE], wish, brokers=1)


def test_a_real_broker_is_asked_for_the_new_group_protocol(kafka_bootstrap: str) -> None:
    settings = KafkaSettings(bootstrap=kafka_bootstrap, group_id=f"g{time.monotonic_ns()}")
    assert kafka.resolve_group_protocol(settings) == "consumer"


def test_on_a_real_broker_topics_are_made_compared_and_never_changed(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    dry = apply(settings, [LANE], Wish(partitions=2), dry_run=True)
    assert {r.status for r in dry} == {"created"}
    made = apply(settings, [LANE], Wish(partitions=2))
    assert {r.status for r in made} == {"created"}
    again = {r.name: r for r in apply(settings, [LANE], Wish(partitions=3, trace_partitions=1))}
    lane = again[LANE.topic(topic_prefix)]
    assert (lane.status, lane.partitions) == ("differs", 2)
    assert "2 partitions, 3 asked for" in lane.remarks[0]
    assert again[f"{topic_prefix}.trace"].status == "exists"


def hidden(prefix: str, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Lets the broker not tell of the topics in its first two answers. Returns what each answer told."""
    ask, told = kafka_topics.metadata_of, list[set[str]]()

    def late(client: Any) -> Any:
        metadata = ask(client)
        names = {name for name in metadata.topics if name.startswith(prefix)}
        if len(told) < 2:
            for name in names:
                del metadata.topics[name]
            names = set()
        told.append(names)
        return metadata

    monkeypatch.setattr(kafka_topics, "metadata_of", late)
    return told


def test_topics_that_somebody_else_made_meanwhile_are_compared_too(
    kafka_bootstrap: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    apply(settings, [LANE], Wish(partitions=2))
    told = hidden(topic_prefix, monkeypatch)
    found = {r.name: r for r in apply(settings, [LANE], Wish(partitions=3))}
    lane = found[LANE.topic(topic_prefix)]
    assert (lane.status, lane.partitions) == ("differs", 2)
    assert len(told) >= 3


def test_topics_are_made_once_the_broker_tells_of_them(
    kafka_bootstrap: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A send behind it would find no topic."""
    settings = KafkaSettings(bootstrap=kafka_bootstrap, topic_prefix=topic_prefix)
    told = hidden(topic_prefix, monkeypatch)
    made = apply(settings, [LANE], Wish(partitions=2))
    assert {r.status for r in made} == {"created"}
    assert told[-1] == {r.name for r in made}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_lane_whose_topic_is_made_later_is_found_within_seconds(
    kafka_bootstrap: str, topic_prefix: str, protocol: kafka.GroupProtocol
) -> None:
    settings = KafkaSettings(
        bootstrap=kafka_bootstrap, topic_prefix=topic_prefix, group_id=f"g{time.monotonic_ns()}"
    )
    late = Lane("email", "notice")
    apply(settings, [LANE], Wish(partitions=2))
    assigned: set[str] = set()
    member = kafka.consumer(settings, protocol=protocol)
    member.subscribe(
        [LANE.topic(topic_prefix), late.topic(topic_prefix)],
        on_assign=lambda _c, places: assigned.update(p.topic for p in places),
    )
    poll_until(member, lambda: LANE.topic(topic_prefix) in assigned)
    apply(settings, [late], Wish(partitions=2))
    poll_until(member, lambda: late.topic(topic_prefix) in assigned)
    member.close()


def poll_until(member: kafka.Consumer, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, "the consumer never came to it"
        member.poll(0.05)
