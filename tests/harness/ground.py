"""What a fleet stands on: an own database, an own Redis database and own topics on servers that run.

with ground_on(stack) as ground:      everything fresh, everything gone at the end
    ...
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.local.redis_server import DATABASES
from deploy.local.stack import Stack
from tests.harness.databases import fresh_ledger

_RESERVED_S = 900
_ASK_S = 10.0


@dataclass(frozen=True)
class Ground:
    """Addresses, and names that nobody else uses."""

    bootstrap: str
    database_url: str
    """An upgraded ledger."""
    redis_url: str
    """Empty: no pre-filter."""
    topic_prefix: str


@contextmanager
def ground_on(stack: Stack, *, with_redis: bool = True) -> Iterator[Ground]:
    """Fresh names on a running stack. Servers that are dead at the end are left as they are."""
    with ExitStack() as held:
        yield Ground(
            bootstrap=stack.bootstrap,
            database_url=held.enter_context(fresh_ledger(stack.database_url)),
            redis_url=held.enter_context(fresh_redis(stack.redis_url)) if with_redis else "",
            topic_prefix=held.enter_context(fresh_topics(stack.bootstrap)),
        )


@contextmanager
def fresh_redis(server_url: str) -> Iterator[str]:
    """The URL of an empty Redis database that no other run uses meanwhile."""
    base = server_url.rpartition("/")[0]
    with redis.Redis.from_url(f"{base}/0") as register:
        number = _reserve(register)
        url = f"{base}/{number}"
        try:
            _flush(url)
            yield url
            _flush(url)
            register.delete(_key(number))
        except redis.ConnectionError:
            pass  # a test stopped the server: nothing is left of it


@contextmanager
def fresh_topics(bootstrap: str) -> Iterator[str]:
    """A prefix for `kafka.topic_prefix`; topics that begin with it are deleted afterwards."""
    prefix = f"t{uuid.uuid4().hex[:10]}"
    yield prefix
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        there = [name for name in admin.list_topics(timeout=2).topics if name.startswith(prefix)]
    except KafkaException:
        return  # a test stopped the brokers: their data goes with their folder
    if there:
        for done in admin.delete_topics(there, operation_timeout=_ASK_S).values():
            done.exception()


def _flush(url: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.flushdb()


def _reserve(register: redis.Redis) -> int:
    for number in range(1, DATABASES):
        if register.set(_key(number), "1", nx=True, ex=_RESERVED_S):
            return number
    raise RuntimeError("every database of the test Redis is taken; run `make down` and try again.")


def _key(number: int) -> str:
    return f"hongyan-tests:database:{number}"
