"""What tests that break servers rely on."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
import pytest

from deploy.local import probe
from deploy.local.stack import Stack

Private = Callable[..., AbstractContextManager[Stack]]


@pytest.mark.soak(small="::test_committed_rows_outlive_an_immediate_stop")
def test_each_server_comes_back_after_it_was_killed(private_stack: Private) -> None:
    with private_stack() as stack:
        for name in stack.names:
            stack.kill(name)
            assert not stack.running(name)
            stack.start(name)
        assert {status.state for status in stack.status()} == {"running"}


def test_committed_rows_outlive_an_immediate_stop(private_stack: Private) -> None:
    with private_stack(only=["postgres"]) as stack:
        url = stack.database_url.replace("+psycopg", "")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS n")
        stack.kill("postgres")
        stack.start("postgres")
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT n FROM kept").fetchone() == (1,)


def test_a_paused_server_keeps_its_connections_and_answers_nothing(private_stack: Private) -> None:
    with private_stack(only=["redis"]) as stack:
        stack.pause("redis")
        assert probe.port_open(stack.layout.redis_port)
        assert not probe.redis_answers(stack.layout.redis_port)
        stack.resume("redis")
        assert probe.redis_answers(stack.layout.redis_port)


@pytest.mark.soak(small="::test_committed_rows_outlive_an_immediate_stop")
def test_nothing_of_a_private_stack_is_left(private_stack: Private) -> None:
    with private_stack() as stack:
        pids = [stack.pid(name) for name in stack.names]
    assert not stack.layout.root.exists()
    assert pids
    assert not any(stack.running(name) for name in stack.names)


@pytest.mark.timeout(240)
@pytest.mark.soak(small="::test_committed_rows_outlive_an_immediate_stop")
def test_three_brokers_go_on_without_one(private_stack: Private) -> None:
    with private_stack(brokers=3, only=["kafka-1", "kafka-2", "kafka-3"]) as stack:
        stack.kill("kafka-2")
        assert probe.kafka_brokers(stack.layout.kafka_port(1))
        stack.start("kafka-2")
        assert probe.kafka_brokers(stack.layout.kafka_port(3)) == {1, 2, 3}
