"""The trace of a real fleet: its records are counted, its orders are legal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from message.outcome_event import receiver_hash
from message.vocabulary import trace_topic
from tests.harness import LANE, Fleet, await_, notification
from tracing.events import Stage, TraceEvent
from tracing.orders import violations
from tracing.record_headers import DROPPED, END, FIRST, LIFE

MakeFleet = Callable[..., Fleet]
HASH_KEY = "of receivers, in this test and nowhere else"
RECOVERY = {"lanes": [LANE], "poll_s": 0.2, "health_address": "127.0.0.1:0", "lease_s": 5}


class Written(NamedTuple):
    """One record of the trace topic."""

    first: int
    dropped: int
    end: bool
    events: list[TraceEvent]


def lives(fleet: Fleet) -> dict[str, list[Written]]:
    found: defaultdict[str, list[Written]] = defaultdict(list)
    for message in fleet.wire.read(trace_topic(fleet.wire.prefix)):
        marks: dict[str, Any] = dict(message.headers())
        events = msgspec.json.decode(message.value(), type=list[TraceEvent])
        one = Written(int(marks[FIRST]), int(marks[DROPPED]), END in marks, events)
        found[marks[LIFE].decode()].append(one)
    return found


def events_of(fleet: Fleet) -> Iterator[TraceEvent]:
    for records in lives(fleet).values():
        for record in records:
            yield from record.events


def test_a_killed_worker_leaves_a_life_without_end_and_the_others_miss_nothing(
    fleet: MakeFleet,
) -> None:
    one = fleet(
        partitions=2,
        policy={LANE: {"unknown": "resend"}},
        settings={"recovery": RECOVERY, "outcomes": {"hash_key_file": "hash_key"}},
    )
    (one.folder / "hash_key").write_text(HASH_KEY + "\n")
    one.explained = {f"n-{n}" for n in range(60)}
    (killed,) = one.start(1)
    one.slow(1_500)
    one.send([notification(id=f"n-{n}", receivers=["user-1"]) for n in range(60)])
    one.await_in_flight(4)
    killed.kill()
    one.slow(5)
    recovery, worker = one.recovery(), one.worker()
    recovery.wait_ready()
    worker.wait_ready()
    one.await_states(SENT=60)

    def decided() -> bool:
        return any(event.stage is Stage.OWNER_DEAD for event in events_of(one))

    await_(decided, what="the deaths are in the trace")
    for process in (worker, recovery):
        process.terminate()
        process.wait()

    found = lives(one)
    ended = {name: records for name, records in found.items() if any(r.end for r in records)}
    assert {name.rpartition("/")[0] for name in ended} == {worker.id, recovery.id}
    for records in ended.values():
        numbers = [n for r in records for n in range(r.first, r.first + len(r.events))]
        (end,) = [record for record in records if record.end]
        assert sorted(numbers) == list(range(end.first))
        assert (end.events, {record.dropped for record in records}) == ([], {0})
    events = list(events_of(one))
    assert violations(events) == []
    dead = [event for event in events if event.stage is Stage.OWNER_DEAD]
    assert {event.worker for event in dead} == {killed.id}
    taken = {(e.delivery_key, e.attempt) for e in events if e.stage is Stage.TAKEN}
    again = {
        (e.delivery_key, e.attempt + 1)
        for e in events
        if e.stage is Stage.RESOLVED and e.state == "RETRY"
    }
    assert again
    assert again == taken
    hashed = receiver_hash(HASH_KEY.encode(), "webhook", "user-1")
    for event in events:
        assert (event.receiver_hash, bool(event.created_at)) == (hashed, True)
        assert event.policy_version
