"""The recommended set-up as literal facts: three brokers, PostgreSQL, Redis, all as doctor wants it."""

from __future__ import annotations

from typing import Any

import msgspec

from backends.kafka.inspection import (
    BrokerState,
    ClusterState,
    ConfigValue,
    GroupState,
    PartitionGrowth,
    PartitionHealth,
    TopicState,
)
from backends.redis.inspection import RedisState
from backends.settings import KafkaSettings, Settings
from message.vocabulary import LANES
from policy.schema import Guarantee, Policy
from producer.doctor.client_facts import own_consumer, own_producers
from producer.doctor.facts import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    ClockFacts,
    DatabaseFacts,
    DeploymentFacts,
    Facts,
    LaneFacts,
)
from producer.doctor.gathering import plans_of

LANE = "hongyan.dispatch.sms.notice"
CODES = "hongyan.dispatch.sms.verification"
NEVER = str((1 << 63) - 1)
DAY_MS = 86_400_000
SETTINGS = Settings(kafka=KafkaSettings(group_instance_id="w-1"))
BROKER = {
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "log.flush.interval.ms": "",
    "log.flush.scheduler.interval.ms": NEVER,
    "log.dirs": "/var/lib/kafka",
    "offsets.retention.minutes": "10080",
    "group.consumer.session.timeout.ms": "45000",
    "group.consumer.heartbeat.interval.ms": "5000",
}
TOPIC = {
    "segment.ms": str(7 * DAY_MS),
    "message.timestamp.type": "LogAppendTime",
    "flush.messages": NEVER,
    "flush.ms": NEVER,
}

DATABASE = DatabaseFacts(
    kind="postgresql",
    version="17.2",
    settings={
        "synchronous_commit": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_standby_names": "ANY 1 (*)",
    },
    schema="0033",
    program_schema="0033",
    runs=True,
)


def values(config: dict[str, str], source: str = "Kafka's default") -> dict[str, ConfigValue]:
    return {key: ConfigValue(value, source) for key, value in config.items()}


def partitions(count: int, replicas: int = 3, in_sync: int = 3) -> list[PartitionHealth]:
    return [PartitionHealth(number, 1, replicas, in_sync) for number in range(count)]


def topics() -> dict[str, TopicState]:
    found = {
        name: TopicState(name, partitions(plan.partitions), values({**TOPIC, **plan.config}))
        for name, plan in plans_of(SETTINGS, Policy(), 3).items()
    }
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        found[name] = TopicState(name, partitions(50), values({"min.insync.replicas": "2"}))
    return found


def cluster() -> ClusterState:
    return ClusterState(
        brokers=[BrokerState(number, values(BROKER, "server.properties")) for number in (1, 2, 3)],
        topics=topics(),
        group=GroupState("hongyan", "consumer"),
        growth=[PartitionGrowth(LANE, dict.fromkeys(range(12), 1_000))],
    )


def lanes() -> list[LaneFacts]:
    found = []
    for lane in LANES:
        of = Policy().of(lane)
        found.append(
            LaneFacts(
                name=lane.name,
                topic=lane.topic(),
                ttl_ms=of.ttl_ms,
                max_ttl_ms=of.max_ttl_ms,
                timeout_ms=of.timeout_ms,
                immediate=of.retry.immediate,
                ordered=lane.name == "sms.notice",
                best_effort=of.guarantee is Guarantee.BEST_EFFORT,
            )
        )
    return found


def facts(**changes: Any) -> Facts:
    """Returns the healthy facts, with some replaced."""
    healthy = Facts(
        cluster=cluster(),
        plans=plans_of(SETTINGS, Policy(), 3),
        lanes=lanes(),
        producers=own_producers(SETTINGS, [lane.topic() for lane in LANES]),
        consumer=own_consumer(SETTINGS, "consumer"),
        database=DATABASE,
        redis=RedisState(eviction="noeviction", append_only=True, replicas=1),
        clocks=[ClockFacts("database", 20, 3), ClockFacts("redis", -30, 3)],
        deployment=DeploymentFacts(
            worker_drain_s=30,
            recovery_drain_s=30,
            grace_s=45,
            lease_s=30,
            heartbeat_s=5,
            keep_days=8,
            outage_days=3,
            ledger_days=90,
            longest_ttl_ms=7 * DAY_MS,
        ),
        partitions_before={LANE: 12},
    )
    return msgspec.structs.replace(healthy, **changes)


def with_topic(name: str = LANE, **config: str) -> Facts:
    """Returns the healthy facts with settings of one topic replaced; `_` stands for a dot."""
    given = {key.replace("_", "."): value for key, value in config.items()}
    found = cluster()
    state = found.topics[name]
    own = values(given, "the topic's own setting")
    changed = msgspec.structs.replace(state, config={**state.config, **own})
    return facts(cluster=msgspec.structs.replace(found, topics={**found.topics, name: changed}))


def with_partitions(found: list[PartitionHealth], name: str = LANE) -> Facts:
    now = cluster()
    changed = msgspec.structs.replace(now.topics[name], partitions=found)
    return facts(cluster=msgspec.structs.replace(now, topics={**now.topics, name: changed}))


def with_broker(**config: str) -> Facts:
    """Returns the healthy facts with settings of one broker replaced."""
    given = {key.replace("_", "."): value for key, value in config.items()}
    found = cluster()
    first = BrokerState(1, {**found.brokers[0].config, **values(given, "server.properties")})
    return facts(cluster=msgspec.structs.replace(found, brokers=[first, *found.brokers[1:]]))


def with_producer(**config: str) -> Facts:
    given = {key.replace("_", "."): value for key, value in config.items()}
    first, second = facts().producers
    changed = msgspec.structs.replace(second, config={**second.config, **given})
    return facts(producers=[first, changed])


def with_consumer(**config: str) -> Facts:
    given = {key.replace("_", "."): value for key, value in config.items()}
    one = facts().consumer
    return facts(consumer=msgspec.structs.replace(one, config={**one.config, **given}))


def with_database(**settings: str) -> Facts:
    changed = {**DATABASE.settings, **settings}
    return facts(database=msgspec.structs.replace(DATABASE, settings=changed))


def with_lane(name: str, **changes: Any) -> Facts:
    return facts(
        lanes=[
            msgspec.structs.replace(one, **changes) if one.name == name else one for one in lanes()
        ]
    )


def with_deployment(**changes: Any) -> Facts:
    return facts(deployment=msgspec.structs.replace(facts().deployment, **changes))
