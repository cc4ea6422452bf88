"""What recovery tells of lines whose head holds others."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest

from idempotency.ledger import Claim, Settlement
from message.delivery import Delivery
from message.ids import new_token
from message.states import Event
from recovery.retry import line_watch
from recovery.service import Recovery
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, Ground, until

METRIC = "hongyan_recovery_behind"


def _line(ground: Ground, count: int, key: str = "k") -> list[Delivery]:
    """The first is in flight, the others stand behind it."""
    items = [ground._delivery(60_000, ordering_key=key) for _ in range(count)]
    claims = [Claim(item, new_token()) for item in items]
    for claim, answer in zip(claims, ground.ledger.claim(claims, "w1", ordered=True), strict=True):
        claim.delivery.token, claim.delivery.day = claim.token, answer.day
    return items


def _ordered_line(ground: Ground, key: str, behind: int) -> None:
    """A head in doubt, and rows behind it."""
    items = _line(ground, behind + 1, key)
    ground.ledger.settle([Settlement(items[0], Event.UNKNOWN, "timeout")], frozenset({LANE}))


def test_keys_held_for_a_minute_are_counted_once_measured(
    ground: MakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = ground(ordering="key")
    _ordered_line(one, "k1", 3)
    _ordered_line(one, "k2", 1)
    _ordered_line(one, "alone", 0)
    with one.recovery() as opened:
        lines, value = opened.recovery._parts.lines, opened.metrics.registry.get_sample_value
        assert value(METRIC, {"lane": LANE}) is None, "nobody measured"
        lines.count()
        assert value(METRIC, {"lane": LANE}) == 0, "held for a moment only"
        monkeypatch.setattr(line_watch, "HELD_MS", -1)
        lines.count()
        assert value(METRIC, {"lane": LANE}) == 2
        monkeypatch.setattr(opened.metrics.backlog, "_monotonic", lambda: float("inf"))
        assert value(METRIC, {"lane": LANE}) is None, "an old number"


def test_what_a_workers_settlement_woke_does_not_wait_for_the_poll(ground: MakeGround) -> None:
    one = ground(ordering="key")
    items = _line(one, 2)
    with one.recovery(poll_s=600.0) as opened:
        opened.recovery.start()
        one.ledger.settle([Settlement(items[0], Event.ACCEPTED)], frozenset({LANE}))
        one.await_states(SENT=2)


def test_a_lane_that_keeps_no_order_is_not_asked_about(ground: MakeGround) -> None:
    one = ground()
    one.waiting(1)
    with one.recovery() as opened:
        parts = opened.recovery._parts
        asked: list[object] = []
        parts.lines._rows = Mock(lanes_with_work=asked.append)
        parts.lines.look()
        assert asked == []


@pytest.fixture
def alone(ground: MakeGround, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Ground, Recovery]]:
    """A recovery of an ordered lane whose schedule and watch over lines look at nothing in time."""
    monkeypatch.setattr(line_watch, "QUICK_S", 600.0)
    one = ground(ordering="key")
    with one.recovery(poll_s=600.0) as opened:
        opened.recovery.start()
        yield one, opened.recovery


def test_what_recovery_sends_of_one_key_follows_at_once(alone: tuple[Ground, Recovery]) -> None:
    one, recovery = alone
    items = _line(one, 5)
    one.ledger.settle([Settlement(items[0], Event.NOT_SENT, "http_429")], frozenset({LANE}))
    recovery.resend(LANE)
    one.await_states(SENT=5, timeout_s=30)
    assert [r.key for r in one.provider.records() if r.accepted] == [i.key for i in items]


def test_what_follows_a_head_whose_time_is_over_goes_at_once(
    alone: tuple[Ground, Recovery],
) -> None:
    """Both were never called, so that one look cannot find the second."""
    one, recovery = alone
    head, behind = (one._delivery(ttl_ms, ordering_key="k") for ttl_ms in (300, 60_000))
    held = Claim(head, new_token(), Event.HOLD, "quiet_hours", 60_000)
    one.ledger.claim([held, Claim(behind, new_token())], "w1", ordered=True)
    until(lambda: one.ledger.recovering().lanes_with_work([LANE])[0])
    recovery.resend(LANE)
    one.await_states(EXPIRED=1, SENT=1, timeout_s=30)
