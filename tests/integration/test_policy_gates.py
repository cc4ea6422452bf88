"""Gates in real workers: what is held lies in the ledger, what is dropped says why, and what was refused
gives its place back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from simulator import Faults
from tests.harness import LANE, Fleet, await_, notification, notifications
from tests.harness.notifications import now_ms

MakeFleet = Callable[..., Fleet]
MINUTE_MS = 60_000
CAP = {"limits": [{"most": 3, "span_ms": 600_000}]}
DEDUP = {"window_ms": 600_000}


def quiet_now(**more: Any) -> dict[str, Any]:
    """Quiet hours from an hour ago until two hours from now, to the minute."""
    now = datetime.now(UTC)
    begin, end = (f"{now + timedelta(hours=h):%H:%M}" for h in (-1, 2))
    return {"windows": [f"{begin}-{end}"], "zone": "UTC", **more}


def reasons(fleet: Fleet) -> Counter[tuple[str, str | None]]:
    return Counter((row.state, row.reason) for row in fleet.books.rows(fleet.keys).values())


def traced(fleet: Fleet, stage: str) -> int:
    """Events of the stage in the trace, which comes a little later."""
    rows = fleet.books.query("SELECT events FROM trace_events")
    return sum(row.events.count(f'"{stage}"') for row in rows)


def test_in_quiet_hours_deliveries_wait_in_the_ledger_until_they_end(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"quiet_hours": quiet_now()}})
    one.start(1)
    one.send(notifications(20))
    one.await_settled()
    one.await_committed()
    assert reasons(one) == {("RETRY", "quiet_hours"): 20}
    assert one.accepted() == 0
    left = [row.next_at - now_ms() for row in one.books.rows(one.keys).values() if row.next_at]
    assert len(left) == 20
    assert all(115 * MINUTE_MS < ms <= 120 * MINUTE_MS for ms in left)
    await_(lambda: traced(one, "held") == 20, what="the trace says so")
    one.verify()


def test_in_quiet_hours_deliveries_are_dropped_where_the_policy_says_so(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"quiet_hours": quiet_now(action="drop")}})
    one.start(1)
    one.send(notifications(5))
    one.await_settled()
    assert reasons(one) == {("DROPPED", "quiet_hours"): 5}
    await_(lambda: traced(one, "dropped") == 5, what="the trace says so")
    one.verify()


def test_two_workers_send_a_content_once_and_no_more_than_the_cap(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"dedup": DEDUP, "frequency": CAP}})
    one.start(2)
    one.send(notifications(24, receivers=["li"], content={"text": "the same"}))
    texts = notifications(12, receivers=["wang"], content=lambda n: {"text": f"number {n}"})
    one.send(texts)
    one.await_settled()
    assert reasons(one) == {
        ("SENT", None): 1 + 3,
        ("DROPPED", "duplicate_content"): 23,
        ("DROPPED", "frequency_cap"): 9,
    }
    one.verify()


def test_what_was_refused_gives_its_place_back(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"dedup": DEDUP, "frequency": CAP}})
    one.provider.control(rules=[Faults(errors={"400": 1.0})])
    one.start(1)
    for number in range(5):
        one.send([notification(receivers=["li"], content={"text": "the same"})])
        one.await_states(REJECTED=number + 1)
        one.await_committed()  # which follows on giving back, a moment after the outcome is written
    one.provider.control(rules=[])
    one.send([notification(receivers=["li"], content={"text": "the same"})])
    one.await_states(REJECTED=5, SENT=1)
    one.verify()
