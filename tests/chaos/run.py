"""One run: a private stack, a pack of workers, traffic, and the faults of the plan; then its books.

The driver is one thread that goes round: look at progress, do what is due, strike when a fault's
moment has come. Only starting servers again happens beside it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path

import psycopg
import redis
from confluent_kafka import KafkaException

from channels.simulator import Faults
from deploy.local.stack import Stack
from tests.chaos import logs
from tests.chaos.books import Books, Hit, Limits
from tests.chaos.pack import Life, Pack
from tests.chaos.plan import (
    FICKLE_RECEIVER,
    LANES,
    LEASE_S,
    ORDERED,
    THREADS,
    TIMEOUT_MS,
    Fault,
    Kind,
    Plan,
)
from tests.chaos.traffic import Traffic
from tests.harness import Committed, Fleet, Place, TimedOut, await_, ground_on, now_ms
from tests.harness.wire import Wire

LIMITS = Limits(
    pool_threads=THREADS * len(LANES), timeout_ms=TIMEOUT_MS, lease_ms=int(LEASE_S * 1_000)
)
_POLICY: dict[str, dict[str, object]] = {
    "webhook.verification": {"threads": THREADS, "timeout_ms": TIMEOUT_MS},
    ORDERED: {"threads": THREADS, "timeout_ms": TIMEOUT_MS, "ordering": "key"},
    "webhook.marketing": {
        "threads": THREADS,
        "timeout_ms": TIMEOUT_MS,
        "guarantee": "at_most_once",
    },
}
_LATENCY = "p50=10,p99=60"
_FICKLE = Faults(
    receiver=FICKLE_RECEIVER,
    latency_ms=_LATENCY,
    errors={"400": 0.002, "429": 0.002, "500": 0.002},
    reset=0.001,
)
_PARTITIONS = 6
_TICK_S = 0.05
_LOOK_S = 0.3
_MEASURE_S = 1.0
_AHEAD = 0.05
"""Share of the run by which production may be ahead of what is settled, or of the next fault."""
_LEAST_AHEAD = 800
_STALL_S = 120.0
"""Without progress for so long the run is given up, and judged as it stands."""
_SETTLE_S = 180.0

Say = Callable[[str], None]
Show = Callable[[int], None]


class Chaos:
    """Does what the plan says and keeps the books. `say` is told what happens, `show` how far it is."""

    def __init__(self, fleet: Fleet, stack: Stack, plan: Plan, say: Say, show: Show) -> None:
        self.hits: list[Hit] = []
        self.troubles: list[str] = []
        self.settled = 0
        self.seconds = 0.0
        self._fleet, self._stack, self._plan = fleet, stack, plan
        self._say, self._show = say, show
        self._pack = Pack(fleet)
        self._faults = deque(plan.faults)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0
        self._reach = self._next_moment()
        """Share of the run at which the next fault lies; the traffic's thread reads."""
        self._armed: float | None = None
        """When the next fault strikes, once its share of the run is reached."""
        self._helpers: list[threading.Thread] = []
        self._away: set[str] = set()
        """Servers being away by our doing; helpers write."""
        self._progressed_at = self._looked_at = self._measured_at = 0.0
        self.traffic = Traffic(fleet, plan, self._may_send)

    def run(self) -> Books:
        """From the first worker's start to the last one's end."""
        self._pack.start()
        begun = self._progressed_at = time.monotonic()
        self.traffic.start()
        while not self._over():
            self._go_round()
            time.sleep(_TICK_S)
        self._await_settled()
        self.seconds = time.monotonic() - begun
        self._pack.stop()
        return self._books()

    # -- the loop --

    def _go_round(self) -> None:
        now = time.monotonic()
        self._look(now)
        self._measure(now)
        self._do_due(now)
        self._supervise()
        self._strike_if_due(now)

    def _over(self) -> bool:
        if time.monotonic() - self._progressed_at > _STALL_S:
            self.troubles.append(f"nothing was settled for {_STALL_S:.0f} s: given up")
            self.traffic.stop()
            return True
        waits = self._faults or self._due or any(h.is_alive() for h in self._helpers)
        return self.traffic.done and not waits

    def _look(self, now: float) -> None:
        """How much is settled; while the database is away, as much as before."""
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        settled = self.settled
        try:
            (row,) = self._fleet.books.query(
                "SELECT count(*) AS n FROM deliveries WHERE state <> 'IN_FLIGHT'"
            )
            settled = int(row.n)
        except psycopg.Error:
            pass
        if settled != self.settled:
            self.settled, self._progressed_at = settled, now
            self._show(settled)

    def _measure(self, now: float) -> None:
        if now - self._measured_at >= _MEASURE_S:
            self._measured_at = now
            self._pack.measure()

    def _do_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            heappop(self._due)[2]()

    def _supervise(self) -> None:
        """A worker that ends by itself is a finding; its place is filled all the same."""
        for place, life in self._pack.bury():
            self._say(f"worker {life.book.worker} ended by itself with code {life.book.code}")
            self._later(1.0, lambda place=place: self._fill(place))  # type: ignore[misc]

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._turn += 1
        heappush(self._due, (time.monotonic() + seconds, self._turn, action))

    def _may_send(self) -> float:
        """Deliveries that may have been produced by now (the traffic's thread asks): so that every
        fault finds the traffic that its moment is given by."""
        total = self._plan.deliveries
        ahead = max(total * _AHEAD, _LEAST_AHEAD)
        return min(self.settled, self._reach * total) + ahead

    # -- faults --

    def _strike_if_due(self, now: float) -> None:
        if not self._faults:
            return
        fault = self._faults[0]
        if self._armed is None:
            if self.settled >= fault.at * self._plan.deliveries:
                self._armed = now + fault.wait_s
        elif now >= self._armed and self._strike(fault):
            self._faults.popleft()
            self._armed, self._reach = None, self._next_moment()

    def _next_moment(self) -> float:
        return self._faults[0].at if self._faults else 1.0

    def _strike(self, fault: Fault) -> bool:
        """Do it; False when nobody is there to be struck."""
        match fault.kind:
            case Kind.KILL:
                return self._kill(fault)
            case Kind.STOP:
                return self._pause(fault)
            case Kind.FLUSH:
                return self._flush(fault)
            case Kind.OUTAGE:
                return self._break(fault, "postgres")
            case Kind.BROKER:
                return self._break(fault, self._stack.brokers[0])

    def _kill(self, fault: Fault) -> bool:
        life = self._pack.choose(fault.victim)
        if life is None:
            return False
        hit = self._note(fault, life)
        place = self._pack.kill(life)
        name = life.book.worker if fault.same_name else ""
        self._later(fault.down_s, lambda: self._fill(place, name, hit))
        return True

    def _fill(self, place: int, name: str = "", hit: Hit | None = None) -> None:
        self._pack.fill(place, name)
        if hit is not None:
            hit.until_ms = now_ms()

    def _pause(self, fault: Fault) -> bool:
        life = self._pack.choose(fault.victim)
        if life is None:
            return False
        hit = self._note(fault, life)
        life.process.pause()
        life.paused = True

        def resume() -> None:
            life.process.resume()
            life.paused = False
            hit.until_ms = now_ms()

        self._later(fault.down_s, resume)
        return True

    def _flush(self, fault: Fault) -> bool:
        hit = self._note(fault)
        with redis.Redis.from_url(self._stack.redis_url) as client:
            client.flushall()
        hit.until_ms = now_ms()
        return True

    def _break(self, fault: Fault, server: str) -> bool:
        if server in self._away:
            return False
        hit = self._note(fault)
        self._away.add(server)
        helper = threading.Thread(target=self._restore, args=(fault, server, hit), daemon=True)
        self._helpers.append(helper)
        helper.start()
        return True

    def _restore(self, fault: Fault, server: str, hit: Hit) -> None:
        """Take a server away and bring it back, beside the driver."""
        try:
            if fault.kind is Kind.OUTAGE:
                self._stack.kill(server)
            else:
                self._stack.stop(server)
            time.sleep(fault.down_s)
            self._stack.start(server)
        except Exception as exc:
            self.troubles.append(f"{server} did not come back: {exc}")
        hit.until_ms = now_ms()
        self._away.discard(server)

    def _note(self, fault: Fault, life: Life | None = None) -> Hit:
        hit = Hit(fault, now_ms())
        if life is not None:
            hit.worker, hit.life = life.book.worker, life.book.number
            hit.point = logs.point_of(life.process.log_text())
        hit.point = ", ".join([*filter(None, [hit.point]), *(f"{a} away" for a in self._away)])
        self.hits.append(hit)
        whom = f" {hit.worker}" if hit.worker else ""
        share = 100 * self.settled / self._plan.deliveries
        where = f" ({hit.point})" if hit.point else ""
        self._say(f"{share:5.1f} %  {fault.number:>2}. {fault.kind}{whom}{where}")
        return hit

    # -- the end --

    def _await_settled(self) -> None:
        """Until every delivery is settled or durably owned, and the group has read everything."""
        if self.traffic.failure is not None:
            self.troubles.append(f"production failed: {self.traffic.failure!r}")
        wanted = set(self._fleet.keys)

        def settled() -> bool:
            self._go_round()
            (row,) = self._fleet.books.query(
                "SELECT count(*) AS n, count(*) FILTER (WHERE state = 'IN_FLIGHT') AS open"
                " FROM deliveries"
            )
            return bool(row.n >= len(wanted) and not row.open)

        try:
            await_(settled, _SETTLE_S, "every delivery is settled or durably owned")
            await_(self._all_read, _SETTLE_S, "the group has read everything")
        except (TimedOut, psycopg.Error, KafkaException) as exc:
            self.troubles.append(str(exc)[:2_000])

    def _all_read(self) -> bool:
        committed = self._committed()
        return all(
            place in committed and committed[place].covers(record.offset)
            for record in self._fleet.sent
            for place in (record.place,)
        )

    def _committed(self) -> dict[Place, Committed]:
        """What the group committed, asked by a fresh client: an admin client that lived through a
        broker's restart may wait for its answer for ever."""
        wire = self._fleet.wire
        return Wire(self._stack.bootstrap, wire.prefix, wire.group).committed(self._fleet.topics)

    def _books(self) -> Books:
        fleet = self._fleet
        return Books(
            sent=fleet.sent,
            rows=fleet.books.rows(),
            records=list(fleet.provider.records()),
            committed=self._committed(),
            hits=self.hits,
            lives=self._pack.books(),
            limits=LIMITS,
            ordered=fleet.wire.topic(ORDERED),
            troubles=self.troubles,
        )


@contextmanager
def chaos_on(stack: Stack, plan: Plan, folder: Path, say: Say, show: Show) -> Iterator[Chaos]:
    """A run ready to be run, on a stack that it may break; its logs stay in `folder`."""
    with (
        ground_on(stack) as ground,
        Fleet(
            ground,
            folder,
            lanes=LANES,
            partitions=_PARTITIONS,
            policy=_POLICY,
            lease_s=LEASE_S,
        ) as fleet,
    ):
        fleet.provider.control(rules=[_FICKLE, Faults(latency_ms=_LATENCY)])
        yield Chaos(fleet, stack, plan, say, show)
