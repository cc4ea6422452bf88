"""When old days leave: by the policy in force, never by one that keeps too few, once for the fleet."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from backends.kafka.clients import KafkaUnavailable
from idempotency.archive.contract import Archived, NotAllowed
from policy.schema import DEFAULTS, LanePolicy, Policy
from recovery.archive_job import EVERY_S, Archiving

_MS_PER_DAY = 86_400_000


def keeping(days: int) -> Policy:
    """Every lane keeps so many days, and lives no longer."""
    lanes = {
        name: LanePolicy(retention_days=days, max_ttl_ms=_MS_PER_DAY, ttl_ms=_MS_PER_DAY)
        for name in DEFAULTS
    }
    return Policy(lanes=lanes)


class Shelf:
    """An archive that notes for how many days it was kept, day by day that leaves."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.keep_days = 0
        self.allowed = True
        self.there = [1]

    def finish(self) -> int:
        return 0

    def days(self, keep_days: int) -> list[int]:
        self.keep_days = keep_days
        return self.there

    def archive(self, day: int) -> Archived:
        self.asked.append(self.keep_days)
        if not self.allowed:
            raise NotAllowed("grant it")
        return Archived(day, 1, "there")


class Bench:
    def __init__(self, policy: Policy) -> None:
        self.shelf, self.now, self.mine = Shelf(), 0.0, True
        self.kept: int | None = 8
        shelf: Any = self.shelf
        self.archiving = Archiving(
            shelf,
            policy,
            hold=lambda duty, lease_ms: self.mine,
            stopping=lambda: False,
            monotonic=lambda: self.now,
            topic_days=self.topic_days,
        )

    def topic_days(self, _policy: Policy) -> int:
        if self.kept is None:
            raise KafkaUnavailable("Kafka did not answer")
        return self.kept

    def look(self) -> int:
        self.now += EVERY_S
        return self.archiving.run_once()


def test_the_days_are_those_of_the_policy_in_force() -> None:
    bench = Bench(keeping(90))
    assert bench.look() == 1
    bench.archiving.adopt(keeping(400))
    assert bench.look() == 1
    assert bench.shelf.asked == [90, 400]


def test_a_policy_that_keeps_too_few_days_archives_nothing_until_another_comes() -> None:
    bench = Bench(keeping(1))
    assert bench.look() == 0
    bench.archiving.adopt(keeping(90))
    assert bench.look() == 1
    bench.archiving.adopt(keeping(1))
    assert bench.look() == 0
    assert bench.shelf.asked == [90]


def test_it_looks_once_an_hour_and_only_where_the_duty_is_its_own() -> None:
    bench = Bench(keeping(90))
    bench.mine = False
    assert bench.look() == 0
    bench.mine = True
    assert bench.look() == 1
    assert bench.archiving.run_once() == 0


def test_what_the_database_does_not_allow_is_not_tried_again() -> None:
    bench = Bench(keeping(90))
    bench.shelf.allowed = False
    assert bench.look() == 0
    bench.archiving.adopt(keeping(400))
    assert bench.look() == 0
    assert bench.shelf.asked == [90]


def test_a_topic_that_is_kept_longer_keeps_the_ledger_longer() -> None:
    bench = Bench(keeping(90))
    bench.kept = 89
    assert bench.look() == 0
    bench.kept = 88
    assert bench.look() == 1


def test_while_kafka_cannot_say_how_long_it_keeps_topics_no_day_leaves() -> None:
    bench = Bench(keeping(90))
    bench.kept = None
    assert bench.look() == 0
    assert bench.shelf.asked == []
    bench.kept = 8
    assert bench.look() == 1


def test_without_a_day_to_let_go_the_broker_is_not_asked() -> None:
    bench = Bench(keeping(90))
    bench.shelf.there = []
    bench.kept = None
    with capture_logs() as said:
        assert bench.look() == 0
    assert said == []
