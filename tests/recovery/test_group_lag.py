"""The group's lag, asked of real brokers by one recovery at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from structlog.testing import capture_logs

from backends.kafka.clients import KafkaUnavailable
from backends.kafka.group_lag import GroupLagQuery, TopicLag
from backends.settings import KafkaSettings
from deploy.local.stack import Stack
from idempotency.ledger import LedgerUnavailable
from message.vocabulary import lane_named
from recovery.group_lag import GroupLagMonitor
from tests.harness import Place, ground_on
from tests.harness.wire import Wire

LANE = lane_named("sms.notice")
TOPIC = "t.dispatch.sms.notice"


class Broker:
    """Answers with `lag`, or not at all."""

    def __init__(self) -> None:
        self.lag = {TOPIC: TopicLag(7, 1)}
        self.away = False
        self.mine = True
        self.asked = 0
        self.now = 0.0
        assert LANE is not None
        self.monitor = GroupLagMonitor(
            [LANE],
            "t",
            "group",
            query=self.query,
            hold=self.hold,
            monotonic=lambda: self.now,
        )

    def query(self, topics: Collection[str]) -> Mapping[str, TopicLag]:
        self.asked += 1
        assert list(topics) == [TOPIC]
        if self.away:
            raise KafkaUnavailable("no answer")
        return self.lag

    def hold(self, duty: str, _lease_ms: int) -> bool:
        assert duty == "group-lag"
        if self.mine is None:
            raise LedgerUnavailable("away")
        return self.mine

    def shown(self) -> list[tuple[Mapping[str, str], float]]:
        return [(labels, value) for _, labels, value in self.monitor.readings()]


def test_it_is_shown_by_lane_and_group_as_long_as_it_is_fresh() -> None:
    broker = Broker()
    broker.monitor.run_once()
    assert broker.shown() == [({"lane": "sms.notice", "group": "group"}, 7)]
    broker.now = 60.0
    assert broker.shown() == [], "an old number says nothing of now"


def test_only_the_holder_of_the_duty_asks_and_shows() -> None:
    broker = Broker()
    broker.monitor.run_once()
    broker.mine = False
    broker.monitor.run_once()
    assert (broker.asked, broker.shown()) == (1, [])


def test_a_broker_that_is_away_is_logged_once_and_shows_nothing_wrong() -> None:
    broker = Broker()
    broker.monitor.run_once()
    broker.away = True
    with capture_logs() as told:
        broker.monitor.run_once()
        broker.monitor.run_once()
    assert [one["event"] for one in told] == ["group_lag_not_measured"]
    assert broker.shown() == [({"lane": "sms.notice", "group": "group"}, 7)]
    broker.now = 60.0
    assert broker.shown() == []


def test_a_ledger_that_is_away_ends_no_thread() -> None:
    broker = Broker()
    broker.mine = None  # type: ignore[assignment]  # as a ledger that does not answer
    broker.monitor.run_once()
    assert (broker.asked, broker.shown()) == (0, [])


def test_the_end_is_not_waited_for() -> None:
    broker = Broker()
    broker.monitor.stop()
    broker.monitor.run()
    assert broker.asked == 0


@pytest.mark.stack
def test_brokers_say_what_is_not_committed(stack: Stack) -> None:
    with ground_on(stack) as ground:
        group = f"{ground.topic_prefix}-group"
        settings = KafkaSettings(
            bootstrap=ground.bootstrap, topic_prefix=ground.topic_prefix, group_id=group
        )
        query, wire = GroupLagQuery(settings), Wire(ground.bootstrap, ground.topic_prefix, group)
        topic = wire.topic("sms.notice")
        try:
            assert query.lag([topic]) == {}, "there is no such topic yet"
            wire.make_topic(topic, 2)
            wire.send([b"x"] * 10, 0, lane="sms.notice")
            wire.send([b"x"] * 3, 1, lane="sms.notice")
            assert query.lag([topic]) == {topic: TopicLag(13, 2)}, "a group that never committed"
            wire.commit_as_foreigner(Place(topic, 0), 4)
            assert query.lag([topic]) == {topic: TopicLag(9, 2)}
            wire.truncate(topic, 0, 8)
            assert query.lag([topic]) == {topic: TopicLag(5, 2)}, "what Kafka removed is no lag"
        finally:
            wire.close()
