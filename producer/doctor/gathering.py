"""Reads all facts, within a time. A source that fails is missing, with its reason; it never passes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from backends.check_settings import check_settings
from backends.kafka.clients import KafkaTrouble
from backends.kafka.inspection import ClusterInspection, ClusterState
from backends.kafka.topic_demands import TopicPlan
from backends.kafka.topics import Wish, plan
from backends.redis.inspection import RedisState, inspect_redis
from backends.settings import Settings
from message.vocabulary import LANES, Lane
from policy.schema import Guarantee, Ordering, Policy
from policy.topic_retention import OUTAGE_DAYS, longest_ttl_ms, topic_keep_days
from producer.doctor.client_facts import likely_protocol, own_consumer, own_producers
from producer.doctor.database_facts import DatabaseUnread, clock, read_database
from producer.doctor.facts import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    ClientFacts,
    ClockFacts,
    DatabaseFacts,
    DeploymentFacts,
    Facts,
    LaneFacts,
    LookbackFacts,
    LookbackKindFacts,
    OutboxFacts,
    Source,
)
from producer.doctor.outbox_facts import read_outbox
from producer.doctor.spool_facts import read_spools
from producer.relay.opening import OutboxUnread

ASK_S: Final = 5.0
"""Longest wait for one answer of Kafka."""
RUN_S: Final = 20.0
"""Longest time for all of Kafka's answers."""
_WANTED_BROKERS: Final = 3
_HEARTBEATS: Final = 6
_NEW_GROUPS: Final = "group.consumer.session.timeout.ms"
_BY_MAIL: Final = "email"


class Inquiry(msgspec.Struct, frozen=True, kw_only=True):
    """What a person told doctor, and how far it may go."""

    grace_s: float | None = None
    outage_days: int = OUTAGE_DAYS
    members: bool = False
    """Whether the group's members are described; see backends/kafka/inspection.py."""
    producers: Sequence[ClientFacts] = ()
    """Business producers beside our own."""
    spools: Sequence[str] = ()
    """Folders of spools on this host, beside `console.spool_dirs`."""
    run_s: float = RUN_S


def gather(
    settings: Settings,
    policy: Policy,
    inquiry: Inquiry,
    partitions_before: Mapping[str, int] | None = None,
) -> Facts:
    """Reads everything. Raises SettingsError for a configuration that no client takes."""
    missing: dict[Source, str] = {}
    deadline = time.monotonic() + inquiry.run_s
    database, clocks = _database(settings, missing)
    outbox = _outbox(settings, missing, clocks)
    redis = _redis(settings, missing, clocks)
    plans = plans_of(settings, policy, inquiry.outage_days)
    cluster = _cluster(settings, plans, inquiry, deadline, missing)
    if cluster is not None:
        reason = "Kafka has no request that answers its time"
        clocks += [ClockFacts(f"broker {one.id}", None, reason=reason) for one in cluster.brokers]
    lanes = [_lane(lane, settings, policy) for lane in LANES]
    protocol = likely_protocol(
        settings.kafka, cluster.group.protocol if cluster else "", knows_kip_848=_is_new(cluster)
    )
    return Facts(
        cluster=cluster,
        plans=plans,
        lanes=lanes,
        producers=[
            *own_producers(settings, [one.topic for one in lanes]),
            *inquiry.producers,
        ],
        consumer=own_consumer(settings, protocol),
        database=database,
        redis=redis,
        clocks=clocks,
        deployment=_deployment(settings, policy, inquiry),
        outbox=outbox,
        lookback=_lookback(settings),
        spools=read_spools([*settings.console.spool_dirs, *inquiry.spools]),
        partitions_before=dict(partitions_before or {}),
        missing=missing,
    )


def plans_of(settings: Settings, policy: Policy, outage_days: int) -> dict[str, TopicPlan]:
    """Returns our topics as three brokers should have them."""
    lookback = settings.lookback
    wish = Wish(
        keep_days=topic_keep_days(policy, outage_days),
        lookback_topic=lookback.topic if lookback.biz_types else "",
    )
    plans = plan(settings.kafka.topic_prefix, LANES, wish, _WANTED_BROKERS)
    return {one.name: one for one in plans}


def _database(
    settings: Settings, missing: dict[Source, str]
) -> tuple[DatabaseFacts | None, list[ClockFacts]]:
    try:
        return read_database(settings)
    except DatabaseUnread as exc:
        missing["database"] = str(exc)
        return None, []


def _outbox(
    settings: Settings, missing: dict[Source, str], clocks: list[ClockFacts]
) -> OutboxFacts | None:
    """Returns the business's database and adds its clock; None without one, or if it did not answer."""
    if not settings.relay.outbox_url:
        return None
    try:
        found, its_clock = read_outbox(settings)
    except OutboxUnread as exc:
        missing["outbox"] = f"the business's database did not answer ({exc})"
        return None
    clocks.append(its_clock)
    return found


def _lookback(settings: Settings) -> LookbackFacts | None:
    terms = settings.lookback
    if not terms.biz_types:
        return None
    timeouts = {name: check_settings(name, one).timeout_s for name, one in terms.checks.items()}
    kinds = [
        LookbackKindFacts(
            name=name,
            check=kind.check,
            check_timeout_s=timeouts.get(kind.check, 0.0),
            immunity_s=kind.immunity_s,
            check_s=kind.check_s,
            longest_pause_s=kind.longest_pause_s,
            max_checks=kind.max_checks,
            deadline_s=kind.deadline_s,
            longest_transaction_s=kind.longest_transaction_s,
        )
        for name, kind in terms.biz_types.items()
    ]
    return LookbackFacts(
        topic=terms.topic, kinds=kinds, lease_s=terms.lease_s, keep_days=terms.keep_days
    )


def _redis(
    settings: Settings, missing: dict[Source, str], clocks: list[ClockFacts]
) -> RedisState | None:
    """Returns Redis' state and adds its clock; None if none is configured or it did not answer."""
    if not settings.redis.url:
        return None
    before_ms = time.time_ns() // 1_000_000
    try:
        state = inspect_redis(settings.redis)
    except ValueError as exc:
        missing["redis"] = f"redis.url: {exc}"
        return None
    if state.refusal:
        missing["redis"] = state.refusal
        return None
    clocks.append(clock("redis", state.now_ms, before_ms, time.time_ns() // 1_000_000))
    return state


def _cluster(
    settings: Settings,
    plans: Mapping[str, TopicPlan],
    inquiry: Inquiry,
    deadline: float,
    missing: dict[Source, str],
) -> ClusterState | None:
    names = [*plans, OFFSETS_TOPIC, TRANSACTIONS_TOPIC]
    lanes = [lane.topic(settings.kafka.topic_prefix) for lane in LANES]
    try:
        inspection = ClusterInspection(settings.kafka, ask_s=ASK_S, deadline=deadline)
        state = inspection.read(names, lanes=lanes, members=inquiry.members)
    except KafkaTrouble as exc:
        missing["cluster"] = str(exc)
        return None
    if state.embedded:
        missing["cluster"] = "the embedded cluster answers no questions; it keeps nothing anyway"
        return None
    return state


def _is_new(cluster: ClusterState | None) -> bool:
    return cluster is not None and any(_NEW_GROUPS in one.config for one in cluster.brokers)


def _lane(lane: Lane, settings: Settings, policy: Policy) -> LaneFacts:
    of = policy.of(lane)
    return LaneFacts(
        name=lane.name,
        topic=lane.topic(settings.kafka.topic_prefix),
        ttl_ms=of.ttl_ms,
        max_ttl_ms=of.max_ttl_ms,
        timeout_ms=of.timeout_ms,
        immediate=of.retry.immediate,
        ordered=of.ordering is Ordering.KEY,
        best_effort=of.guarantee is Guarantee.BEST_EFFORT,
        smtp_ms=of.smtp.total_ms if lane.channel == _BY_MAIL else 0,
    )


def _deployment(settings: Settings, policy: Policy, inquiry: Inquiry) -> DeploymentFacts:
    worker = settings.worker
    return DeploymentFacts(
        worker_drain_s=worker.drain_s,
        recovery_drain_s=settings.recovery.drain_s,
        grace_s=inquiry.grace_s,
        lease_s=worker.lease_s,
        heartbeat_s=worker.heartbeat_s or worker.lease_s / _HEARTBEATS,
        keep_days=topic_keep_days(policy, inquiry.outage_days),
        outage_days=inquiry.outage_days,
        ledger_days=policy.retention_days,
        longest_ttl_ms=longest_ttl_ms(policy),
        topic_days=settings.recovery.topic_days,
        relay_drain_s=settings.relay.drain_s if settings.relay.outbox_url else None,
        lookback_drain_s=settings.lookback.drain_s if settings.lookback.biz_types else None,
    )
