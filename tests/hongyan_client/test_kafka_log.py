"""The log of an outage: one warning when it begins, one line when it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from hongyan_client.kafka_log import KafkaLog


class Error:
    def __init__(self, name: str) -> None:
        self._name = name

    def fatal(self) -> bool:
        return False

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return "text"


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    seen: list[logging.LogRecord] = []
    handler, logger = logging.Handler(), logging.getLogger("hongyan_client")
    handler.emit = seen.append  # type: ignore[assignment,method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield seen
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_an_outage_is_one_warning_and_its_end_one_line(lines: list[logging.LogRecord]) -> None:
    clock = Clock()
    kafka_log = KafkaLog(clock)
    kafka_log.acknowledged(7)
    for _ in range(120):
        kafka_log.error(Error("_TRANSPORT"))
        kafka_log.error(Error("_ALL_BROKERS_DOWN"))
        kafka_log.log(logging.ERROR, "%s [%s] %s", "FAIL", "client", "connection refused")
        kafka_log.acknowledged(7)
        clock.now += 0.5
    assert [line.levelname for line in lines] == ["WARNING"]
    kafka_log.acknowledged(8)
    kafka_log.acknowledged(9)
    assert [line.levelname for line in lines] == ["WARNING", "INFO"]
    assert lines[1].getMessage() == "kafka: it answers again after 60.0 s"


def test_a_second_outage_is_a_second_warning(lines: list[logging.LogRecord]) -> None:
    kafka_log = KafkaLog(Clock())
    for count in (1, 2):
        kafka_log.error(Error("_ALL_BROKERS_DOWN"))
        kafka_log.acknowledged(count)
    assert [line.levelname for line in lines] == ["WARNING", "INFO"] * 2


def test_one_broker_of_several_is_back_once_it_causes_no_more_errors(
    lines: list[logging.LogRecord],
) -> None:
    clock = Clock()
    kafka_log = KafkaLog(clock)
    kafka_log.error(Error("_TRANSPORT"))
    kafka_log.acknowledged(1)
    assert [line.levelname for line in lines] == ["WARNING"]
    clock.now += 36
    kafka_log.acknowledged(2)
    assert [line.levelname for line in lines] == ["WARNING", "INFO"]


def test_a_client_that_never_acknowledges_warns_of_the_next_outage(
    lines: list[logging.LogRecord],
) -> None:
    clock = Clock()
    kafka_log = KafkaLog(clock)
    kafka_log.error(Error("_TRANSPORT"))
    clock.now += 36
    kafka_log.error(Error("_TRANSPORT"))
    assert [line.levelname for line in lines] == ["WARNING", "WARNING"]


def test_other_lines_come_twice_a_minute_at_most(lines: list[logging.LogRecord]) -> None:
    clock = Clock()
    kafka_log = KafkaLog(clock)
    for seconds in (0, 29, 1):
        clock.now += seconds
        kafka_log.log(logging.WARNING, "%s [%s] %s", "CONFWARN", "client", "a property")
    assert len(lines) == 2


def test_a_property_for_consumers_is_not_told_and_another_wrong_one_is(
    lines: list[logging.LogRecord],
) -> None:
    kafka_log = KafkaLog()
    for properties in ({"fetch.wait.max.ms": 50}, {"socket.blocking.max.ms": 50}):
        Producer({"bootstrap.servers": "127.0.0.1:9", "logger": kafka_log, **properties}).poll(0)
    (told,) = [line.getMessage() for line in lines if "CONFWARN" in line.getMessage()]
    assert "socket.blocking.max.ms" in told
