"""Retries that end close together share a commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from recovery.retry import settler
from recovery.retry.pool import RetryWork
from recovery.retry.settler import SETTLE_BATCH, RetrySettler
from sending.runtime.clock import Clock


class Recording(RetrySettler):
    """Keeps its batches instead of writing them."""

    def __init__(self, finished: SimpleQueue[RetryWork | None], under_way: int) -> None:
        kind = SimpleNamespace(pools={"sms.notice": SimpleNamespace(unsettled=under_way)})
        idle = SimpleNamespace(pools={"sms.notice": SimpleNamespace(unsettled=0)})
        context: Any = SimpleNamespace(clock=Clock(), retries=kind, releases=idle)
        super().__init__(context, finished)
        self.batches: list[list[Any]] = []

    def settle(self, batch: Sequence[RetryWork]) -> None:
        self.batches.append(list(batch))


def settled(
    monkeypatch: pytest.MonkeyPatch,
    under_way: int,
    *queued: Any,
    meanwhile: Callable[[SimpleQueue[Any]], None] | None = None,
) -> list[list[Any]]:
    """Returns the batches of a settler whose queue gets `queued`, and `meanwhile` as it lingers first."""
    finished: SimpleQueue[Any] = SimpleQueue()
    for item in queued:
        finished.put(item)
    left = [meanwhile]

    def linger(seconds: float) -> None:
        assert seconds == settler.LINGER_S
        act = left.pop() if left else None
        if act is not None:
            act(finished)

    monkeypatch.setattr("recovery.retry.settler.time.sleep", linger)
    recording = Recording(finished, under_way)
    recording.settle_forever()
    return recording.batches


def test_retries_that_end_while_one_lingers_share_its_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def others_end(finished: SimpleQueue[Any]) -> None:
        for item in ("second", "third", None):
            finished.put(item)

    assert settled(monkeypatch, 3, "first", meanwhile=others_end) == [["first", "second", "third"]]


def test_nothing_lingers_when_nothing_else_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: SimpleQueue[Any]) -> None:
        raise AssertionError("it lingered for nothing")

    assert settled(monkeypatch, 1, "only", None, meanwhile=never) == [["only"]]


def test_the_end_of_the_queue_is_seen_while_a_batch_lingers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settled(monkeypatch, 9, "first", meanwhile=lambda queue: queue.put(None)) == [["first"]]


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = settled(monkeypatch, 0, *range(SETTLE_BATCH + 5), None)
    assert [len(batch) for batch in batches] == [SETTLE_BATCH, 5]
