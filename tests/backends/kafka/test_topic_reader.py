"""Reading a topic while the leaders of its partitions are being elected."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from backends.kafka import topic_reader
from backends.kafka.clients import KafkaUnavailable
from backends.settings import KafkaSettings


class Reader:
    """A consumer of one partition, whose broker gives these answers to the question for its bounds."""

    def __init__(self, *answers: int) -> None:
        self.answers = iter(answers)

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, _place: Any, timeout: float) -> tuple[int, int]:
        if code := next(self.answers):
            raise KafkaException(KafkaError(code))
        return 3, 7

    def close(self) -> None:
        pass


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[int, int]]:
    """Asks for the ends of a topic whose broker answers so."""
    monkeypatch.setattr(topic_reader, "_PAUSE_S", 0.001)
    monkeypatch.setattr(topic_reader, "_ELECTION_S", 0.1)

    def ask(*answers: int) -> dict[int, int]:
        monkeypatch.setattr(topic_reader, "consumer", lambda *_a, **_k: Reader(*answers))
        return topic_reader.ends_of(KafkaSettings(), "t")

    return ask


def test_a_leader_that_is_being_elected_is_waited_for(ends: Callable[..., dict[int, int]]) -> None:
    election = KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE
    assert ends(*election, 0) == {0: 7}


def test_an_election_without_an_end_is_told(ends: Callable[..., dict[int, int]]) -> None:
    with pytest.raises(KafkaUnavailable, match=r"t cannot be read \(.*[Ll]eader"):
        ends(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 10_000)


def test_another_error_is_told_at_once(ends: Callable[..., dict[int, int]]) -> None:
    with pytest.raises(KafkaUnavailable, match="t cannot be read"):
        ends(KafkaError.TOPIC_AUTHORIZATION_FAILED, 0)
