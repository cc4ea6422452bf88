"""An outage of the ledger that begins between a claim and its outcome, in a worker as it is built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.work import Assignment, KafkaRecord
from dispatcher.wiring import BuiltWorker, build
from idempotency.ledger import Ledger, LedgerUnavailable
from message.envelope import Notification, encode
from message.vocabulary import Lane
from policy.schema import Guarantee, LanePolicy, Policy
from tests.dispatcher.building import opened, settings_of
from tests.harness import await_, now_ms

KEPT = Lane("webhook", "notice")
LOOSE = Lane("webhook", "marketing")
POLICY = Policy(lanes={LOOSE.name: LanePolicy(guarantee=Guarantee.BEST_EFFORT, threads=2)})
_ASKED = ("claim", "settle", "settle_and_claim", "reroute")


class BreakableLedger:
    """A ledger that goes away right after its first claim, until `away` is cleared."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.away = False
        self.claims = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ledger, name)
        return self._breaking(name, found) if name in _ASKED else found

    def _breaking(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*given: Any, **named: Any) -> Any:
            if self.away:
                raise LedgerUnavailable("away")
            answer = call(*given, **named)
            if name == "claim":
                self.claims += 1
                self.away = self.claims == 1
            return answer

        return ask


class Running:
    """The stages of a worker behind its source, which the test replaces."""

    def __init__(self, app: BuiltWorker, ledger: BreakableLedger) -> None:
        self.app, self.ledger = app, ledger
        self.stages = app.worker._stages

    def start(self) -> None:
        for pool in self.stages.pools:
            pool.start()
        loops = [self.stages.completion.run, *(one.run for one in self.stages.settles)]
        for entry in self.stages.entries:
            loops += [entry.intake.run, entry.run_expand]
        for run in loops:
            threading.Thread(target=run, daemon=True).start()

    def end(self) -> None:
        self.ledger.away = False
        self.stages.outage.stop.set()
        for entry in self.stages.entries:
            entry.stop()
        for pool in self.stages.pools:
            pool.stop()
            pool.close()
        for settle in self.stages.settles:
            settle.stop()
        self.stages.completion.stop()

    def feed(self, lane: Lane, count: int) -> Assignment:
        """Hands records over as the source does."""
        assignment = Assignment(lane.topic(), 0, lane, Offsets(0))
        records = []
        for number in range(count):
            one = Notification(
                id=f"{lane.name}-{number}",
                channel=lane.channel,
                kind=lane.kind,
                receivers=["somebody"],
                content={"text": "hello"},
                created_at=now_ms(),
            )
            records.append(KafkaRecord(assignment, number, one, encode(one), now_ms(), None))
        self.stages.source._inboxes[lane].put(records)
        return assignment


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    settings = settings_of(tmp_path / "ledger.db", "null")
    with ExitStack() as stack:
        parts = opened(settings, stack)
        ledger: Any = BreakableLedger(parts.ledger)
        parts = parts._replace(ledger=ledger)
        one = Running(build(settings, POLICY, (KEPT, LOOSE), parts, threading.Event()), ledger)
        one.start()
        stack.callback(one.end)
        yield one


def test_best_effort_goes_on_while_an_outcome_of_another_lane_waits_for_the_ledger(
    running: Running,
) -> None:
    kept = running.feed(KEPT, 1)
    await_(lambda: running.stages.outage.on, what="its outcome waits")
    loose, count = running.app.pools[LOOSE.name], 200
    assert count > 10 * loose.capacity
    assignment = running.feed(LOOSE, count)
    await_(lambda: assignment.ended == count, what="the offsets of all may pass")
    await_(lambda: loose.settled_count == count, what="their places are free again")
    assert (kept.ended, running.stages.outage.on) == (0, True)
    running.ledger.away = False
    await_(lambda: kept.ended == 1, what="the outcome is written")
