"""One run: a private stack, two packs of processes, traffic, and the faults of the plan; then its books.

The driver is one thread that goes round: look at progress, do what is due, strike when a fault's
moment has come. What takes its time happens beside it (tests/chaos/strikes.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from confluent_kafka import KafkaException

from deploy.local.stack import Stack
from simulator import Lists, spawn
from tests.chaos import announced, history
from tests.chaos.books import Books, Hit, Limits
from tests.chaos.bursts import MAIN
from tests.chaos.pack import packs
from tests.chaos.plan import (
    FICKLE,
    LANES,
    LEASE_S,
    ORDERED,
    RESENDING,
    THREADS,
    TIMEOUT_MS,
    TTL_MS,
    Plan,
)
from tests.chaos.strikes import Strikes
from tests.chaos.traffic import Traffic
from tests.chaos.weather import MUTE, Weather
from tests.harness import Committed, Fleet, Place, TimedOut, await_, ground_on
from tests.harness.notifications import webhook
from tests.harness.proxy import Proxy
from tests.harness.wire import Wire

LIMITS = Limits(
    pool_threads=THREADS * len(LANES),
    timeout_ms=TIMEOUT_MS,
    lease_ms=int(LEASE_S * 1_000),
    resending=frozenset({RESENDING}),
    parking=frozenset({FICKLE}),
    mute=MUTE,
)
_LANE: dict[str, object] = {
    "threads": THREADS,
    "timeout_ms": TIMEOUT_MS,
    "retry": {"attempts": 20, "base_ms": 200, "cap_ms": 2_000},
    "breaker": {"open_ms": 300, "max_open_ms": 2_000},
    "outcomes": "topic",
}
_UNASKED = {"ttl_ms": TTL_MS, "accounts": {MAIN: 2, "mute": 1}}
_POLICY: dict[str, dict[str, object]] = {
    RESENDING: {**_LANE, **_UNASKED},
    ORDERED: {**_LANE, "ordering": "key", "accounts": [MAIN]},
    FICKLE: {**_LANE, **_UNASKED, "guarantee": "at_most_once"},
}
_RECOVERY: dict[str, object] = {
    "lanes": list(LANES),
    "share": 0.5,
    "rate_per_s": 200,
    "poll_s": 0.3,
    "lease_s": LEASE_S,
    "drain_s": 10.0,
    "health_address": "127.0.0.1:0",
}
_PARTITIONS = 6
_TICK_S = 0.05
_LOOK_S = 0.3
_MEASURE_S = 1.0
_AHEAD = 0.05
"""Share of the run by which production may be ahead of what is settled, or of the next fault."""
_LEAST_AHEAD, _MOST_AHEAD = 800, 2_500
_STALL_S = 120.0
"""Without progress for so long the run is given up, and judged as it stands."""
_SETTLE_S = 180.0
_ENDED = "state NOT IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')"

Say = Callable[[str], None]
Show = Callable[[int], None]


class Chaos:
    """Does what the plan says and keeps the books. `say` is told what happens, `show` how far it is."""

    def __init__(
        self, fleet: Fleet, stack: Stack, plan: Plan, proxy: Proxy, say: Say, show: Show
    ) -> None:
        self.hits: list[Hit] = []
        self.troubles: list[str] = []
        self.settled = 0
        self.seconds = 0.0
        self._fleet, self._stack, self._plan = fleet, stack, plan
        self._say, self._show = say, show
        url = _through(fleet.ground.database_url, proxy.port)
        self._lives, self._workers, self._recoveries = packs(fleet, url)
        weather = Weather(fleet.provider)
        self._strikes = Strikes(fleet, stack, self._workers, self._recoveries, weather, proxy, self)
        self._faults = deque(plan.faults)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._turns = count()
        self._reach = self._next_moment()
        """Share of the run at which the next fault lies; the traffic's thread reads."""
        self._armed: float | None = None
        """When the next fault strikes, once its share of the run is reached."""
        self._progressed_at = self._looked_at = self._measured_at = 0.0
        self.traffic = Traffic(fleet, plan, self._may_send)

    def run(self) -> Books:
        """From the first process's start to the last one's end."""
        history.watch(self._fleet.books)
        workers = self._workers.start()
        self._recoveries.start()
        self._fleet.await_shared_out([life.process for life in workers])
        begun = self._progressed_at = time.monotonic()
        self.traffic.start()
        while not self._over():
            self._go_round()
            time.sleep(_TICK_S)
        self._await_ended()
        self.seconds = time.monotonic() - begun
        self._workers.stop()
        self._recoveries.stop()
        return self._books()

    # -- what strikes ask for (strikes.Stage) --

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it in this thread, so much later; any thread may ask."""
        heappush(self._due, (time.monotonic() + seconds, next(self._turns), action))

    def note(self, hit: Hit) -> None:
        """Keep the hit and say it."""
        self.hits.append(hit)
        whom = f" {hit.worker}" if hit.worker else ""
        share = 100 * self.settled / self._plan.deliveries
        where = f" ({hit.point})" if hit.point else ""
        self._say(f"{share:5.1f} %  {hit.fault.number:>2}. {hit.fault.kind}{whom}{where}")

    # -- the loop --

    def _go_round(self) -> None:
        now = time.monotonic()
        self._look(now)
        self._measure(now)
        while self._due and self._due[0][0] <= now:
            heappop(self._due)[2]()
        for life in self._strikes.look_after():
            self._say(f"{life.book.worker} ended by itself with code {life.book.code}")
        self._strike_if_due(now)

    def _over(self) -> bool:
        if time.monotonic() - self._progressed_at > _STALL_S:
            self.troubles.append(f"nothing was settled for {_STALL_S:.0f} s: given up")
            self.traffic.stop()
            return True
        return self.traffic.done and not (self._faults or self._due or self._strikes.busy)

    def _look(self, now: float) -> None:
        """How much is settled; while the database is away, as much as before."""
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        settled = self.settled
        try:
            (row,) = self._fleet.books.query(f"SELECT count(*) AS n FROM deliveries WHERE {_ENDED}")
            settled = int(row.n)
        except psycopg.Error:
            pass
        if settled != self.settled:
            self.settled, self._progressed_at = settled, now
            self._show(settled)

    def _measure(self, now: float) -> None:
        if now - self._measured_at >= _MEASURE_S:
            self._measured_at = now
            self._workers.measure()
            self._recoveries.measure()

    def _may_send(self) -> float:
        """Deliveries that may have been produced by now (the traffic's thread asks): so that every
        fault finds the traffic that its moment is given by."""
        total = self._plan.deliveries
        ahead = min(max(total * _AHEAD, _LEAST_AHEAD), _MOST_AHEAD)
        return min(self.settled, self._reach * total) + ahead

    def _strike_if_due(self, now: float) -> None:
        if not self._faults:
            return
        fault = self._faults[0]
        if self._armed is None:
            if self.settled >= fault.at * self._plan.deliveries:
                self._armed = now + fault.wait_s
        elif now >= self._armed and self._strikes.do(fault):
            self._faults.popleft()
            self._armed, self._reach = None, self._next_moment()

    def _next_moment(self) -> float:
        return self._faults[0].at if self._faults else 1.0

    # -- the end --

    def _await_ended(self) -> None:
        """Until every delivery has ended, and the group has read everything."""
        if self.traffic.failure is not None:
            self.troubles.append(f"production failed: {self.traffic.failure!r}")
        wanted = set(self._fleet.keys)

        def ended() -> bool:
            self._go_round()
            (row,) = self._fleet.books.query(
                f"SELECT count(*) AS n, count(*) FILTER (WHERE NOT {_ENDED}) AS open FROM deliveries"
            )
            return bool(row.n >= len(wanted) and not row.open)

        try:
            await_(ended, _SETTLE_S, "every delivery has ended")
            await_(self._all_read, _SETTLE_S, "the group has read everything")
            await_(self._all_announced, _SETTLE_S, "every outcome event is published")
        except (TimedOut, psycopg.Error, KafkaException) as exc:
            self.troubles.append(str(exc)[:2_000])

    def _all_read(self) -> bool:
        committed = self._committed()
        return all(
            place in committed and committed[place].covers(record.offset)
            for record in self._fleet.sent
            for place in (record.place,)
        )

    def _all_announced(self) -> bool:
        self._go_round()
        (row,) = self._fleet.books.query("SELECT count(*) AS n FROM outcome_batches")
        return not row.n

    def _committed(self) -> dict[Place, Committed]:
        """What the group committed, asked by a fresh client: an admin client that lived through a
        broker's restart may wait for its answer for ever."""
        return self._fresh_wire().committed(self._fleet.topics)

    def _fresh_wire(self) -> Wire:
        wire = self._fleet.wire
        return Wire(self._stack.bootstrap, wire.prefix, wire.group)

    def _books(self) -> Books:
        fleet = self._fleet
        for life in self._lives:
            life.read_log()
        moves = history.moves(fleet.books)
        history.keep(moves, fleet.folder / "moves.jsonl")
        return Books(
            sent=fleet.sent,
            rows=fleet.books.rows(),
            records=list(fleet.provider.records()),
            committed=self._committed(),
            hits=self.hits,
            lives=[life.book for life in self._lives],
            limits=LIMITS,
            ordered=fleet.wire.topic(ORDERED),
            moves=moves,
            announced=LANES,
            events=announced.read(self._fresh_wire().outcomes()),
            dead={letter.origin for letter in self._fresh_wire().dead_letters()},
            planned=self._plan.faults,
            troubles=self.troubles,
        )


def _through(database_url: str, port: int) -> str:
    """The same database through the proxy on that port."""
    parts = urlsplit(database_url)
    login, _, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login + '@' if login else ''}127.0.0.1:{port}").geturl()


@contextmanager
def chaos_on(stack: Stack, plan: Plan, folder: Path, say: Say, show: Show) -> Iterator[Chaos]:
    """A run ready to be run, on a stack that it may break; its logs stay in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        ground = held.enter_context(ground_on(stack))
        provider = held.enter_context(spawn(folder, lists=Lists(status_query=True)))
        database = urlsplit(ground.database_url)
        proxy = held.enter_context(Proxy(database.hostname or "127.0.0.1", database.port or 5432))
        (folder / "hash_key").write_text("of receivers, in chaos and nowhere else\n")
        accounts = {
            MAIN: webhook(f"{provider.url}/send"),
            "mute": webhook(f"{provider.url}{MUTE}"),
        }
        fleet = held.enter_context(
            Fleet(
                ground,
                folder,
                lanes=LANES,
                partitions=_PARTITIONS,
                policy=_POLICY,
                accounts=accounts,
                settings={"recovery": _RECOVERY, "outcomes": {"hash_key_file": "hash_key"}},
                lease_s=LEASE_S,
                provider=provider,
            )
        )
        yield Chaos(fleet, stack, plan, proxy, say, show)
