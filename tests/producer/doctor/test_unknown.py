"""What could not be read is not known: it names the missing right, and never passes."""

from __future__ import annotations

import msgspec
import pytest

from backends.kafka.inspection import BrokerState, GroupState
from producer.doctor.diagnosis import diagnose
from producer.doctor.facts import Facts
from producer.doctor.rule import Severity
from producer.doctor.rule_list import RULES
from tests.producer.doctor import healthy
from tests.producer.doctor.healthy import LANE, facts

TOPIC_ACL = f"our user may not read it; the ACL DescribeConfigs on Topic:{LANE} is missing"


def test_a_topic_whose_settings_may_not_be_read_passes_no_rule_about_them() -> None:
    found = healthy.cluster()
    hidden = msgspec.structs.replace(found.topics[LANE], config={}, refusal=TOPIC_ACL)
    seeded = facts(cluster=msgspec.structs.replace(found, topics={**found.topics, LANE: hidden}))
    told = diagnose(seeded, RULES)
    rules = {gap.rule for gap in told.unknown if gap.subjects == [LANE]}
    assert {"topic-min-isr", "topic-retention", "topic-cleanup-policy"} <= rules
    assert {"topic-unclean-election", "ledger-retention", "producer-message-size"} <= rules
    assert not rules & set(told.passed)
    assert {gap.reason for gap in told.unknown} == {TOPIC_ACL}
    assert not told.healthy


def test_brokers_that_may_not_be_read_pass_no_rule_about_brokers() -> None:
    found = healthy.cluster()
    hidden = [BrokerState(1, refusal="the ACL DescribeConfigs on Cluster:kafka-cluster is missing")]
    told = diagnose(facts(cluster=msgspec.structs.replace(found, brokers=hidden)), RULES)
    brokers = {rule.id for rule in RULES if rule.group == "broker"}
    decided_by_topics = {"broker-offsets-topic", "broker-transaction-topic"}
    assert not (brokers - decided_by_topics) & set(told.passed)
    assert not told.healthy


def test_a_group_that_may_not_be_read_is_not_known() -> None:
    group = GroupState("hongyan", refusal="the ACL Describe on Group:hongyan is missing")
    told = diagnose(facts(cluster=msgspec.structs.replace(healthy.cluster(), group=group)), RULES)
    assert [gap.rule for gap in told.unknown] == ["consumer-assignor"]
    assert told.healthy, "a warning at most is not known"


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("18rc1", "passed"),
        ("19devel", "passed"),
        ("17.2 (Debian 17.2-1)", "passed"),
        ("14beta2", "found"),
        ("EnterpriseDB", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_version_is_read_by_its_leading_digits(version: str, status: str) -> None:
    told = diagnose(
        facts(database=msgspec.structs.replace(healthy.DATABASE, version=version)), RULES
    )
    rule = "database-version"
    is_in = {
        "passed": rule in told.passed,
        "found": rule in {one.rule for one in told.findings},
        "unknown": rule in {one.rule for one in told.unknown},
    }
    assert [name for name, holds in is_in.items() if holds] == [status]


def without(source: str) -> Facts:
    return facts(cluster=None, missing={source: "Kafka did not answer"})


def test_without_the_cluster_no_rule_that_needs_it_passes() -> None:
    told = diagnose(without("cluster"), RULES)
    needing = {rule.id for rule in RULES if "cluster" in rule.needs}
    assert len(needing) > 20
    assert not needing & set(told.passed)
    assert {gap.rule for gap in told.unknown} == needing
    assert not told.healthy


def test_without_the_database_no_rule_about_it_passes() -> None:
    told = diagnose(facts(database=None, missing={"database": "away"}), RULES)
    assert {gap.rule for gap in told.unknown} == {
        rule.id for rule in RULES if rule.group == "database"
    }
    assert not told.healthy


def test_a_redis_that_is_away_is_not_known_and_none_is_fine() -> None:
    away = diagnose(facts(redis=None, missing={"redis": "away"}), RULES)
    assert {gap.severity for gap in away.unknown} == {Severity.WARNING, Severity.INFO}
    assert diagnose(facts(redis=None), RULES).unknown == []
