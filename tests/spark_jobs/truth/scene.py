"""One truth run: a fleet on real servers, traffic, and losses of every kind, each as it happens in life."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.local.stack import Stack
from message.envelope import Notification, decode, encode
from message.vocabulary import trace_topic
from simulator import Faults, Lists, spawn
from tests.harness import Fleet, Place, await_, ground_on
from tests.harness.notifications import keys_of, now_ms
from tests.harness.wire import Committed, Sent
from tests.harness.worker import WorkerProcess
from tests.spark_jobs.truth.extent import (
    CODES,
    HELD,
    KEPT,
    LANES,
    PARTITIONS,
    SMS,
    TRACED,
    TROUBLE,
    UNKEPT,
    WORKERS,
    Extent,
    accounts_of,
    policy_of,
)
from tests.spark_jobs.truth.oracle import Expected, Finding, Offset, World
from tests.spark_jobs.truth.program import Program
from tests.spark_jobs.truth.trace_books import countable, lives_of, removed_in, settled_keys
from tests.spark_jobs.truth.traffic import Drafts

_LEASE_S = 3.0
_CHUNK = 2_000
_LATENCY_MS = "10-40"
_HANG_MS = 3_000
"""Time of a call while a worker is killed, so that it dies with calls under way."""
_CAUGHT = 60
"""Notifications that meet a provider so slow."""
_DRAIN_S = 1_800.0
_STEP_S = 300.0
_FAULT = "trace_leaks"
PASSED, REMOVED, UNREAD = 0, 1, 2
"""Partitions in which these losses happen: each must have its cause alone."""
_OPEN = "(state IN ('IN_FLIGHT', 'UNKNOWN') OR (state = 'RETRY' AND next_at < {now} + 60000))"


class Scene:
    """Makes what happens, and keeps what the oracle needs. One thread."""

    def __init__(self, fleet: Fleet, extent: Extent) -> None:
        self.fleet, self.extent = fleet, extent
        self.expected = Expected()
        self.program = Program(fleet.config)
        self.drafts = Drafts(extent.seed)
        self._luck = random.Random(f"scene/{extent.seed}")
        self._early: set[Offset] = set()
        self._recalled: set[str] = set()
        self._wanted = 0
        """Deliveries in lanes with a ledger that workers must have entered."""

    # -- the traffic --

    def delete_early(self) -> None:
        """Kafka removes records before anybody read them; half of them `hongyan send` had announced."""
        half = self.extent.deleted_early // 2
        announced = [self.drafts.one(SMS, biz_id=f"announced-{n}") for n in range(half)]
        file = self.fleet.folder / "announced.jsonl"
        file.write_bytes(b"".join(encode(one) + b"\n" for one in announced))
        self.program.run("send", "--file", str(file), "--json")
        told = list(self._read_back(SMS))
        self.fleet.sent += told
        sent = [*told, *self.fleet.send(self.drafts.some(CODES, half))]
        for lane in (SMS, CODES):
            self._truncate(lane)
        self._early = {(one.place, one.offset) for one in sent}

    def run_traffic(self) -> None:
        """Sends everything, and kills workers at even distances on the way."""
        self._start_workers()
        items = list(self.drafts.traffic(self.extent.messages, self.extent.untraced))
        share = len(items) // (self.extent.kills + 1) + 1
        for start in range(0, len(items), share):
            caught = start + _CAUGHT if start else 0
            if caught:
                self._kill_one(items[start:caught])
            self._send(items[caught : start + share])
        self._await_drained()
        self._stop_workers()

    def keep_out(self) -> None:
        """Sends what must give no finding: dropped, expired, recalled, held, poison."""
        count = self.extent.kept_out
        self.fleet.configure(policy_of(quiet=_always_quiet()))
        recalled = self.drafts.some(CODES, count, biz_id="recalled")
        self._recall("recalled", recalled)
        pairs = [one for _ in range(count) for one in self.drafts.same_content(SMS)]
        expired = [self.drafts.expired(TROUBLE) for _ in range(count)]
        self._start_workers(1)
        self._send([*recalled, *pairs, *expired, *self.drafts.some(HELD, count)])
        self.fleet.send([b'{"v":1, "id":'] * count, lane=TROUBLE)
        self._await_drained()
        self._stop_workers()

    # -- the losses; no worker runs --

    def pass_by(self) -> int:
        """Moves the group's offsets past records that nobody read; returns the time, epoch milliseconds."""
        withdrawn = self.drafts.some(CODES, self.extent.kept_out, biz_id="withdrawn")
        self._recall("withdrawn", withdrawn)
        self.fleet.send(withdrawn, PASSED)
        for lane in (*KEPT, UNKEPT):
            count = self.extent.passed // len(KEPT)
            items = self.drafts.some(lane, count - 1)
            if lane != UNKEPT:
                items.append(self.drafts.two_receivers(lane))
            self.fleet.send(items, PASSED)
            place = Place(self.fleet.wire.topic(lane), PASSED)
            self.fleet.wire.commit_as_foreigner(place, self._ends(lane)[place])
        self.observe()
        return now_ms()

    def send_to_be_removed(self) -> None:
        """Sends records that wait for a worker; an ingest has to read them before `remove`."""
        for lane in (*KEPT, UNKEPT):
            self.fleet.send(
                self.drafts.some(lane, self.extent.deleted_unread // len(KEPT)), REMOVED
            )

    def remove(self) -> None:
        """Kafka removes them."""
        for lane in (*KEPT, UNKEPT):
            place = Place(self.fleet.wire.topic(lane), REMOVED)
            self.fleet.wire.truncate(place.topic, place.partition, self._ends(lane)[place])
        self.observe()

    def forget(self) -> None:
        """Takes rows out of the ledger, keys and all, as a restored backup does: sent and traced ones."""
        known = settled_keys(self._trace())
        rows = self.fleet.books.rows()
        sent = sorted(
            key
            for key, row in rows.items()
            if row.state == "SENT" and row.lane in TRACED and key in known
        )
        keys = self._luck.sample(sent, self.extent.forgotten)
        for table in ("deliveries", "delivery_keys"):
            self.fleet.books.query(f"DELETE FROM {table} WHERE delivery_key = ANY(%s)", keys)
        self.observe()

    def leave_unread(self) -> None:
        """Sends records whose time is over before a worker comes."""
        for lane in KEPT:
            items = self.drafts.some(lane, self.extent.unread // len(KEPT), ttl_ms=1)
            self.fleet.send(items, UNREAD)
        time.sleep(0.01)  # their time passes
        self.observe()

    def come_back(self) -> None:
        """A worker reads on, and finds new traffic in every partition behind what was lost."""
        self._start_workers(1)
        for lane in (*KEPT, UNKEPT):
            for partition in range(PARTITIONS):
                self.fleet.send(self.drafts.some(lane, 2), partition)
        self.fleet.await_committed(_STEP_S)
        self._stop_workers()

    # -- what there is --

    def observe(self) -> None:
        """Lets the oracle look at the world as it is now."""
        fleet = self.fleet
        world = World(
            rows=fleet.books.rows().keys(),
            accepted=self.arrivals().keys(),
            committed=self._committed(),
            starts=self._starts(),
            dead={letter.origin for letter in fleet.dead_letters()},
            recalled=self._recalled,
            unkept={fleet.wire.topic(UNKEPT)},
            never_ingested=self._early,
            now=now_ms(),
        )
        self.expected.add(fleet.sent, world)

    def await_run(self, job: str, check: Callable[[], None]) -> None:
        """Waits until a run of the job is done whose positions were taken from now on: what happened until
        now is in them. `check` raises to give up."""
        since = now_ms()

        def done() -> bool:
            check()
            statement = (
                "SELECT job, state, error FROM spark_runs WHERE state = 'FAILED' OR positions <> ''"
                " AND (positions::json ->> 'taken_at')::bigint > %s"
            )
            runs = self.fleet.books.query(statement, since)
            if failed := [one for one in runs if one.state == "FAILED"]:
                raise RuntimeError(f"{failed[0].job} failed: {failed[0].error}")
            return any(one.job == job and one.state == "DONE" for one in runs)

        await_(done, _STEP_S, f"a run of {job} is done")

    def await_resent(self, cause: str, check: Callable[[], None]) -> None:
        """Waits until the provider has everything that the oracle lists under the cause."""
        receivers = self.receivers()
        wanted = {receivers[key] for key in self.expected.keys[cause]}
        assert wanted, f"nothing is lost by {cause}"

        def resent() -> bool:
            check()
            return wanted <= self.arrivals().keys()

        await_(resent, _STEP_S, lambda: f"{cause}: {len(wanted - self.arrivals().keys())} to come")

    def arrivals(self) -> Counter[str]:
        """Returns how often the provider accepted something for each receiver."""
        return Counter(one.receiver for one in self.fleet.provider.records() if one.accepted)

    def first_arrivals(self) -> dict[str, int]:
        """Returns the time of the first acceptance per receiver, epoch milliseconds."""
        found: dict[str, int] = {}
        for one in self.fleet.provider.records():
            if one.accepted:
                found.setdefault(one.receiver, one.at_ms)
        return found

    def receivers(self) -> dict[str, str]:
        """Returns the receiver of each delivery key."""
        return {
            key: receiver
            for one in self.fleet.sent
            if one.notification
            for key, receiver in zip(one.keys, one.notification.receivers, strict=True)
        }

    def places(self) -> dict[str, Offset]:
        """Returns the record's offset of each delivery key."""
        return {key: (one.place, one.offset) for one in self.fleet.sent for key in one.keys}

    def findings(self) -> list[Finding]:
        """Returns the rows of `lost_findings`."""
        names = ", ".join(Finding._fields)
        return [
            Finding(*row) for row in self.fleet.books.query(f"SELECT {names} FROM lost_findings")
        ]

    def missing_told(self) -> int:
        """Returns the missing events that the jobs tell."""
        (row,) = self.fleet.books.query(
            "SELECT coalesce(sum(missing + dropped), 0) AS n FROM trace_gaps"
        )
        return int(row.n)

    def missing_known(self) -> tuple[int, int]:
        """Returns the missing events by the topic's own records, and by the leak's book."""
        lives = lives_of(self._trace())
        removed = list(removed_in(self.fleet.folder))
        known = sum(life.missing for life in lives.values())
        return known, countable(removed, lives)

    # -- steps --

    def _recall(self, biz_id: str, items: list[Notification]) -> None:
        """Recalls notifications by their business id before they are sent."""
        self.program.run("recall", "--biz-id", biz_id, "--ahead")
        self._recalled |= {one.id for one in items}

    def _send(self, items: list[Notification]) -> None:
        for start in range(0, len(items), _CHUNK):
            self.fleet.send(items[start : start + _CHUNK])
        self._wanted += sum(len(one.receivers) for one in items if one.lane.name != UNKEPT)

    def _start_workers(self, count: int = WORKERS) -> None:
        for _ in range(count):
            self.fleet.worker(fault=_FAULT)
        running = [one for one in self.fleet.workers if one.running]
        for worker in running:
            worker.wait_ready()
        self.fleet.await_shared_out(running)

    def _stop_workers(self) -> None:
        running = [one for one in self.fleet.workers if one.running]
        for worker in running:
            worker.terminate()
        codes = [worker.wait() for worker in running]
        assert set(codes) == {0}, codes
        await_(lambda: not self.fleet.wire.members(), what="the group has no member")

    def _kill_one(self, items: list[Notification]) -> None:
        """Kills a worker whose calls hang at the provider, and starts another one."""
        running = [one for one in self.fleet.workers if one.running]
        self.fleet.slow(_HANG_MS)
        self._send(items)
        victim = await_(lambda: self._busiest(running), what="a worker is at work")
        assert victim is not None
        victim.kill()
        self.fleet.provider.control(rules=[Faults(latency_ms=_LATENCY_MS)])
        self.fleet.worker(fault=_FAULT).wait_ready()

    def _busiest(self, workers: list[WorkerProcess]) -> WorkerProcess | None:
        """Returns the worker with the most calls under way; None if there is no call."""
        calls = {one: self.fleet.books.in_flight_of(one.id) for one in workers}
        busiest = max(workers, key=lambda one: calls[one])
        return busiest if calls[busiest] else None

    def _await_drained(self) -> None:
        """Until the group has read everything, and no delivery is open but held ones."""
        self.fleet.await_committed(_DRAIN_S)
        statement = (
            "SELECT count(*) AS n, count(*) FILTER (WHERE"
            f" {_OPEN.format(now='hongyan_now()')}) AS open FROM hongyan_deliveries"
        )

        def drained() -> bool:
            (row,) = self.fleet.books.query(statement)
            return bool(row.n >= self._wanted and not row.open)

        await_(drained, _DRAIN_S, lambda: f"drained: {self.fleet.books.states()}")

    def _truncate(self, lane: str) -> None:
        for place, end in self._ends(lane).items():
            if end:
                self.fleet.wire.truncate(place.topic, place.partition, end)

    def _ends(self, lane: str) -> dict[Place, int]:
        return self.fleet.wire.ends(self.fleet.wire.topic(lane))

    def _starts(self) -> dict[Place, int]:
        starts: dict[Place, int] = {}
        for topic in self.fleet.topics:
            starts |= self.fleet.wire.starts(topic)
        return starts

    def _committed(self) -> dict[Place, Committed]:
        return self.fleet.committed()

    def _trace(self) -> list[Any]:
        return self.fleet.wire.read(trace_topic(self.fleet.wire.prefix))

    def _read_back(self, lane: str) -> Iterator[Sent]:
        for message in self.fleet.wire.read(self.fleet.wire.topic(lane)):
            one = decode(message.value())
            place = Place(message.topic(), message.partition())
            yield Sent(place, message.offset(), message.value(), one, keys_of(one))


def _always_quiet() -> dict[str, object]:
    """Returns quiet hours from an hour ago until half a day from now."""
    hour = datetime.now(UTC).hour
    return {"windows": [f"{(hour - 1) % 24:02}:00-{(hour + 12) % 24:02}:00"], "zone": "UTC"}


@contextmanager
def scene_on(stack: Stack, folder: Path, extent: Extent) -> Iterator[Scene]:
    """Opens a scene on a running stack; ends its processes afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    order = {"folder": str(folder), "share": extent.leak, "seed": extent.seed}
    settings: dict[str, Mapping[str, Any]] = {
        "recovery": {
            "lanes": list(LANES),
            "rate_per_s": 200,
            "poll_s": 0.5,
            "lease_s": _LEASE_S,
            "health_address": "127.0.0.1:0",
        },
        "trace": {"database": False},
        "spark": {"warehouse": str(folder / "warehouse"), "properties": extent.spark_properties},
    }
    with ExitStack() as held:
        ground = held.enter_context(ground_on(stack))
        provider = held.enter_context(
            spawn(
                folder,
                fsync=False,
                rules=[Faults(latency_ms=_LATENCY_MS)],
                lists=Lists(status_query=True, lag_ms=0),
            )
        )
        held.enter_context(_variable("TRACE_LEAK", json.dumps(order)))
        fleet = held.enter_context(
            Fleet(
                ground,
                folder,
                lanes=LANES,
                partitions=PARTITIONS,
                policy=policy_of(),
                accounts=accounts_of(provider.url),
                settings=settings,
                lease_s=_LEASE_S,
                provider=provider,
            )
        )
        yield Scene(fleet, extent)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
