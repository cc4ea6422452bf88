"""A member that its group turns away, on scripted consumers. The same on real Kafka: tests/integration."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from dispatcher.kafka.group_member import SUSPECT_AFTER_S, GroupMember, MemberFenced
from tests.dispatcher.fakes import KafkaError, Message

IN_USE, INCONSISTENT, UNKNOWN = (
    "UNRELEASED_INSTANCE_ID",
    "INCONSISTENT_GROUP_PROTOCOL",
    "UNSUPPORTED_ASSIGNOR",
)


class Ground:
    """A group that answers each new consumer with the next of `answers`; empty: it lets it in."""

    def __init__(self, *answers: str, assignors: tuple[str, ...] = ("range", "")) -> None:
        self.time = 100.0
        self.answers = deque(answers)
        self.opened: list[tuple[float, str]] = []
        self.calls: list[str] = []
        self.member = GroupMember(
            self._open,
            assignors,
            epoch=lambda consumer: consumer.epoch,
            refusal=lambda error: str(error.name()),
            instance_id="worker-0",
            monotonic=lambda: self.time,
            sleep=self._sleep,
        )
        self.member.subscribe(["a"], on_refused=lambda: self.calls.append("refused"))

    def _open(self, assignor: str) -> Any:
        self.opened.append((self.time, assignor))
        return Answering(self, self.answers.popleft() if self.answers else "")

    def _sleep(self, seconds: float) -> None:
        self.time += seconds

    def poll_until(self, moment: float) -> None:
        while self.time < moment:
            assert self.member.poll(0.1) is None
            self.time += 0.1


class Answering:
    """A Consumer."""

    def __init__(self, ground: Ground, answer: str) -> None:
        self.ground = ground
        self.answer = answer
        self.epoch = 0 if answer else 1

    def subscribe(self, _topics: Any, **_: Any) -> None:
        self.ground.calls.append("subscribe")

    def poll(self, _timeout: float) -> Message | None:
        return Message(0, error=KafkaError(self.answer)) if self.answer else None

    def close(self) -> None:
        self.ground.calls.append("close")


def test_it_waits_for_its_instance_id_a_second_at_a_time_and_says_why() -> None:
    ground = Ground(IN_USE, IN_USE, IN_USE)
    ground.poll_until(102.0)
    assert "worker-0" in (ground.member.absence() or "")
    ground.poll_until(105.0)
    assert ground.member.absence() is None
    moments = [moment for moment, _ in ground.opened]
    assert len(moments) == 4, "it stayed with the one that was let in"
    assert all(1.0 <= b - a < 1.5 for a, b in pairwise(moments))


def test_what_it_held_is_let_go_before_the_refused_consumer_closes() -> None:
    ground = Ground(IN_USE)
    ground.poll_until(102.0)
    assert ground.calls == ["subscribe", "refused", "close", "subscribe"]


def test_an_id_that_is_never_released_is_told_as_one_that_a_live_worker_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ground = Ground(*[IN_USE] * 300)
    ground.poll_until(100.0 + SUSPECT_AFTER_S + 30)
    assert capsys.readouterr().out.count("instance_id_in_use") == 2, (
        "once, and once more as a suspicion"
    )


@pytest.mark.parametrize("code", [UNKNOWN, INCONSISTENT])
def test_an_assignor_that_is_refused_gives_way_to_the_next_at_once(code: str) -> None:
    ground = Ground(code)
    ground.poll_until(100.5)
    assert [assignor for _, assignor in ground.opened] == ["range", ""]
    assert ground.member.absence() is None


def test_a_group_that_refuses_every_assignor_is_asked_again_each_second() -> None:
    ground = Ground(*[INCONSISTENT] * 4)
    ground.poll_until(104.0)
    assert [assignor for _, assignor in ground.opened] == ["range", "", "range", "", "range"]
    assert ground.member.absence() is None


def test_a_member_whose_id_another_took_ends_and_says_what_to_do() -> None:
    ground = Ground("FENCED_INSTANCE_ID")
    with pytest.raises(MemberFenced, match="'worker-0'; give every worker one of its own"):
        ground.member.poll(0.1)


def test_other_errors_are_left_to_the_source() -> None:
    ground = Ground("_ALL_BROKERS_DOWN")
    message = ground.member.poll(0.1)
    assert message.error().name() == "_ALL_BROKERS_DOWN"
