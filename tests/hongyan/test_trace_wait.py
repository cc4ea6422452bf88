"""`hongyan trace --wait`: until every delivery that is known of has ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hongyan import trace_wait
from tests.hongyan.conftest import Run, make_ledger
from tracing.timeline import DeliveryStory, LedgerRow, Moment, Story


def story(*states: str, moments: int = 2) -> list[Story]:
    return [
        Story(
            message_id="m1",
            biz_id=None,
            lane="sms.notice",
            deliveries=[delivery(state, moments) for state in states],
        )
    ]


def delivery(state: str, moments: int) -> DeliveryStory:
    row = LedgerRow(
        delivery_key="k",
        message_id="m1",
        biz_id=None,
        lane="sms.notice",
        state=state,
        reason=None,
        attempt=1,
        owner="w",
        provider_id=None,
        created_at=1,
        updated_at=1,
        next_at=None,
        expires_at=9,
        policy_version="",
        resend_of=None,
    )
    happened = [Moment(at=1, what="claimed") for _ in range(moments)]
    return DeliveryStory(delivery_key="k", receiver="r", row=row, moments=happened)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("hongyan.trace_wait.time.monotonic", lambda: now[0])
    monkeypatch.setattr("hongyan.trace_wait.time.sleep", lambda s: now.__setitem__(0, now[0] + s))
    return now


def looks(*answers: list[Story]) -> Iterator[list[Story]]:
    yield from answers
    while True:
        yield answers[-1]


def test_it_waits_for_the_last_open_delivery(clock: list[float]) -> None:
    seen = looks([], story("IN_FLIGHT"), story("SENT", "UNKNOWN"), story("SENT", "REJECTED"))
    assert trace_wait.await_end(lambda: next(seen), 30) == story("SENT", "REJECTED")


@pytest.mark.parametrize("state", ["IN_FLIGHT", "RETRY", "UNKNOWN"])
def test_it_ends_at_its_time(clock: list[float], state: str) -> None:
    assert trace_wait.await_end(lambda: story(state), 5) == story(state)
    assert 105 <= clock[0] < 106


def test_it_gives_the_trace_a_moment_after_the_end(clock: list[float]) -> None:
    seen = looks(story("SENT", moments=1), story("SENT", moments=3))
    assert trace_wait.await_end(lambda: next(seen), 30) == story("SENT", moments=3)
    assert trace_wait.await_end(lambda: story("SENT", moments=1), 30) == story("SENT", moments=1)
    assert clock[0] < 104, "an archived trace is not waited for"


def test_a_wait_that_was_too_short_is_a_problem(hongyan: Run) -> None:
    make_ledger()
    ended = hongyan("trace", "order-1", "--wait", "0.1")
    assert ended.code == 1
    assert "nothing is known of 'order-1'" in ended.err
