"""Processes of `hongyan lookback` killed at random moments: no committed message is missing."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from message.lookback import (
    LookbackRecord,
)
from tests.harness.waiting import await_
from tests.lookback.service import Business, committed, opened_business


@pytest.fixture
def business(
    topic_prefix: str, kafka_bootstrap: str, ledger_database: str, tmp_path: Path
) -> Iterator[Business]:
    with opened_business(topic_prefix, kafka_bootstrap, ledger_database, tmp_path) as business:
        yield business


@pytest.mark.chaos
@pytest.mark.timeout(400)
def test_killed_at_random_moments_nothing_committed_is_missing(business: Business) -> None:
    """Kills two processes while they take, check and forward."""
    records: list[LookbackRecord] = []
    wanted = set()
    for number in range(60):
        one = business.prepare(f"b{number}")
        records += [one, committed(one)] if number % 3 else [one]
        if number % 3 or number % 2:
            wanted.add(one.biz_id.encode())
        business.states[one.biz_id] = "COMMIT" if one.biz_id.encode() in wanted else "ROLLBACK"
    for part in range(3):
        with business.running(), business.running():
            business.send(*records[part::3])
            arrived = len({message.key() for message in business.arrived()})
            await_(partial(_more_than, business, arrived), what="some more messages")
    with business.running():
        await_(lambda: {m.key() for m in business.arrived()} == wanted, what="all committed ones")
        await_(
            lambda: all(business.state(f"b{n}") == "ROLLED_BACK" for n in range(0, 60, 6)),
            what="the rolled-back ones",
        )
    assert {message.key() for message in business.arrived()} == wanted


def _more_than(business: Business, arrived: int) -> bool:
    return len({message.key() for message in business.arrived()}) > arrived
