"""The leak takes events out of the trace and nothing else: numbers, ends and acknowledgements stay."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.spark_jobs.truth.trace_books import countable, lives_of, removed_in
from tests.spark_jobs.truth.trace_leak import UNTRACED, Leak, Order
from tracing.record_headers import record_headers

LIFE = "worker-a/0123456789abcdef"


class Message:
    """A record as a consumer gives it."""

    def __init__(self, value: bytes, headers: Sequence[tuple[str, bytes]]) -> None:
        self._value, self._headers = value, list(headers)

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers


class Broker:
    """A producer that keeps what it is given, and acknowledges it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def produce(
        self, topic: str, value: bytes, headers: Any = (), on_delivery: Any = None, **named: Any
    ) -> None:
        assert topic == "trace"
        self.messages.append(Message(value, headers))
        if on_delivery is not None:
            on_delivery(None, None)


def events(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"stage": "settled", "delivery_key": f"k{number}", "state": "SENT"}
        for number in range(first, first + count)
    ]


class Wired:
    """A leak before a broker."""

    def __init__(self, folder: Path, share: float, seed: int) -> None:
        self.broker, self.acknowledged = Broker(), 0
        self._folder = folder
        self._leak = Leak(self.broker, Order(folder=str(folder), share=share, seed=seed))

    def write(self, some: list[dict[str, Any]], first: int, *, end: bool = False) -> None:
        headers = record_headers(LIFE, first, 0, end=end)
        self._leak.produce("trace", json.dumps(some).encode(), headers, self._count)

    def _count(self, *_answer: Any) -> None:
        self.acknowledged += 1

    def keys(self) -> Iterator[str]:
        for message in self.broker.messages:
            yield from (one["delivery_key"] for one in json.loads(message.value()))

    def balance(self) -> tuple[int, int]:
        """(missing by the records alone, countable in the book)."""
        lives = lives_of(self.broker.messages)
        missing = sum(life.missing for life in lives.values())
        return missing, countable(removed_in(self._folder), lives)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("killed", [False, True])
def test_missing_numbers_are_the_removed_events(tmp_path: Path, seed: int, killed: bool) -> None:
    wired = Wired(tmp_path, 0.4, seed)
    for number in range(8):
        wired.write(events(5, number * 5), number * 5, end=number == 7 and not killed)
    missing, taken = wired.balance()
    removed = {one.key for one in removed_in(tmp_path)}
    assert missing == taken
    assert missing > 0
    assert {*wired.keys()} | removed == {f"k{number}" for number in range(40)}
    assert not {*wired.keys()} & removed
    assert wired.acknowledged == 8
    if not killed:
        assert missing == len(removed)


def test_a_whole_record_may_vanish_and_is_acknowledged_all_the_same(tmp_path: Path) -> None:
    wired = Wired(tmp_path, 1.0, 1)
    wired.write(events(3), 0)
    assert wired.broker.messages == []
    assert wired.acknowledged == 1


def test_a_life_keeps_its_end_when_its_last_events_vanish(tmp_path: Path) -> None:
    wired = Wired(tmp_path, 1.0, 1)
    wired.write(events(3), 0, end=True)
    (life,) = lives_of(wired.broker.messages).values()
    assert (life.ended_at, life.missing) == (3, 3)


def test_every_event_of_an_untraced_notification_vanishes(tmp_path: Path) -> None:
    wired = Wired(tmp_path, 0.0, 1)
    some = events(3)
    some[1]["biz_id"] = UNTRACED
    wired.write(some, 0)
    assert list(wired.keys()) == ["k0", "k2"]
