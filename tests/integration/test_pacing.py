"""`hongyan bench pacing` in small: bursts at providers that only say "slower"."""

from __future__ import annotations

import pytest

from benchmarks.ground import Servers
from benchmarks.pacing import bursts, measure
from deploy.local.stack import Stack


@pytest.mark.parametrize("place", [0, 1], ids=["silent", "resend"])
@pytest.mark.soak(cases="silent")
def test_nothing_is_parked_where_the_provider_only_says_slower(
    stack: Stack, redis_url: str, place: int
) -> None:
    burst = bursts(notices=150, silence_s=2.0, mails=8)[place]
    report = measure(Servers(stack.bootstrap, stack.database_url, redis_url), [burst])
    assert all(ratio["holds"] for ratio in report["ratios"]), report
