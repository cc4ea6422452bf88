"""`make faults` in small: four adapters of different nature, every fifth call of them failing."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.stack import Stack
from tests.chaos.faults_plan import Extent
from tests.chaos.faults_run import faults_on

ADAPTERS = ("tencent_sms", "feishu", "resend", "smtp")
"""Many receivers a call, and a list that shows nothing by default; a window and a token; a window on the
key; nothing at all."""
PROOFS = {"tencent_sms": "", "feishu": "window", "resend": "window", "smtp": ""}
MESSAGES = 200


@pytest.mark.timeout(400)
@pytest.mark.soak(
    small="tests/conformance/test_bad_times.py::test_only_the_providers_own_whole_answer_is_an_acceptance"
)
def test_what_fails_at_the_provider_ends_as_both_ledgers_say(stack: Stack, tmp_path: Path) -> None:
    extent = Extent(messages=MESSAGES, seed=7, only=ADAPTERS, patience_ms=1_000)
    with faults_on(stack, extent, tmp_path, print, threads=4) as run:
        found = run.run(workers=1)
    problems = [*run.troubles, *(problem for one in found for problem in one.problems)]
    assert not problems, "\n".join(problems[:20])
    for one in found:
        assert one.deliveries == MESSAGES
        # A run in which nothing went wrong would prove nothing.
        assert one.doubted > MESSAGES * 0.05
        assert one.retried or not one.proof
    assert sum(one.doubled for one in found if one.proof) == 0
    assert {one.provider: one.proof for one in found} == PROOFS
    for unproven in (one for one in found if not one.proof):
        assert unproven.parked > 0
        assert unproven.resent > 0
