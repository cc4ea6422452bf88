"""Each rule on literal facts: it finds its misconfiguration, names the loss, and is silent otherwise."""

from __future__ import annotations

import msgspec
import pytest

from backends.kafka.inspection import GroupState, PartitionGrowth
from backends.redis.inspection import RedisState
from producer.doctor.client_facts import own_producers
from producer.doctor.diagnosis import Diagnosis, diagnose
from producer.doctor.facts import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    ClockFacts,
    DatabaseFacts,
    Facts,
    OutboxFacts,
)
from producer.doctor.rule import ONE_BROKER, Severity
from producer.doctor.rule_list import RULES
from tests.producer.doctor import healthy
from tests.producer.doctor.healthy import (
    CODES,
    LANE,
    facts,
    partitions,
    with_broker,
    with_consumer,
    with_database,
    with_deployment,
    with_kind,
    with_lane,
    with_outbox,
    with_partitions,
    with_postgres_outbox,
    with_producer,
    with_spool,
    with_topic,
)

ERROR, WARNING, INFO = Severity


def gone(name: str) -> Facts:
    found = healthy.cluster()
    left = {key: one for key, one in found.topics.items() if key != name}
    return facts(cluster=msgspec.structs.replace(found, topics=left))


def with_cluster(**changes: object) -> Facts:
    return facts(cluster=msgspec.structs.replace(healthy.cluster(), **changes))


def hot() -> Facts:
    skewed = {**dict.fromkeys(range(12), 100), 3: 20_000}
    return with_cluster(growth=[PartitionGrowth(LANE, skewed, "order-1", 0.97)])


def best_effort(redis: RedisState) -> Facts:
    lanes = with_lane("sms.marketing", best_effort=True).lanes
    return facts(lanes=lanes, redis=redis)


REDIS = RedisState(eviction="noeviction", append_only=True, replicas=1)
SQLITE = DatabaseFacts(
    kind="sqlite",
    version="3.45",
    settings={"synchronous": "1"},
    schema="0039",
    program_schema="0039",
    runs=True,
)
OLD = msgspec.structs.replace(healthy.DATABASE, version="12.4")
UNMIGRATED = msgspec.structs.replace(healthy.DATABASE, schema="0012", runs=False)

OLD_MARIADB = msgspec.structs.replace(healthy.OUTBOX, version="10.5.23-MariaDB")


def with_terms(**changes: float) -> OutboxFacts:
    return msgspec.structs.replace(healthy.OUTBOX, **changes)


SEEDS = [
    # -- producers --
    ("producer-acks", ERROR, with_producer(acks="1"), "leader acknowledges alone"),
    ("producer-idempotence", ERROR, with_producer(enable_idempotence="false"), "twice in the log"),
    (
        "producer-in-flight",
        ERROR,
        with_producer(max_in_flight_requests_per_connection="16"),
        "change their order",
    ),
    (
        "producer-delivery-timeout",
        ERROR,
        with_producer(delivery_timeout_ms="20000"),
        "although the record may be in Kafka",
    ),
    (
        "producer-delivery-ttl",
        WARNING,
        with_producer(delivery_timeout_ms="600000"),
        "expire unsent",
    ),
    (
        "producer-partitioner",
        ERROR,
        with_producer(partitioner="consistent_random"),
        "two workers, in any order",
    ),
    ("producer-buffer", WARNING, with_producer(queue_buffering_max_messages="0"), "killed for its"),
    ("producer-message-size", ERROR, with_producer(message_max_bytes="9999999"), "loses it"),
    # -- topics --
    ("topic-exists", ERROR, gone(LANE), "an error for every record"),
    (
        "topic-replication",
        ERROR,
        with_partitions(partitions(12, 2, 2)),
        "every record in it is gone",
    ),
    (
        "topic-min-isr",
        ERROR,
        with_topic(min_insync_replicas="1"),
        "takes acknowledged records along",
    ),
    (
        "topic-min-isr-all",
        ERROR,
        with_topic(min_insync_replicas="3"),
        "every write of the topic is",
    ),
    (
        "topic-unclean-election",
        ERROR,
        with_topic(unclean_leader_election_enable="true"),
        "are cut from the log",
    ),
    (
        "topic-cleanup-policy",
        ERROR,
        with_topic(cleanup_policy="compact"),
        "removed before a worker",
    ),
    ("topic-retention", ERROR, with_topic(retention_ms="3600000"), "removes what nobody has read"),
    (
        "topic-retention-bytes",
        ERROR,
        with_topic(retention_bytes="1000000"),
        "no worker has read them",
    ),
    ("topic-message-size", ERROR, with_topic(max_message_bytes="1000000"), "never enters the log"),
    (
        "topic-timestamp-type",
        INFO,
        with_topic(message_timestamp_type="CreateTime"),
        "retention removes at once",
    ),
    ("topic-flush", WARNING, with_topic(flush_messages="1"), "time out under load"),
    ("topic-in-sync-now", ERROR, with_partitions(partitions(12, 3, 1)), "every write is refused"),
    ("partition-offline", ERROR, with_cluster(offline=["hongyan.trace/2"]), "meanwhile expires"),
    ("topic-partitions-changed", WARNING, facts(partitions_before={LANE: 6}), "before its first"),
    ("partition-hot", WARNING, hot(), "expires while other partitions are idle"),
    # -- brokers --
    (
        "broker-unclean-election",
        WARNING,
        with_broker(unclean_leader_election_enable="true"),
        "loses acknowledged records",
    ),
    ("broker-auto-create", ERROR, with_broker(auto_create_topics_enable="true"), "ever reads it"),
    (
        "broker-offsets-topic",
        ERROR,
        with_partitions(partitions(50, 1, 1), OFFSETS_TOPIC),
        "read again",
    ),
    (
        "broker-transaction-topic",
        ERROR,
        with_topic(TRANSACTIONS_TOPIC, min_insync_replicas="1"),
        "stay invisible",
    ),
    ("broker-flush", WARNING, with_broker(log_flush_interval_ms="2000"), "a flush that never runs"),
    ("broker-log-dirs", ERROR, with_broker(log_dirs="/data/a,/tmp/kafka-logs"), "empties /tmp"),
    (
        "broker-offsets-retention",
        ERROR,
        with_broker(offsets_retention_minutes="1440"),
        "places are forgotten",
    ),
    # -- consumers --
    ("consumer-auto-commit", ERROR, with_consumer(enable_auto_commit="true"), "still in memory"),
    ("consumer-offset-store", ERROR, with_consumer(enable_auto_offset_store="true"), "loses it"),
    ("consumer-offset-reset", ERROR, with_consumer(auto_offset_reset="latest"), "everything that"),
    ("consumer-poll-interval", WARNING, with_consumer(max_poll_interval_ms="10000"), "in doubt"),
    (
        "consumer-session",
        WARNING,
        with_broker(group_consumer_session_timeout_ms="6000"),
        "although the worker lives",
    ),
    (
        "consumer-assignor",
        WARNING,
        with_cluster(group=GroupState("hongyan", "classic", "range")),
        "stops all of them",
    ),
    ("consumer-static", INFO, with_consumer(group_instance_id=""), "they wait twice"),
    ("consumer-isolation", ERROR, with_consumer(isolation_level="read_uncommitted"), "rolled back"),
    ("consumer-crcs", ERROR, with_consumer(check_crcs="false"), "changes a number or a code"),
    (
        "consumer-queue",
        WARNING,
        with_consumer(queued_max_messages_kbytes="2097151"),
        "fills the memory",
    ),
    # -- database, Redis, clocks --
    (
        "database-synchronous-commit",
        WARNING,
        with_database(synchronous_commit="off"),
        "the commit is gone",
    ),
    ("database-fsync", ERROR, with_database(fsync="off"), "rows of sent messages are missing"),
    ("database-full-page-writes", ERROR, with_database(full_page_writes="off"), "half old"),
    ("database-standby", INFO, with_database(synchronous_standby_names=""), "failover"),
    ("database-version", WARNING, facts(database=OLD), "lose or double rows"),
    ("database-sqlite-synchronous", ERROR, facts(database=SQLITE), "is sent again"),
    ("database-sqlite", INFO, facts(database=SQLITE), "on one disk"),
    ("database-schema", ERROR, facts(database=UNMIGRATED), "do not start"),
    (
        "redis-eviction",
        WARNING,
        best_effort(msgspec.structs.replace(REDIS, eviction="allkeys-lru")),
        "is sent again",
    ),
    (
        "redis-persistence",
        WARNING,
        best_effort(msgspec.structs.replace(REDIS, append_only=False)),
        "is sent again",
    ),
    ("redis-replicas", INFO, facts(redis=msgspec.structs.replace(REDIS, replicas=0)), "slower"),
    (
        "clock-apart",
        ERROR,
        facts(clocks=[ClockFacts("database", -2_500, 5)]),
        "sent after their end",
    ),
    # -- the outbox's database, the relay --
    (
        "outbox-synchronous-commit",
        ERROR,
        with_postgres_outbox(synchronous_commit="off"),
        "order and notification are both gone",
    ),
    ("outbox-fsync", ERROR, with_postgres_outbox(fsync="off"), "nobody publishes them"),
    (
        "outbox-full-page-writes",
        ERROR,
        with_postgres_outbox(full_page_writes="off"),
        "a notification is skipped",
    ),
    (
        "outbox-flush-log",
        ERROR,
        with_outbox(innodb_flush_log_at_trx_commit="2"),
        "the last second's commits along",
    ),
    ("outbox-sync-binlog", ERROR, with_outbox(sync_binlog="0"), "orders and their notifications"),
    ("outbox-binlog-format", ERROR, with_outbox(binlog_format="STATEMENT"), "stands as SENT"),
    ("outbox-isolation", WARNING, with_outbox(isolation="READ-UNCOMMITTED"), "never was"),
    ("outbox-packet", ERROR, with_outbox(max_allowed_packet="1048576"), "without its notification"),
    ("outbox-lock-wait", WARNING, with_outbox(innodb_lock_wait_timeout="120"), "in Kafka twice"),
    ("outbox-version", ERROR, facts(outbox=OLD_MARIADB), "never published"),
    ("relay-lease", WARNING, facts(outbox=with_terms(lease_s=600)), "expire unsent"),
    ("relay-late", WARNING, facts(outbox=with_terms(late_s=0)), "nobody is told"),
    # -- look-back --
    ("lookback-check", WARNING, with_kind(check=""), "Nobody can be asked"),
    ("lookback-deadline", ERROR, with_kind(deadline_s=90, longest_transaction_s=60), "unasked"),
    ("lookback-span", WARNING, with_kind(max_checks=3), "away for a deployment"),
    ("lookback-transaction", WARNING, with_kind(longest_transaction_s=86_400), "is parked"),
    ("lookback-lease", WARNING, with_kind(check_timeout_s=60), "comes too late"),
    (
        "lookback-keep",
        ERROR,
        with_topic("look_back_msg", retention_ms=str(30 * healthy.DAY_MS)),
        "goes a second time",
    ),
    # -- spools --
    ("spool-persistent", ERROR, with_spool(filesystem="overlay"), "in the spool is gone"),
    ("spool-local", ERROR, with_spool(filesystem="nfs4"), "two processes drain at once"),
    ("spool-space", ERROR, with_spool(free_bytes=100 << 20), "loses the notification"),
    # -- across --
    ("drain-grace", ERROR, with_deployment(grace_s=30), "kills the worker while calls"),
    ("ledger-retention", ERROR, with_deployment(ledger_days=20), "it is sent again"),
    ("lease-timeout", ERROR, with_lane("sms.notice", timeout_ms=40_000), "a second time"),
    ("lease-heartbeat", ERROR, with_deployment(heartbeat_s=12), "counts as dead"),
]
"""Rule, severity, facts with one thing wrong, and words of the loss."""


def diagnosed(found: Facts) -> Diagnosis:
    return diagnose(found, RULES)


@pytest.mark.parametrize(
    ("rule", "severity", "seeded", "loss"), SEEDS, ids=[one[0] for one in SEEDS]
)
def test_each_misconfiguration_is_found_with_the_loss_it_would_cause(
    rule: str, severity: Severity, seeded: Facts, loss: str
) -> None:
    found = [one for one in diagnosed(seeded).findings if one.rule == rule]
    assert found, f"{rule} saw nothing"
    assert {one.severity for one in found} == {severity}
    assert loss in found[0].loss
    assert all((found[0].seen, found[0].source, found[0].wanted, *found[0].fixes))


def test_every_rule_has_a_misconfiguration_here() -> None:
    assert {one[0] for one in SEEDS} == {rule.id for rule in RULES}
    assert len(SEEDS) >= 30


def test_nothing_is_found_on_the_recommended_set_up() -> None:
    found = diagnosed(facts())
    assert (found.findings, found.unknown) == ([], [])
    assert found.passed == [rule.id for rule in RULES]
    assert found.healthy


def one_broker(found: Facts) -> Facts:
    assert found.cluster is not None
    return msgspec.structs.replace(
        found, cluster=msgspec.structs.replace(found.cluster, brokers=found.cluster.brokers[:1])
    )


def test_one_broker_that_cannot_do_better_is_warned_with_the_reason() -> None:
    found = diagnosed(one_broker(with_partitions(partitions(12, 1, 1))))
    copies = next(one for one in found.findings if one.rule == "topic-replication")
    assert (copies.severity, copies.why) == (WARNING, ONE_BROKER)
    assert found.healthy


def test_one_broker_is_no_excuse_for_what_it_could_do() -> None:
    found = diagnosed(one_broker(with_topic(cleanup_policy="compact")))
    assert [one.severity for one in found.findings] == [ERROR]


def test_a_retention_that_covers_its_own_lane_is_a_warning_with_the_reason() -> None:
    found = diagnosed(with_topic(CODES, retention_ms="86400000")).findings
    assert [(one.rule, one.severity) for one in found] == [("topic-retention", WARNING)]
    assert "own longest TTL" in found[0].why


def test_a_short_of_copies_topic_that_still_takes_writes_is_a_warning() -> None:
    (found,) = diagnosed(with_partitions(partitions(12, 3, 2))).findings
    assert (found.rule, found.severity) == ("topic-in-sync-now", WARNING)


def test_redis_may_forget_where_the_ledger_decides() -> None:
    found = diagnosed(facts(redis=RedisState(eviction="allkeys-lru", replicas=1))).findings
    assert {one.severity for one in found} == {INFO}
    assert all("the ledger alone decides" in one.why for one in found)


def test_a_topic_that_is_kept_for_ever_keeps_the_ledger_for_ever() -> None:
    found = diagnosed(with_topic(retention_ms="-1")).findings
    assert [(one.rule, one.seen) for one in found] == [
        ("ledger-retention", "records are kept for ever")
    ]


def test_a_kind_of_transaction_without_a_check_has_no_unfenced_answer() -> None:
    found = diagnosed(with_kind(check="", longest_transaction_s=86_400)).findings
    assert [one.rule for one in found] == ["lookback-check"]


def test_a_clock_that_cannot_be_read_is_said_and_is_no_pass() -> None:
    found = diagnosed(facts(clocks=[ClockFacts("broker 1", None, reason="no request answers it")]))
    assert [(one.rule, one.seen) for one in found.findings] == [("clock-apart", "not known")]
    assert "clock-apart" not in found.passed


def test_a_difference_within_the_time_of_the_question_is_none() -> None:
    assert diagnosed(facts(clocks=[ClockFacts("database", 1_400, 500)])).findings == []


def test_the_hot_key_is_named() -> None:
    (found,) = [one for one in diagnosed(hot()).findings if one.rule == "partition-hot"]
    assert "partition 3 took 95%" in found.seen
    assert "'order-1' is 97%" in found.seen


def test_few_records_make_no_partition_hot() -> None:
    quiet = PartitionGrowth(LANE, {**dict.fromkeys(range(12), 0), 3: 900})
    assert diagnosed(with_cluster(growth=[quiet])).findings == []


def test_alike_topics_are_one_finding_with_a_command_for_each() -> None:
    found = healthy.cluster()
    weak = {
        name: msgspec.structs.replace(
            state, config={**state.config, **healthy.values({"min.insync.replicas": "1"})}
        )
        for name, state in found.topics.items()
    }
    findings = diagnosed(facts(cluster=msgspec.structs.replace(found, topics=weak))).findings
    (isr,) = [one for one in findings if one.rule == "topic-min-isr"]
    assert len(isr.subjects) == len(isr.fixes) == 34


def test_with_too_few_copies_no_command_demands_more_of_them_in_sync() -> None:
    seeded = with_partitions(partitions(12, 1, 1))
    assert seeded.cluster is not None
    weak = with_topic(min_insync_replicas="1").cluster
    assert weak is not None
    state = msgspec.structs.replace(weak.topics[LANE], partitions=partitions(12, 1, 1))
    both = msgspec.structs.replace(weak, topics={**weak.topics, LANE: state})
    (isr,) = [one for one in diagnosed(facts(cluster=both)).findings if one.rule == "topic-min-isr"]
    assert isr.fixes[0].startswith("once it has three copies: ")


def test_nothing_is_found_on_an_outbox_on_postgresql() -> None:
    assert diagnosed(facts(outbox=healthy.POSTGRES_OUTBOX)).findings == []


def test_without_a_binary_log_its_settings_do_not_matter() -> None:
    seeded = with_outbox(log_bin="OFF", sync_binlog="0", binlog_format="STATEMENT")
    assert diagnosed(seeded).findings == []


def test_a_business_database_that_does_not_answer_passes_no_rule_about_it() -> None:
    told = diagnosed(facts(outbox=None, missing={"outbox": "it did not answer"}))
    assert {gap.rule for gap in told.unknown} == {
        rule.id for rule in RULES if rule.id.startswith(("outbox-", "relay-"))
    }
    assert not told.healthy


def test_a_spool_that_cannot_be_looked_at_passes_no_rule_about_it() -> None:
    told = diagnosed(with_spool(refusal="this process cannot look at it: Permission denied"))
    assert {gap.rule for gap in told.unknown} == {"spool-persistent", "spool-local", "spool-space"}
    assert not told.healthy


@pytest.mark.parametrize("path", ["/tmp/spool", "/var/tmp/x"])
def test_a_spool_in_a_folder_that_is_cleaned_is_named(path: str) -> None:
    (found,) = diagnosed(with_spool(path=path)).findings
    assert (found.rule, found.seen) == ("spool-persistent", "in /tmp")


@pytest.mark.parametrize(
    ("filesystem", "rule"),
    [
        ("fuse.glusterfs", "spool-local"),
        ("fuse.ceph-fuse", "spool-local"),
        ("fuse.juicefs", "spool-local"),
        ("fuse.sshfs", "spool-local"),
        ("lustre", "spool-local"),
        ("fuse.fuse-overlayfs", "spool-persistent"),
    ],
)
def test_a_file_system_that_a_program_serves_is_judged_by_its_kind(
    filesystem: str, rule: str
) -> None:
    (found,) = diagnosed(with_spool(filesystem=filesystem)).findings
    assert (found.rule, found.seen) == (rule, filesystem)


def test_a_full_spool_needs_no_further_room() -> None:
    assert diagnosed(with_spool(used_bytes=300 << 20, free_bytes=0)).findings == []


def test_the_span_of_checks_counts_each_pause_up_to_the_longest() -> None:
    kind = msgspec.structs.replace(healthy.KIND, max_checks=9)
    assert kind.span_s == 60 + 120 + 240 + 480 + 960 + 1_920 + 3_600 + 3_600


def test_a_topic_that_is_kept_for_ever_outlives_every_transaction() -> None:
    found = diagnosed(with_topic("look_back_msg", retention_ms="-1")).findings
    assert "lookback-keep" in [one.rule for one in found]


def test_every_process_that_produces_is_examined() -> None:
    assert [one.name for one in facts().producers] == [
        "worker",
        "hongyan send",
        "hongyan-client",
        "hongyan gateway",
        "hongyan relay",
        "hongyan lookback",
    ]


def test_an_option_that_raises_the_brokers_time_is_found_for_the_gateway() -> None:
    kafka = msgspec.structs.replace(healthy.SETTINGS.kafka, client={"request.timeout.ms": "30000"})
    settings = msgspec.structs.replace(healthy.SETTINGS, kafka=kafka)
    found = diagnosed(facts(producers=own_producers(settings, [LANE]))).findings
    slow = [one for one in found if one.rule == "producer-delivery-timeout"]
    assert "hongyan gateway" in [name for one in slow for name in one.subjects]
