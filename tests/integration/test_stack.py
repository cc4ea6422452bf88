"""The servers that all other integration tests stand on."""

import os

import psycopg
import redis
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.local.stack import Stack
from tests.harness.waiting import await_


def test_every_server_of_the_stack_runs(stack: Stack) -> None:
    assert {status.state for status in stack.status()} == {"running"}


def test_database_is_empty_and_durable(database: str) -> None:
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_stat_user_tables").fetchone()
        settings = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        ).fetchone()
    assert tables == (0,)
    fsync = "off" if os.environ.get("HONGYAN_STACK_FSYNC") == "off" else "on"
    assert settings == (fsync, "on")


def test_redis_database_is_empty(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


def test_brokers_create_no_topic_by_themselves(kafka_bootstrap: str, topic_prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    name = f"{topic_prefix}.seen"
    assert admin.list_topics(name, timeout=10).topics[name].error is not None
    admin.create_topics([NewTopic(name, 1)])[name].result()
    # The controller answers first; what the broker tells of its topics follows a moment later.
    await_(lambda: admin.list_topics(name, timeout=10).topics[name].error is None)
