"""How long a call may take: the lane's limit over HTTP, the protocol's own over SMTP."""

from __future__ import annotations

import pytest

from channels.accounts.time_limits import STEPS, Limits, limits_of
from channels.channel import Account
from message.vocabulary import LANES
from policy.schema import LanePolicy, Policy, SmtpPolicy

RFC_5321 = {"greeting": 300.0, "command": 300.0, "data": 180.0, "final": 600.0}
"""§4.5.3.2, in seconds; DATA's reply and the content's pieces share the longer of theirs."""


def of(endpoint: str, policy: LanePolicy) -> Limits:
    return limits_of(Account("a", "p", endpoint), policy)


def test_over_http_one_limit_covers_the_call() -> None:
    assert of("https://api.example.com", LanePolicy(timeout_ms=2_500)) == Limits(2.5)


@pytest.mark.parametrize("endpoint", ["smtp://mail.example.com", "smtps://mail.example.com:465"])
def test_over_smtp_no_built_in_limit_is_below_the_protocols(endpoint: str) -> None:
    for lane in LANES:
        total, steps = of(endpoint, Policy().of(lane))
        assert steps is not None
        assert set(steps) == set(STEPS)
        assert all(steps[step] >= seconds for step, seconds in RFC_5321.items())
        assert total - steps["final"] > RFC_5321["greeting"]


def test_a_lane_may_say_otherwise() -> None:
    policy = LanePolicy(timeout_ms=2_500, smtp=SmtpPolicy(final_ms=60_000, total_ms=90_000))
    total, steps = of("smtp://mail.example.com", policy)
    assert (total, (steps or {})["final"]) == (90.0, 60.0)
