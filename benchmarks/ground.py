"""What benchmarks stand on: a preloaded topic, providers, fresh databases, a worker's environment."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import redis
from confluent_kafka.cimpl import NewTopic

from backends.kafka import clients as kafka
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from idempotency.sql_ledger import upgrade
from message.envelope import Notification, encode
from message.ids import new_id
from message.vocabulary import Lane
from simulator import Faults, Lists, Simulator, spawn

LANE = Lane("webhook", "notice")
PARTITIONS = 4
_TTL_MS = 24 * 3_600_000


class Servers(msgspec.Struct, frozen=True):
    """Where the local stack is."""

    bootstrap: str
    database_url: str
    redis_url: str
    """A database of the benchmarks' own: it is emptied after each."""
    processes: Sequence[int] = ()
    """Their process ids."""


@contextmanager
def preloaded(
    servers: Servers, count: int, *, account: str | None = None, first: str | None = None
) -> Iterator[str]:
    """A topic prefix under which the lane's topic holds `count` notifications for `account`; the very
    first one is for account `first`, if that is given."""
    with topics(servers, [LANE]) as prefix:
        producer = kafka.producer(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
        for number in range(count):
            item = notification(number, first if first and not number else account)
            produce(producer, LANE.topic(prefix), item)
        producer.flush(60)
        yield prefix


@contextmanager
def topics(servers: Servers, lanes: Sequence[Lane], partitions: int = PARTITIONS) -> Iterator[str]:
    """A topic prefix under which the lanes' topics stand empty; they and the Redis keys go at the end."""
    prefix = f"bench{uuid.uuid4().hex[:8]}"
    admin = kafka.admin(KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix))
    names = [*(lane.topic(prefix) for lane in lanes), f"{prefix}.dead", f"{prefix}.trace"]
    for future in admin.create_topics([NewTopic(n, partitions, 1) for n in names]).values():
        future.result()
    try:
        yield prefix
    finally:
        for future in admin.delete_topics(names).values():
            future.result()
        with redis.Redis.from_url(servers.redis_url) as client:
            client.flushdb()


def produce(producer: Any, topic: str, item: Notification) -> None:
    """Hand one to the producer, as soon as it has room."""
    while True:
        try:
            producer.produce(topic, encode(item), item.kafka_key)
            return
        except BufferError:
            producer.poll(0.1)


def notification(number: int, account: str | None = None, lane: Lane = LANE) -> Notification:
    """One of ordinary size, about 380 bytes."""
    return Notification(
        id=new_id(),
        biz_id=f"order-{number}",
        channel=lane.channel,
        kind=lane.kind,
        receivers=[f"user-{number}"],
        account=account,
        content={"title": "您的订单已发货", "text": f"订单 {number} 预计明天送达，请注意查收。"},
        created_at=int(time.time() * 1000),
        ttl_ms=_TTL_MS,
        attributes={"source": "bench"},
    )


def with_key(item: Notification, ordering_key: str) -> Notification:
    """The same in a line."""
    return msgspec.structs.replace(item, ordering_key=ordering_key)


def provider_at(
    folder: Path, name: str, options: Mapping[str, Any] | None = None, **faults: Any
) -> Simulator:
    """Its ledger is written but not synced: what is measured is the client. `options`: of the simulator."""
    ledger, rules = str(folder / f"{name}.jsonl"), [Faults(**faults)]
    given = {"lists": Lists(status_query=True), **(options or {})}
    return spawn(folder, ledger=ledger, fsync=False, rules=rules, **given)


@contextmanager
def fresh_database(base_url: str, name: str, template: str = "template1") -> Iterator[str]:
    """A database of the run's own, migrated; a copy of `template`, to which nobody is connected."""
    with empty_database(base_url, name, template) as url:
        upgrade(Settings(database=DatabaseSettings(url=url)))
        yield url


@contextmanager
def empty_database(base_url: str, name: str, template: str = "template1") -> Iterator[str]:
    """A database of the run's own as `template` is, dropped at the end."""
    with psycopg.connect(base_url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        try:
            yield f"{base_url.rpartition('/')[0]}/{name}"
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def environment_for(
    servers: Servers,
    prefix: str,
    name: str,
    database_url: str,
    policy: Path,
    lanes: Sequence[Lane] = (LANE,),
) -> dict[str, str]:
    """What configures a worker (or a loop beside it); hongyan.toml stands beside the policy."""
    return os.environ | {
        "HONGYAN_CONFIG": str(policy.parent / "hongyan.toml"),
        "HONGYAN_POLICY__FILE": str(policy),
        "HONGYAN_KAFKA__BOOTSTRAP": servers.bootstrap,
        "HONGYAN_KAFKA__GROUP_ID": name,
        "HONGYAN_KAFKA__TOPIC_PREFIX": prefix,
        "HONGYAN_DATABASE__URL": database_url,
        "HONGYAN_REDIS__URL": servers.redis_url,
        "HONGYAN_REDIS__PREFIX": name,
        "HONGYAN_WORKER__LANES": ",".join(lane.name for lane in lanes),
        "HONGYAN_WORKER__HEALTH_ADDRESS": "127.0.0.1:0",
        "HONGYAN_LOG__LEVEL": "error",
    }
