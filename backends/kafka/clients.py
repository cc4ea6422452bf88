"""Kafka clients with safe settings; backends/kafka/config.py has the settings and their reasons.

Other packages import confluent_kafka only through this module.

    KafkaTrouble
     ├─ KafkaUnavailable   no broker answered in time; trying again may help
     └─ TopicsRefused      topics cannot be made as asked (backends/kafka/topics.py)

A wrong property in `kafka.client` is a SettingsError. Not in the ladder: delivery reports of single
messages, errors of commits (on_commit), and BufferError from `produce`, which is back-pressure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

import msgspec
import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from backends.kafka.client_logs import ClientLog
from backends.kafka.config import (
    Config,
    GroupProtocol,
    assignors,
    common_config,
    consumer_config,
    producer_config,
)
from backends.settings import KafkaSettings, SettingsError
from message.kafka_errors import is_fatal

__all__ = [
    "OFFSET_INVALID",
    "AdminClient",
    "Consumer",
    "GroupProtocol",
    "KafkaError",
    "KafkaException",
    "KafkaTrouble",
    "KafkaUnavailable",
    "Message",
    "Producer",
    "TopicPartition",
    "admin",
    "assignors",
    "consumer",
    "existing_topics",
    "group_refusal",
    "is_embedded",
    "member_epoch",
    "producer",
    "resolve_group_protocol",
    "wait_for_broker",
]

log = structlog.get_logger(__name__)

OnCommit = Callable[[KafkaError | None, Sequence[TopicPartition]], None]
OnError = Callable[[KafkaError], None]
_C = TypeVar("_C", Consumer, Producer, AdminClient)

_GROUP_REFUSALS: Final = (
    KafkaError.UNSUPPORTED_ASSIGNOR,
    KafkaError.INCONSISTENT_GROUP_PROTOCOL,
    KafkaError.UNRELEASED_INSTANCE_ID,
    KafkaError.FENCED_INSTANCE_ID,
)
_METADATA_MAGIC: Final = b"CGMDv2:"
_EMBEDDED_CLUSTER: Final = "mockCluster"
_ASK_S = 2.0
_LIST_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 5.0
_PROBE_S = 10.0
_PROBE_POLL_S = 0.05
_PROBE_GROUP = "{}-protocol-probe"
_PROBE_TOPIC = "{}.protocol-probe"


class KafkaTrouble(Exception):
    """Base of the ladder."""


class KafkaUnavailable(KafkaTrouble):
    """No broker answered in the time given."""


def consumer(
    settings: KafkaSettings,
    *,
    protocol: GroupProtocol,
    client_id: str = "",
    assignor: str | None = None,
    on_commit: OnCommit | None = None,
    on_error: OnError | None = None,
) -> Consumer:
    """Returns a group member, not yet subscribed. One thread owns it and runs its callbacks inside poll.
    Polled messages report fatal errors; the log does not."""
    config = consumer_config(settings, protocol, client_id, assignor)
    if on_commit is not None:
        config["on_commit"] = on_commit
    return _client(Consumer, config, on_error, fatal=False)


def offset_reader(settings: KafkaSettings) -> Consumer:
    """Returns a client that asks for the group's committed offsets. It never joins the group and logs
    nothing."""
    alone = msgspec.structs.replace(settings, group_instance_id="")
    return _client(Consumer, consumer_config(alone, "classic"), None, quiet=True)


def group_refusal(error: KafkaError) -> str:
    """Returns the name of the error with which a group refused its member; empty for any other error.

    Polled fatal errors all have one code, and the reason in their text.
    """
    if error.code() != KafkaError._FATAL:  # noqa: SLF001 - its name
        return error.name() if error.code() in _GROUP_REFUSALS else ""
    known = (KafkaError(code) for code in _GROUP_REFUSALS)
    return next((one.name() for one in known if one.str() in error.str()), "")


def member_epoch(consumer: Consumer) -> int:
    """Returns the epoch (classic protocol: the generation) of the member, above 0 once it has joined.

    librdkafka gives it only in its group metadata: a magic, then 4 bytes little-endian.
    """
    metadata = consumer.consumer_group_metadata()
    if not isinstance(metadata, bytes) or not metadata.startswith(_METADATA_MAGIC):
        return 0
    start = len(_METADATA_MAGIC)
    return int.from_bytes(metadata[start : start + 4], "little", signed=True)


def producer(
    settings: KafkaSettings,
    *,
    client_id: str = "",
    on_error: OnError | None = None,
    changes: Mapping[str, int | str | bool] | None = None,
) -> Producer:
    """Returns an idempotent producer, safe from many threads. `changes` to properties are for our code."""
    return _client(Producer, producer_config(settings, client_id, changes or {}), on_error)


def admin(settings: KafkaSettings, *, quiet: bool = False) -> AdminClient:
    """Returns a client for topics and groups; `quiet` logs nothing, for callers that report errors."""
    return _client(AdminClient, common_config(settings), None, quiet=quiet)


def _client(
    kind: Callable[[Config], _C],
    config: Config,
    on_error: OnError | None = None,
    *,
    quiet: bool = False,
    fatal: bool = True,
) -> _C:
    client_log = ClientLog(quiet=quiet, fatal=fatal)
    config = {**config, "error_cb": on_error or client_log.on_error, "logger": client_log}
    try:
        return kind(config)
    except (KafkaException, TypeError, ValueError) as exc:
        raise SettingsError(f"kafka.client: {_text(exc)}") from exc


def _text(exc: BaseException) -> str:
    error = exc.args[0] if exc.args else exc
    return str(error.str() if isinstance(error, KafkaError) else error)


def wait_for_broker(
    settings: KafkaSettings, timeout_s: float | None = None, stop: threading.Event | None = None
) -> bool:
    """Returns True once a broker answers, False if `stop` was set. Warns once and asks with back-off.

    Raises KafkaUnavailable after `timeout_s` (None: `kafka.connect_timeout_s`).
    """
    limit = settings.connect_timeout_s if timeout_s is None else timeout_s
    stop = stop or threading.Event()
    client = admin(settings, quiet=True)
    deadline = time.monotonic() + limit
    wait = _FIRST_WAIT_S
    while not stop.is_set():
        if (cause := _ask(client, deadline)) is None:
            return True
        if wait == _FIRST_WAIT_S:
            log.warning("kafka_not_reachable", bootstrap=settings.bootstrap, cause=cause)
        if time.monotonic() >= deadline:
            raise KafkaUnavailable(
                f"Kafka at {settings.bootstrap} did not answer within {limit:g} s ({cause}); "
                "start it, or set kafka.bootstrap"
            )
        stop.wait(min(wait, _left(deadline)))
        wait = min(wait * 2, _LONGEST_WAIT_S)
    return False


def _ask(client: AdminClient, deadline: float) -> str | None:
    """Returns None if a broker answered, else the cause."""
    client.poll(0)
    try:
        client.list_topics(timeout=max(0.1, min(_ASK_S, _left(deadline))))
    except KafkaException as exc:
        return _text(exc)
    return None


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def existing_topics(settings: KafkaSettings) -> frozenset[str] | None:
    """Returns the existing topics; None on the embedded cluster, which makes them at first use. Raises
    KafkaUnavailable."""
    client = admin(settings, quiet=True)
    try:
        metadata = client.list_topics(timeout=_LIST_S)
    except KafkaException as exc:
        raise KafkaUnavailable(
            f"Kafka at {settings.bootstrap} did not answer ({_text(exc)}); "
            "start it, or set kafka.bootstrap"
        ) from exc
    embedded = str(metadata.cluster_id).startswith(_EMBEDDED_CLUSTER)
    return None if embedded else frozenset(metadata.topics)


def is_embedded(client: AdminClient | Producer | Consumer, timeout_s: float = _ASK_S) -> bool:
    """Whether the cluster is librdkafka's in-process one. Raises KafkaUnavailable."""
    try:
        cluster = client.list_topics(timeout=timeout_s).cluster_id
    except KafkaException as exc:
        raise KafkaUnavailable(f"Kafka did not answer ({_text(exc)})") from exc
    return (cluster or "").startswith(_EMBEDDED_CLUSTER)


def resolve_group_protocol(settings: KafkaSettings, timeout_s: float = _PROBE_S) -> GroupProtocol:
    """Returns the protocol that `kafka.group_protocol` means on this cluster. Raises KafkaUnavailable.

    `auto` is tried out: a consumer in a group of its own joins by KIP-848, and the brokers list the types
    of their groups. A version proves nothing, since the protocol can be switched off. On any failure the
    answer is `classic`, which works everywhere. The embedded cluster gets `classic` without a try: only so
    it finds new topics, and an unknown query aborts the process that asks.
    """
    if settings.group_protocol != "auto":
        return settings.group_protocol
    client = admin(settings)
    if is_embedded(client, timeout_s):
        return "classic"
    found = _probe(settings, client, timeout_s)
    log.info("group_protocol", protocol=found)
    return found


def _probe(settings: KafkaSettings, client: AdminClient, timeout_s: float) -> GroupProtocol:
    group = _PROBE_GROUP.format(settings.group_id)
    deadline = time.monotonic() + timeout_s
    alone = msgspec.structs.replace(settings, group_id=group, group_instance_id="")
    config = consumer_config(alone, "consumer")
    with closing(_client(Consumer, config, None, quiet=True)) as member:
        member.subscribe([_PROBE_TOPIC.format(settings.topic_prefix)])
        while _left(deadline):
            if _is_refused(member.poll(_PROBE_POLL_S)):
                return "classic"
            if _is_new_style(client, group):
                return "consumer"
    log.warning("group_protocol_unclear", after_s=timeout_s, taken="classic")
    return "classic"


def _is_refused(message: Message | None) -> bool:
    """Whether the poll gave a refusal: a broker without the protocol answers with a fatal error."""
    error = message.error() if message is not None else None
    return error is not None and (is_fatal(error) or error.code() == KafkaError.UNSUPPORTED_VERSION)


def _is_new_style(client: AdminClient, group: str) -> bool:
    """Whether the brokers list the group with the new type. Describing the group is no alternative:
    librdkafka 2.16 aborts the process if the coordinator dies meanwhile."""
    try:
        listed = client.list_consumer_groups(request_timeout=_ASK_S).result()
    except KafkaException:
        return False
    return any(g.group_id == group and g.type is ConsumerGroupType.CONSUMER for g in listed.valid)
