"""Repeats of calls that several deliveries shared, to a provider that knows a call by its whole body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec
import pytest

from channels.channel import Call
from idempotency.recovery.contract import Transition, UnknownDelivery
from message.delivery import Delivery
from message.outcomes import Accepted, AnyOutcome, NotSent, Rejected, Unknown
from message.states import Event, State
from policy.schema import Guarantee
from tests.idempotency.making import World, claimed, delivery, settle
from tests.recovery.retry.test_stage import LANE, WINDOW_MS, Deduping, Line

TIMEOUT_MS = 1_000
"""The line's."""
MARGIN_MS = WINDOW_MS // 10
"""Of the window, not relied on."""


class Whole(Deduping):
    """As WeCom: the receivers are part of what it compares."""

    max_batch: ClassVar[int] = 10

    def fingerprint(self, call: Call) -> str:
        return f"{self.body}:{call.key}:{sorted(d.receiver for d in call.deliveries)}"


@pytest.fixture(params=[Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE])
def line(world: World, request: pytest.FixtureRequest) -> Iterator[Line]:
    line = Line(world, request.param, Whole())
    yield line
    line.callers.close()


@pytest.fixture
def items(line: Line) -> list[Delivery]:
    """Three of one call, whose answer was lost; nobody of the worker writes any more."""
    items = [delivery(receivers=[f"user-{n}"]) for n in range(3)]
    for item in items:
        item.account, item.call_key = "a", items[0].key
        item.call_digest = f"one:{items[0].key}:{sorted(i.receiver for i in items)}"
    made = claimed(line.ledger, *items)
    for item in made:
        settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(TIMEOUT_MS)
    return made


def look(line: Line, *answers: AnyOutcome) -> None:
    line.provider.answers = list(answers)
    line.resolving.run_once(LANE)


def states(line: Line, items: list[Delivery]) -> list[str]:
    return [line.row(item)[0] for item in items]


def test_the_very_call_is_made_once_more_for_all_of_it(line: Line, items: list[Delivery]) -> None:
    look(line, Accepted("p-1"))
    assert states(line, items) == ["SENT"] * 3
    assert line.provider.counted == {("a", items[0].key): 3}


def test_a_paused_lane_repeats_no_call(line: Line, items: list[Delivery]) -> None:
    """A person who pauses a lane wants no receiver to get anything of it."""
    line.callers.pause(True)
    look(line)
    assert (states(line, items), line.provider.calls) == (["UNKNOWN"] * 3, [])
    line.callers.pause(False)
    line.world.advance(60_000 // 3)
    look(line, Accepted("p-1"))
    assert states(line, items) == ["SENT"] * 3


def test_what_is_still_in_doubt_is_repeated_later(line: Line, items: list[Delivery]) -> None:
    look(line, Unknown("timeout"))
    assert states(line, items) == ["UNKNOWN"] * 3
    line.world.advance(2_000)
    look(line, Accepted("p-1"))
    assert states(line, items) == ["SENT"] * 3


@pytest.mark.parametrize("answer", [NotSent("busy"), Rejected("gone")], ids=repr)
def test_a_call_that_is_refused_says_nothing_of_the_first(
    line: Line, items: list[Delivery], answer: NotSent | Rejected
) -> None:
    look(line, answer)
    assert states(line, items) == ["UNKNOWN"] * 3
    assert len(line.provider.calls) == 1


def test_it_waits_until_all_of_the_call_can_be_here(world: World) -> None:
    line = Line(world, Guarantee.AT_LEAST_ONCE, Whole())
    one = delivery()
    one.account, one.call_key, one.call_digest = "a", "c" * 32, "another"
    (item,) = claimed(line.ledger, one)
    settle(line.ledger, item, Event.UNKNOWN, reason="timeout")
    line.world.advance(TIMEOUT_MS - 1)
    look(line)
    assert (line.row(item)[0], line.provider.calls) == ("UNKNOWN", [])
    line.callers.close()


def test_without_one_of_them_it_is_another_call_and_the_policy_decides(
    line: Line, items: list[Delivery]
) -> None:
    gone = next(d for d in line.rows.doubts(LANE, 0) if d.delivery.key == items[0].key)
    line.rows.move([_sent(gone)])
    line.world.advance(1)
    look(line)
    assert line.provider.calls == []
    assert set(states(line, items[1:])) <= {"RETRY", "PARKED"}
    assert {line.row(item)[1] for item in items[1:]} == {"unproven"}


def test_with_another_text_it_is_another_call(line: Line, items: list[Delivery]) -> None:
    line.channel.body = "two"
    look(line)
    assert line.provider.calls == []
    assert {line.row(item)[1] for item in items} == {"unproven"}


def test_where_its_adapter_cannot_word_it_any_more_the_policy_decides(
    line: Line, items: list[Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(_: Call) -> str:
        raise ValueError("no form for this provider")

    monkeypatch.setattr(line.channel, "fingerprint", fingerprint)
    look(line)
    assert line.provider.calls == []
    assert {line.row(item)[1] for item in items} == {"unproven"}


def test_once_its_window_is_over_the_policy_decides(line: Line, items: list[Delivery]) -> None:
    line.world.advance(WINDOW_MS - MARGIN_MS - 2 * TIMEOUT_MS)
    look(line, *[Accepted("p-1")] * 3)
    assert line.provider.calls == []
    assert "SENT" not in states(line, items)


def test_past_its_horizon_it_is_not_made(line: Line, items: list[Delivery]) -> None:
    retry = msgspec.structs.replace(line.lane.policy.retry, horizon_ms=TIMEOUT_MS)
    line.lane.policy = msgspec.structs.replace(line.lane.policy, retry=retry)
    look(line)
    assert line.provider.calls == []
    assert states(line, items) == ["PARKED"] * 3


def test_it_is_not_made_while_its_account_may_not_send(line: Line, items: list[Delivery]) -> None:
    for _ in range(200):
        line.limits.record(line.limits._routes["a"].account, [Unknown("timeout")])
    look(line)
    assert (line.provider.calls, states(line, items)) == ([], ["UNKNOWN"] * 3)


def _sent(doubt: UnknownDelivery) -> Transition:
    one = doubt.delivery
    return Transition(
        one.key, one.day, doubt.version, State.UNKNOWN, Event.RESOLVED_SENT, None, "p-1"
    )
