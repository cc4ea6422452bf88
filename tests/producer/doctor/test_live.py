"""Doctor against real servers: topics made wrong on purpose, a rule each; and what may not be written."""

from __future__ import annotations

import os
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from backends.kafka.clients import admin
from backends.kafka.topics import Wish, apply
from backends.settings import DatabaseSettings, KafkaSettings, RedisSettings, Settings
from message.vocabulary import LANES, Lane
from policy.schema import Policy
from producer.doctor.diagnosis import Diagnosis
from producer.doctor.examination import examine
from producer.doctor.gathering import Inquiry
from producer.doctor.rule import ONE_BROKER, Severity
from tests.harness import await_

WRONG: dict[str, dict[str, str]] = {
    "sms.verification": {"retention.ms": "60000"},
    "sms.notice": {"cleanup.policy": "compact"},
    "sms.marketing": {"unclean.leader.election.enable": "true"},
    "email.verification": {"max.message.bytes": "100000"},
    "email.notice": {"retention.bytes": "1000000"},
    "email.marketing": {"flush.messages": "1"},
}


def settings(bootstrap: str, prefix: str, **more: Any) -> Settings:
    kafka = KafkaSettings(bootstrap=bootstrap, topic_prefix=prefix, group_id=f"{prefix}-group")
    return Settings(kafka=kafka, **more)


def make_wrong(one: Settings) -> None:
    client = admin(one.kafka)
    names = {lane: f"{one.kafka.topic_prefix}.dispatch.{lane}" for lane in WRONG}
    base = {"retention.ms": str(8 * 86_400_000), "max.message.bytes": str(2 << 20)}
    base |= {"unclean.leader.election.enable": "false"}
    asked = [NewTopic(names[lane], 2, 1, config=base | wrong) for lane, wrong in WRONG.items()]
    for future in client.create_topics(asked, operation_timeout=30).values():
        future.result()
    listed = set(names.values())
    await_(lambda: listed <= set(client.list_topics(timeout=10).topics), what="topics are listed")


def by_rule(found: Diagnosis, severity: Severity | None = None) -> dict[str, list[str]]:
    told: dict[str, list[str]] = {}
    for one in found.findings:
        if severity is None or one.severity is severity:
            told.setdefault(one.rule, []).extend(one.subjects)
    return told


def test_topics_made_wrong_are_found_by_their_rule_and_by_topics_apply(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    one = settings(kafka_bootstrap, topic_prefix)
    make_wrong(one)
    told = by_rule(examine(one, Policy(), Inquiry()))

    def topic(lane: str) -> str:
        return Lane(*lane.split(".")).topic(topic_prefix)

    assert told["topic-retention"] == [topic("sms.verification")]
    assert told["topic-cleanup-policy"] == [topic("sms.notice")]
    assert told["topic-unclean-election"] == [topic("sms.marketing")]
    assert told["topic-message-size"] == [topic("email.verification")]
    assert told["topic-retention-bytes"] == [topic("email.notice")]
    assert told["topic-flush"] == [topic("email.marketing")]
    assert len(told["topic-exists"]) == len(LANES) + 3 - len(WRONG)
    lanes = [lane for lane in LANES if lane.name in WRONG]
    reports = apply(one.kafka, lanes, Wish(partitions=2, keep_days=8), dry_run=True)
    differing = {report.name for report in reports if report.status == "differs"}
    assert differing == {topic(lane) for lane in WRONG if lane != "email.marketing"}


def test_on_one_broker_of_the_development_stack_nothing_is_an_error(
    kafka_bootstrap: str, topic_prefix: str, ledger_database: str, redis_url: str
) -> None:
    one = settings(
        kafka_bootstrap,
        topic_prefix,
        database=DatabaseSettings(url=ledger_database),
        redis=RedisSettings(url=redis_url),
    )
    apply(one.kafka, LANES, Wish(partitions=1, keep_days=8))
    found = examine(one, Policy(), Inquiry(grace_s=45))
    # CI's own stack waits for no disk (decision 296), and doctor says so.
    switched_off = ["database-fsync"] if os.environ.get("HONGYAN_STACK_FSYNC") == "off" else []
    assert list(by_rule(found, Severity.ERROR)) == switched_off
    assert found.unknown == []
    excused = [f for f in found.findings if f.severity is Severity.WARNING]
    assert {f.why for f in excused if f.rule.startswith(("topic", "broker"))} == {ONE_BROKER}
    assert found.healthy == (not switched_off)


def test_a_hot_key_of_a_lane_is_named(kafka_bootstrap: str, topic_prefix: str) -> None:
    from backends.kafka import clients

    one = settings(kafka_bootstrap, topic_prefix)
    lane = Lane("sms", "notice")
    apply(one.kafka, [lane], Wish(partitions=12))
    producer = clients.producer(one.kafka)
    for _ in range(1_500):
        producer.produce(lane.topic(topic_prefix), b"{}", key=b"order-1")
    assert producer.flush(30) == 0
    found = examine(one, Policy(), Inquiry())
    (hot,) = [finding for finding in found.findings if finding.rule == "partition-hot"]
    assert hot.subjects == [lane.topic(topic_prefix)]
    assert "key 'order-1' is 100%" in hot.seen


def test_a_broker_that_is_away_makes_its_rules_unknown_and_ends_in_time(tmp_path: Any) -> None:
    one = settings(
        "127.0.0.1:1", "away", database=DatabaseSettings(url=f"sqlite:///{tmp_path}/none.db")
    )
    found = examine(one, Policy(), Inquiry(run_s=1.0))
    reasons = {gap.reason for gap in found.unknown}
    assert any("Kafka at 127.0.0.1:1 did not answer" in one for one in reasons)
    assert any("run `hongyan db upgrade`" in one for one in reasons)
    assert not (tmp_path / "none.db").exists()
    assert found.took_ms < 10_000
    assert not found.healthy


@pytest.mark.parametrize("members", [False, True])
def test_the_group_is_asked_for_its_protocol(
    kafka_bootstrap: str, topic_prefix: str, members: bool
) -> None:
    from backends.kafka import clients

    one = settings(kafka_bootstrap, topic_prefix)
    lane = Lane("sms", "notice")
    apply(one.kafka, [lane], Wish(partitions=1))
    member = clients.consumer(one.kafka, protocol="classic")
    joined: list[object] = []
    member.subscribe([lane.topic(topic_prefix)], on_assign=lambda _c, got: joined.append(got))
    await_(lambda: member.poll(0.1) or joined, what="the member joins")
    found = examine(one, Policy(), Inquiry(members=members))
    member.close()
    told = [(one.seen, one.source) for one in found.findings if one.rule == "consumer-assignor"]
    assert told == [("classic protocol, assignor roundrobin", "the group now")], found.unknown
