"""Time for which Kafka keeps the lanes' topics."""

from policy.schema import LanePolicy, Policy
from policy.topic_retention import DAY_MS, topic_keep_days


def test_topics_outlive_the_longest_lifetime_by_a_day() -> None:
    assert topic_keep_days(Policy()) == 8
    longer = Policy(lanes={"sms.notice": LanePolicy(max_ttl_ms=20 * DAY_MS + 1)})
    assert topic_keep_days(longer) == 22


def test_topics_outlive_the_longest_shutdown_by_a_day() -> None:
    assert topic_keep_days(Policy(), outage_days=10) == 11
