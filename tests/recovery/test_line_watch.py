"""What recovery tells of lines whose head holds others."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from idempotency.ledger import Claim, Settlement
from message.ids import new_token
from message.states import Event
from recovery import line_watch
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, Ground

METRIC = "hongyan_recovery_behind"


def _ordered_line(ground: Ground, key: str, behind: int) -> None:
    """A head in doubt, and rows behind it."""
    items = [ground._delivery(60_000, ordering_key=key) for _ in range(behind + 1)]
    claims = [Claim(item, new_token()) for item in items]
    for claim, answer in zip(claims, ground.ledger.claim(claims, "w1", ordered=True), strict=True):
        claim.delivery.token, claim.delivery.day = claim.token, answer.day
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
    items = [one._delivery(60_000, ordering_key="k") for _ in range(2)]
    claims = [Claim(item, new_token()) for item in items]
    for claim, answer in zip(claims, one.ledger.claim(claims, "w1", ordered=True), strict=True):
        claim.delivery.token, claim.delivery.day = claim.token, answer.day
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
