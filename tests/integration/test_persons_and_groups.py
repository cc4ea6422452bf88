"""A real worker and a real recovery: one lane with applications and robots, which fail one after the other.

The judge is the provider's own book. Its one robot that works is in the group `ops`: whatever a robot
accepted was told to `ops`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from message.envelope import Notification
from simulator import Faults, Simulator
from tests.conformance.samples import sample
from tests.harness import Fleet, await_, notification
from tests.harness.simulators import spawn

MakeFleet = Callable[..., Fleet]
CODES, NOTICES = "wecom.verification", "wecom.notice"
WAITING = {"RETRY", "PARKED"}
SWITCHED_OFF = "60020"
"""WeCom's code for an application whose address is not on its list: the account is why nothing was sent."""


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[Simulator]:
    with spawn(tmp_path, fsync=False) as started:
        yield started


def table(provider: str, at: Simulator, **options: Any) -> dict[str, Any]:
    one = sample(provider)
    assert one is not None
    here = {"provider": provider, "endpoint": f"{at.url}/{provider}"}
    return {**one.account_table, **here, **options}


def code_for(*receivers: str, **changes: Any) -> Notification:
    return notification(CODES, receivers=list(receivers), content={"text": "4711"}, **changes)


def booked(provider: Simulator) -> dict[str, Counter[str]]:
    """What the provider accepted: by protocol, whom it was for. A robot's group has no name there."""
    book: dict[str, Counter[str]] = {"wecom": Counter(), "wecom_robot": Counter()}
    for record in provider.records():
        if record.accepted:
            book[record.protocol][record.receiver] += 1
    return book


def test_no_persons_code_reaches_a_group_nor_a_groups_message_another_group(
    fleet: MakeFleet, provider: Simulator
) -> None:
    retry = {"immediate": 1, "base_ms": 100, "cap_ms": 300, "attempts": 1_000}
    nowhere = "http://127.0.0.1:1/wecom"
    one = fleet(
        lanes=[CODES, NOTICES],
        policy={
            CODES: {"accounts": ["app", "app-2", "ops-gone", "ops", "sales"]},
            NOTICES: {
                "accounts": {"app-away": 3, "app-away-2": 0, "ops": 1, "ops-gone": 0},
                "retry": retry,
                "breaker": {"open_ms": 100, "max_open_ms": 200},
            },
        },
        provider=provider,
        accounts={
            "app": table("wecom", provider),
            "app-2": table("wecom", provider),
            "app-away": table("wecom", provider, agentid=7, endpoint=nowhere),
            "app-away-2": table("wecom", provider, agentid=8, endpoint=nowhere),
            "ops-gone": table("wecom_robot", provider, group="ops", key="of-a-robot-that-is-gone"),
            "ops": table("wecom_robot", provider, group="ops"),
            "sales": table("wecom_robot", provider, group="sales", key="of-another-that-is-gone"),
        },
    )
    one.worker().wait_ready()
    one.recovery()
    members = [f"li{number}" for number in range(12)]
    one.send([code_for(*members), *(code_for("group:ops") for _ in range(4))])
    one.send([code_for("group:nobodys", "ops", "li12")])
    one.send([code_for("li13", account="ops"), code_for("group:ops", account="sales")])
    one.await_states(SENT=12 + 4 + 2, REJECTED=3)
    assert one.books.reasons("REJECTED") == {"wrong_group": 2, "wrong_receiver": 1}
    told = {"wecom": Counter([*members, "li12", "ops"]), "wecom_robot": Counter(group=4)}
    assert booked(provider) == told

    # Every application of the other lane is away, and its robots are not: worker and recovery try again.
    away = notification(NOTICES, receivers=[f"wang{number}" for number in range(6)])
    one.send([away, *(notification(NOTICES, receivers=["group:ops"]) for _ in range(3))])
    await_(
        lambda: [row.attempt > 4 for row in one.books.of_message(away.id)] == [True] * 6,
        what="each was tried several times",
    )
    told["wecom_robot"]["group"] += 3
    await_(lambda: booked(provider) == told, what="the group has what is for it")

    # Every application is halted, and the robot of a group is gone: no other account takes over.
    provider.control(rules=[Faults(path="/wecom/", codes={SWITCHED_OFF: 1.0})])
    halted = [code_for(*(f"zhao{number}" for number in range(6))), code_for("group:sales")]
    one.send(halted)

    def waiting() -> bool:
        states = [row.state for each in halted for row in one.books.of_message(each.id)]
        return len(states) == 7 and set(states) <= WAITING

    await_(waiting, what="all of them wait")
    assert booked(provider) == told
