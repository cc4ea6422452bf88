"""A recovery with announced lanes: it needs the settings, follows the policy, and publishes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from backends.settings import KafkaSettings, OutcomeSettings, SettingsError
from idempotency.ledger import Settlement
from message.states import Event
from recovery.outcomes.topic import OutcomeTopic
from tests.recovery.conftest import MakeGround
from tests.recovery.ground import LANE, Ground, until
from tests.recovery.test_policy import apply, await_followed, started

KEY = "k" * 32


def with_outcomes(ground: Ground, **outcomes: Any) -> Ground:
    ground.settings = msgspec.structs.replace(
        ground.settings,
        outcomes=OutcomeSettings(**outcomes),
        kafka=KafkaSettings(bootstrap="127.0.0.1:9"),
    )
    return ground


def test_without_the_hash_key_a_policy_with_outcomes_is_no_start(ground: MakeGround) -> None:
    one = ground(outcomes="topic")
    with (
        pytest.raises(SettingsError, match="set HONGYAN_OUTCOMES__HASH_KEY"),
        one.recovery(),
    ):
        pass


def test_a_running_recovery_refuses_such_a_policy_and_goes_on(ground: MakeGround) -> None:
    one = ground()
    with started(one) as opened:
        version = apply(one, outcomes="topic")
        watch = opened.recovery._parts.watch
        until(lambda: watch.seen == version.number)
        assert watch.refused


def test_it_announces_and_publishes_what_it_ends_under_the_policy_in_force(
    ground: MakeGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[Any] = []

    def publish(_self: object, events: Any) -> set[int]:
        published.extend(one.event for one in events)
        return {one.batch for one in events}

    monkeypatch.setattr(OutcomeTopic, "publish", publish)
    one = with_outcomes(ground(), hash_key=KEY)
    with started(one) as opened:
        await_followed(opened, apply(one, outcomes="topic"))
        (waiting,) = one.waiting()
        until(lambda: opened.recovery.resend(LANE) or one.accepted())
        one.ledger.announced.follow({LANE: "topic"})  # as a worker's
        (sent,) = one.claimed()
        assert one.ledger.settle([Settlement(sent, Event.ACCEPTED)]) == [True]
        until(lambda: len(published) == 2)
    assert {event.delivery_key for event in published} == {waiting.key, sent.key}
    assert {event.state for event in published} == {"SENT"}
