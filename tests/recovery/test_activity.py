"""A recovery counts among those who share an account's rate only while it sends."""

from __future__ import annotations

import pytest

from message.states import State
from recovery import activity
from recovery.activity import Sending
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, until


def test_a_recovery_is_idle_until_it_sends_and_half_a_minute_after() -> None:
    now = [100.0]
    sending = Sending(lambda: now[0])
    assert sending.idle()
    assert sending.note(), "it was idle until now"
    assert not sending.note()
    now[0] += activity.IDLE_AFTER_S
    assert not sending.idle()
    now[0] += 0.1
    assert sending.idle()


def test_the_fleet_counts_a_recovery_while_it_sends(
    ground: MakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "IDLE_AFTER_S", 3.0)
    one = ground()

    def counted() -> bool:
        return frozenset({LANE}) in one.ledger.sending_lanes()

    with one.recovery(lease_s=6.0) as opened:
        recovery = opened.recovery
        recovery.start()
        until(lambda: not counted())
        assert frozenset({LANE}) in one.ledger.live_lanes()
        one.waiting(1)
        recovery.resend(LANE)
        until(counted)
        one.await_states(**{State.SENT.value: 1})
        until(lambda: not counted())
