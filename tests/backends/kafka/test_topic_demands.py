"""What a topic is compared in, by `hongyan topics apply` and by doctor."""

import pytest

from backends.kafka.topic_demands import (
    ALL_IN_SYNC,
    REPLICATION,
    TopicPlan,
    shortfalls,
)
from backends.kafka.topics import Wish, plan
from message.vocabulary import Lane


def planned() -> TopicPlan:
    return plan("hongyan", [Lane("sms", "notice")], Wish(keep_days=8), brokers=3)[0]


def test_a_topic_as_planned_falls_short_of_nothing() -> None:
    assert shortfalls(planned(), 3, planned().config) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min.insync.replicas", "1"),
        ("max.message.bytes", "1048588"),
        ("retention.ms", "86400000"),
        ("retention.bytes", "1000000000"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_each_key_is_compared_and_its_remedy_sets_it(key: str, value: str) -> None:
    (found,) = shortfalls(planned(), 3, {**planned().config, key: value})
    assert (found.key, found.found, found.wanted) == (key, value, planned().config[key])
    assert f"--topic hongyan.dispatch.sms.notice --add-config {key}=" in found.remedy


def test_more_than_planned_and_no_limit_are_no_shortfall() -> None:
    more = {"retention.ms": "-1", "max.message.bytes": "9999999"}
    assert shortfalls(planned(), 5, {**planned().config, **more}) == []


def test_copies_are_compared_and_a_topic_that_needs_all_of_them() -> None:
    keys = {one.key for one in shortfalls(planned(), 2, planned().config)}
    assert keys == {REPLICATION, ALL_IN_SYNC}
