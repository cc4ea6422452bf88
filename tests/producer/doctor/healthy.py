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
from backends.lookback_settings import BizTypeSettings, LookbackSettings
from backends.redis.inspection import RedisState
from backends.settings import KafkaSettings, RelaySettings, Settings
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
    LookbackFacts,
    LookbackKindFacts,
    OutboxFacts,
    SpoolFacts,
)
from producer.doctor.gathering import plans_of

LANE = "hongyan.dispatch.sms.notice"
CODES = "hongyan.dispatch.sms.verification"
NEVER = str((1 << 63) - 1)
DAY_MS = 86_400_000
SETTINGS = Settings(
    kafka=KafkaSettings(group_instance_id="w-1"),
    relay=RelaySettings(outbox_url="mysql://shop:shop@db/shop"),
    lookback=LookbackSettings(biz_types={"order": BizTypeSettings(check="orders")}),
)
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
    schema="0039",
    program_schema="0039",
    runs=True,
)

OUTBOX = OutboxFacts(
    kind="mariadb",
    version="11.4.2-MariaDB-log",
    settings={
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_lock_wait_timeout": "50",
        "log_bin": "ON",
        "sync_binlog": "1",
        "binlog_format": "ROW",
        "max_allowed_packet": "16777216",
        "isolation": "REPEATABLE-READ",
    },
    lease_s=60,
    late_s=60,
)
POSTGRES_OUTBOX = OutboxFacts(
    kind="postgresql",
    version="17.2 (Debian 17.2-1)",
    settings={"synchronous_commit": "on", "fsync": "on", "full_page_writes": "on"},
    lease_s=60,
    late_s=60,
)
KIND = LookbackKindFacts(
    name="order",
    check="orders",
    check_timeout_s=5,
    immunity_s=60,
    check_s=60,
    longest_pause_s=3_600,
    max_checks=15,
    deadline_s=86_400,
    longest_transaction_s=3_600,
)
SPOOL = SpoolFacts(
    path="/var/lib/shop/spool",
    filesystem="ext4",
    free_bytes=10 << 30,
    used_bytes=1 << 20,
    max_bytes=256 << 20,
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
            relay_drain_s=30,
            lookback_drain_s=30,
        ),
        outbox=OUTBOX,
        lookback=LookbackFacts(topic="look_back_msg", kinds=[KIND], lease_s=60, keep_days=30),
        spools=[SPOOL],
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
    first, second, *others = facts().producers
    changed = msgspec.structs.replace(second, config={**second.config, **given})
    return facts(producers=[first, changed, *others])


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


def with_outbox(**settings: str) -> Facts:
    """Returns the healthy facts with settings of MariaDB replaced."""
    changed = {**OUTBOX.settings, **settings}
    return facts(outbox=msgspec.structs.replace(OUTBOX, settings=changed))


def with_postgres_outbox(**settings: str) -> Facts:
    """Returns the healthy facts with an outbox on PostgreSQL, whose settings are replaced."""
    changed = {**POSTGRES_OUTBOX.settings, **settings}
    return facts(outbox=msgspec.structs.replace(POSTGRES_OUTBOX, settings=changed))


def with_kind(**changes: Any) -> Facts:
    """Returns the healthy facts with terms of the one kind of transaction replaced."""
    found = facts().lookback
    assert found is not None
    kinds = [msgspec.structs.replace(KIND, **changes)]
    return facts(lookback=msgspec.structs.replace(found, kinds=kinds))


def with_spool(**changes: Any) -> Facts:
    return facts(spools=[msgspec.structs.replace(SPOOL, **changes)])
