"""Plans, creates and compares topics, for `hongyan topics apply`.

Never deletes or alters a topic: one that differs is reported with a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Final, Literal

import msgspec
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports without saying so
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    ResourceType,
    TopicMetadata,
)

from backends.kafka.clients import (
    KafkaError,
    KafkaException,
    KafkaTrouble,
    KafkaUnavailable,
    admin,
    is_embedded,
    producer,
)
from backends.kafka.embedded import PARTITIONS as EMBEDDED_PARTITIONS
from backends.kafka.embedded import touch_topics
from backends.kafka.topic_demands import REPLICATION, Shortfall, TopicPlan, shortfalls
from backends.settings import KafkaSettings
from message.vocabulary import Lane, dead_letter_topic, outcome_topic, trace_topic

_ASK_S = 10.0
_CREATE_S = 30.0
_TOLD_S, _POLL_S = 5.0, 0.05
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DAY_MS = 86_400_000
_MIB = 1 << 20

_DISPATCH: Final = {
    # An envelope may have 1 MiB; key, headers and the batch's own bytes come on top.
    "max.message.bytes": str(2 * _MIB),
    # A size limit would remove records before their time.
    "retention.bytes": "-1",
}
_DEAD: Final = {"max.message.bytes": str(4 * _MIB), "retention.ms": str(30 * _DAY_MS)}
_OUTCOMES: Final = {"max.message.bytes": str(2 * _MIB), "retention.ms": str(7 * _DAY_MS)}
_LOOKBACK: Final = {"max.message.bytes": str(2 * _MIB), "retention.ms": str(8 * _DAY_MS)}
_TRACE: Final = {"max.message.bytes": str(2 * _MIB), "retention.ms": str(7 * _DAY_MS)}
_EVERY: Final = {"cleanup.policy": "delete", "unclean.leader.election.enable": "false"}
_UNCOMPRESSED: Final = {"compression.type": "uncompressed"}

Status = Literal["created", "exists", "differs", "failed"]


class TopicsRefused(KafkaTrouble):
    """The topics cannot be made as asked; one sentence says why."""


class TopicReport(msgspec.Struct, kw_only=True):
    """Result for one topic. `remarks` are sentences; for a topic that `exists` they are no problems."""

    name: str
    status: Status
    partitions: int
    replication: int
    remarks: list[str] = []


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a person; None: as suits the cluster."""

    partitions: int = 12
    dead_partitions: int = 3
    trace_partitions: int = 6
    outcome_partitions: int = 6
    lookback_topic: str = ""
    """Topic of transactional messages, with as many partitions as a lane; empty: none."""
    replication: int | None = None
    min_isr: int | None = None
    keep_days: int | None = None
    """Days for which lanes' topics keep records (policy/topic_retention.py); None: as the broker does."""
    uncompressed: bool = False
    """Whether brokers keep lanes uncompressed: only then their limit counts inflated records."""


def plan(prefix: str, lanes: Iterable[Lane], wish: Wish, brokers: int) -> list[TopicPlan]:
    """Returns the topics of these lanes, dead letters, trace and outcomes on a cluster of so many brokers.

    With enough brokers there are three copies, of which two must have a record. Raises TopicsRefused.
    """
    copies = wish.replication or min(3, brokers)
    in_sync = wish.min_isr or (2 if copies >= 3 else 1)
    _check(prefix, wish, copies=copies, in_sync=in_sync, brokers=brokers)
    every = {**_EVERY, "min.insync.replicas": str(in_sync)}
    kept = {} if wish.keep_days is None else {"retention.ms": str(wish.keep_days * _DAY_MS)}
    dispatch = {**every, **_DISPATCH, **kept, **(_UNCOMPRESSED if wish.uncompressed else {})}
    lookback = [wish.lookback_topic] if wish.lookback_topic else []
    return [
        *(TopicPlan(lane.topic(prefix), wish.partitions, copies, dispatch) for lane in lanes),
        *(TopicPlan(name, wish.partitions, copies, {**every, **_LOOKBACK}) for name in lookback),
        TopicPlan(dead_letter_topic(prefix), wish.dead_partitions, copies, {**every, **_DEAD}),
        TopicPlan(trace_topic(prefix), wish.trace_partitions, copies, {**every, **_TRACE}),
        TopicPlan(outcome_topic(prefix), wish.outcome_partitions, copies, {**every, **_OUTCOMES}),
    ]


def _check(prefix: str, wish: Wish, *, copies: int, in_sync: int, brokers: int) -> None:
    if not _NAME.fullmatch(prefix):
        raise TopicsRefused(
            f"kafka.topic_prefix {prefix!r} cannot begin a topic's name; use letters, digits, . _ -"
        )
    others = (wish.dead_partitions, wish.trace_partitions, wish.outcome_partitions)
    if min(wish.partitions, *others) < 1:
        raise TopicsRefused("a topic needs at least 1 partition; give a higher number")
    if copies > brokers:
        raise TopicsRefused(
            f"{copies} copies need {copies} brokers and the cluster has {brokers}; "
            f"start more, or give --replication {brokers}"
        )
    if in_sync > copies:
        raise TopicsRefused(
            f"min ISR {in_sync} with {copies} copies would refuse every write; "
            f"give --min-isr {max(1, copies - 1)}"
        )


def apply(
    settings: KafkaSettings, lanes: Sequence[Lane], wish: Wish, *, dry_run: bool = False
) -> list[TopicReport]:
    """Makes missing topics, compares existing ones. Raises KafkaUnavailable, TopicsRefused.

    With `dry_run` it makes none, and reports the missing ones as `created` all the same.
    """
    client = admin(settings, quiet=True)
    metadata = metadata_of(client)
    plans = plan(settings.topic_prefix, lanes, wish, len(metadata.brokers))
    if is_embedded(client):
        return _apply_embedded(settings, plans, metadata, dry_run)
    topics = metadata.topics
    missing = [p for p in plans if p.name not in topics]
    reports = [_as_made(p) for p in missing] if dry_run else _create(client, missing)
    meanwhile = {r.name for r in reports if r.status == "exists"}
    made = {r.name for r in reports if r.status != "failed"}
    if made and not dry_run:
        topics = {**topics, **_told_of(client, made).topics}
    unseen = {r.name for r in reports} - (meanwhile & topics.keys())
    there = [p for p in plans if p.name not in unseen]
    configs = configs_of(client, [p.name for p in there])
    compared = [_compare(p, topics[p.name], configs.get(p.name, {})) for p in there]
    reports = [*compared, *(r for r in reports if r.name in unseen)]
    return sorted(reports, key=lambda r: [p.name for p in plans].index(r.name))


def metadata_of(client: AdminClient) -> ClusterMetadata:
    """Returns the cluster and its topics. Raises KafkaUnavailable."""
    try:
        return client.list_topics(timeout=_ASK_S)
    except KafkaException as exc:
        raise KafkaUnavailable(
            f"Kafka did not answer ({exc.args[0].str()}); start it, or set kafka.bootstrap"
        ) from exc


def _told_of(client: AdminClient, names: Collection[str]) -> ClusterMetadata:
    """Returns the cluster with these topics, which were made a moment ago. The controller knows them at
    once, the brokers shortly after: a send would find no topic until then."""
    deadline = monotonic() + _TOLD_S
    while True:
        metadata = metadata_of(client)
        found = [metadata.topics.get(name) for name in names]
        if all(t is not None and t.error is None for t in found) or monotonic() >= deadline:
            return metadata
        sleep(_POLL_S)


def _apply_embedded(
    settings: KafkaSettings, plans: Sequence[TopicPlan], metadata: ClusterMetadata, dry_run: bool
) -> list[TopicReport]:
    missing = [p.name for p in plans if p.name not in metadata.topics]
    if not dry_run:
        touch_topics(producer(settings), missing)
    return [
        TopicReport(
            name=p.name,
            status="created" if p.name in missing else "exists",
            partitions=EMBEDDED_PARTITIONS,
            replication=1,
        )
        for p in plans
    ]


def _create(client: AdminClient, plans: Sequence[TopicPlan]) -> list[TopicReport]:
    if not plans:
        return []
    asked = client.create_topics(
        [NewTopic(p.name, p.partitions, p.replication, config=p.config) for p in plans],
        operation_timeout=_CREATE_S,
        request_timeout=_CREATE_S,
    )
    return [_created(p, asked[p.name]) for p in plans]


def _created(plan: TopicPlan, asked: Future[None]) -> TopicReport:
    report = _as_made(plan)
    try:
        asked.result()
    except KafkaException as exc:
        error: KafkaError = exc.args[0]
        there_already = error.code() == KafkaError.TOPIC_ALREADY_EXISTS
        report.status = "exists" if there_already else "failed"
        report.remarks = [] if there_already else [error.str() or error.name()]
    return report


def _as_made(plan: TopicPlan) -> TopicReport:
    return TopicReport(
        name=plan.name,
        status="created",
        partitions=plan.partitions,
        replication=plan.replication,
    )


def configs_of(client: AdminClient, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns each topic's configuration, but for those that we may not read."""
    if not topics:
        return {}
    asked = client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in topics], request_timeout=_ASK_S
    )
    found = {}
    for resource, future in asked.items():
        try:
            found[resource.name] = {k: str(e.value) for k, e in future.result().items()}
        except KafkaException:
            continue
    return found


def _compare(plan: TopicPlan, found: TopicMetadata, config: Mapping[str, str]) -> TopicReport:
    """Compares a topic with its plan. Less than planned is a problem, more partitions are a remark."""
    partitions = len(found.partitions)
    replication = min((len(p.replicas) for p in found.partitions.values()), default=0)
    problems = [
        *_too_few(plan, partitions),
        *(_remark(one) for one in shortfalls(plan, replication, config)),
    ]
    extra = []
    if partitions > plan.partitions:
        extra.append(f"{partitions} partitions, {plan.partitions} asked for; left as it is")
    return TopicReport(
        name=plan.name,
        status="differs" if problems else "exists",
        partitions=partitions,
        replication=replication,
        remarks=problems or extra,
    )


def _too_few(plan: TopicPlan, partitions: int) -> list[str]:
    if partitions >= plan.partitions:
        return []
    remedy = f"kafka-topics.sh --alter --topic {plan.name} --partitions {plan.partitions}"
    remark = (
        f"{partitions} partitions, {plan.partitions} asked for: add them with {remedy} while the lane is"
        " empty, since keys move to other partitions"
    )
    return [remark]


def _remark(one: Shortfall) -> str:
    if one.key == REPLICATION:
        return f"{one.found} copies, {one.wanted} asked for: move it with {one.remedy}"
    return f"{one.key} is {one.found}, {one.wanted} asked for: change it with {one.remedy}"
