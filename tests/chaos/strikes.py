"""How each fault is done. Everything here is the driver's thread's, but for what `_beside` starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import redis
from confluent_kafka import KafkaException

from deploy.local.stack import Stack
from tests.chaos import bursts, person
from tests.chaos.books import Hit
from tests.chaos.kinds import ILLS, OF_RECOVERY, POINTS, Kind
from tests.chaos.pack import Life, Pack
from tests.chaos.plan import LANES, Fault
from tests.chaos.points import Point
from tests.chaos.weather import Weather
from tests.harness import Fleet, Sent, await_, now_ms
from tests.harness.proxy import Proxy

_POINT_S = 60.0
"""How long a victim may take to come to the point at which it dies."""
_CUTS = 3
_FULL_S = 1.0
_GROUP_S = 120.0
_HELD_S = 3.0
_PATIENCE = 6
"""Times that a fault which nobody met yet is held a little longer."""
_NO_CLAIM_S = 2.0
_REFUSED_S = 15.0
"""How long retries are refused while Redis is away: they fall due again in the outage."""

Produce = Callable[[Fleet, Kind], list[Sent]]


class Stage(Protocol):
    """What the driver gives."""

    hits: list[Hit]
    troubles: list[str]

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do it in the driver's thread, so much later; any thread may ask."""
        ...

    def note(self, hit: Hit) -> None:
        """Keep the hit and say it."""
        ...


class Strikes:
    """Does faults; `away` are the servers that are away by our doing."""

    def __init__(
        self,
        fleet: Fleet,
        stack: Stack,
        workers: Pack,
        recoveries: Pack,
        weather: Weather,
        proxy: Proxy,
        stage: Stage,
    ) -> None:
        self.away: set[str] = set()
        self._fleet, self._stack = fleet, stack
        self._workers, self._recoveries = workers, recoveries
        self._weather, self._proxy, self._stage = weather, proxy, stage
        self._armed: dict[int, tuple[Fault, Life, float]] = {}
        """Faults whose victim has not come to its point yet; the moment from which it is too late."""
        self._ordered: dict[int, Fault] = {}
        """Life number to the fault whose order it got last: however late it obeys, it was our doing."""
        self._leaving: dict[int, Hit] = {}
        """Life number to the SIGTERM it got."""
        self._held_back = False
        """No worker is started: the group must be empty."""
        self._paused: set[str] = set()
        """Lanes that a person paused; the helper of the pause takes its lane out again."""
        self._helpers: list[threading.Thread] = []

    @property
    def busy(self) -> bool:
        """Whether something struck has not come to its end."""
        helping = any(helper.is_alive() for helper in self._helpers)
        return bool(self._armed or self._leaving or self._held_back) or helping

    def do(self, fault: Fault) -> bool:
        """Strike; False when nobody is there to be struck."""
        ways: dict[Kind, Callable[[Fault], bool]] = {
            **dict.fromkeys(POINTS, self._arm),
            Kind.KILL: self._kill,
            Kind.KILL_RECOVERY: self._kill,
            Kind.STOP: self._pause,
            Kind.STOP_RECOVERY: self._pause,
            Kind.DRAIN: self._drain,
            Kind.FLUSH: self._flush,
            Kind.REDIS_DOWN: self._break,
            Kind.OUTAGE: self._break_mid_claim,
            Kind.CUT: self._cut,
            Kind.BROKER: self._break,
            Kind.BROKER_DOWN: self._break,
            Kind.REBALANCE: self._rebalance,
            Kind.OFFSETS: self._forget_offsets,
            Kind.REDIS_AWAY: self._starve,
            Kind.NO_RECOVERY: self._bare,
            Kind.MANUAL: self._race,
            Kind.PAUSED: self._pause_lane,
        }
        return ways.get(fault.kind, self._ail)(fault)

    def look_after(self) -> list[Life]:
        """Fill the places of those that ended as they should; the ones that ended by themselves."""
        unexpected = []
        for pack in (self._workers, self._recoveries):
            for life in pack.gone():
                if not self._was_meant(pack, life):
                    unexpected.append(life)
                    place = pack.leave(life, "")
                    self._refill(pack, place, 1.0)
        self._rearm()
        return unexpected

    # -- processes --

    def _pack(self, fault: Fault) -> Pack:
        return self._recoveries if fault.kind in OF_RECOVERY else self._workers

    def _kill(self, fault: Fault) -> bool:
        pack = self._pack(fault)
        life = pack.choose(fault.victim)
        if life is None:
            return False
        hit = self._hit(fault, life, life.point)
        self._replace(pack, pack.kill(life), hit)
        return True

    def _arm(self, fault: Fault) -> bool:
        """Let a victim kill itself where its code comes to the point; where that is in a recovery, with
        something for it to do."""
        life = self._pack(fault).choose(fault.victim, at_work=True)
        if life is None or self._has_orders(life):
            return False
        self._order(fault, life)
        if fault.kind in OF_RECOVERY:
            self._weather.begin(fault.number, fault.kind)
            self._stage.later(fault.down_s, lambda: self._weather.end(fault.number))
            self._beside(lambda: bursts.produce(self._fleet, fault.kind))
        return True

    def _rearm(self) -> None:
        """A victim that another fault took first is replaced by another."""
        for number, (fault, life, until) in list(self._armed.items()):
            if life.process.running and time.monotonic() < until:
                continue
            if not life.orders.take_back():
                continue  # it obeyed a moment ago, and is about to be found gone
            self._ordered.pop(life.book.number, None)
            if life.process.running:
                del self._armed[number]
                self._stage.troubles.append(
                    f"fault {number} ({fault.kind}): its point was not reached"
                )
                continue
            other = self._pack(fault).choose(fault.victim, at_work=True)
            if other is not None and not self._has_orders(other):
                self._order(fault, other)

    def _was_meant(self, pack: Pack, life: Life) -> bool:
        if life.book.number in self._leaving:
            hit = self._leaving.pop(life.book.number)
            self._replace(pack, pack.leave(life, "SIGTERM"), hit)
            return True
        fault = self._ordered.get(life.book.number)
        if fault is None or not life.orders.carried_out:
            return False
        self._armed.pop(fault.number, None)
        hit = self._hit(fault, life, POINTS[fault.kind].value)
        self._replace(pack, pack.leave(life, "kill -9"), hit)
        return True

    def _order(self, fault: Fault, life: Life) -> None:
        life.orders.give("kill", POINTS[fault.kind])
        self._ordered[life.book.number] = fault
        self._armed[fault.number] = (fault, life, time.monotonic() + _POINT_S)

    def _has_orders(self, life: Life) -> bool:
        """Whether it was told something that it has not done, or has just done."""
        return life.orders.path.exists() or life.orders.carried_out

    def _replace(self, pack: Pack, place: int, hit: Hit) -> None:
        name = hit.worker if hit.fault.same_name else ""

        def fill() -> None:
            if pack is self._workers and self._held_back:
                self._stage.later(0.2, fill)
                return
            pack.fill(place, name)
            hit.until_ms = now_ms()

        self._stage.later(hit.fault.down_s, fill)

    def _refill(self, pack: Pack, place: int, seconds: float) -> None:
        def fill() -> None:
            if pack is self._workers and self._held_back:
                self._stage.later(0.2, fill)
            else:
                pack.fill(place)

        self._stage.later(seconds, fill)

    def _pause(self, fault: Fault) -> bool:
        life = self._pack(fault).choose(fault.victim, at_work=True)
        if life is None:
            return False
        hit = self._hit(fault, life, life.point)
        life.process.pause()
        life.paused = True

        def resume() -> None:
            life.process.resume()
            life.paused = False
            hit.until_ms = now_ms()

        self._stage.later(fault.down_s, resume)
        return True

    def _drain(self, fault: Fault) -> bool:
        """The provider is slow until the queues are full; then SIGTERM."""
        life = self._workers.choose(fault.victim, at_work=True)
        if life is None or self._has_orders(life):
            return False
        self._weather.begin(fault.number, fault.kind)
        life.leaving = True
        self._stage.later(_FULL_S, lambda: self._term(fault, life))
        self._stage.later(_FULL_S + 2.0, lambda: self._weather.end(fault.number))
        return True

    def _term(self, fault: Fault, life: Life) -> None:
        if not life.process.running:
            self._stage.troubles.append(f"fault {fault.number} ({fault.kind}): its victim was gone")
            return
        held = self._fleet.books.in_flight_of(life.book.worker) if not self.away else -1
        hit = self._hit(fault, life, f"{held} in flight" if held >= 0 else life.point)
        self._leaving[life.book.number] = hit
        life.measure()
        life.process.terminate()

    # -- servers --

    def _flush(self, fault: Fault) -> bool:
        if "redis" in self.away:
            return False
        hit = self._hit(fault)
        with redis.Redis.from_url(self._stack.redis_url) as client:
            client.flushall()
        hit.until_ms = now_ms()
        return True

    def _break_mid_claim(self, fault: Fault) -> bool:
        """Hold a worker inside a claim's transaction, then stop the server."""
        life = self._workers.choose(fault.victim, at_work=True)
        if life is None or self._has_orders(life) or "postgres" in self.away:
            return False
        life.orders.give("hold", Point.CLAIM)

        def stop() -> None:
            deadline = time.monotonic() + _NO_CLAIM_S
            while not life.orders.carried_out and time.monotonic() < deadline:
                time.sleep(0.01)
            held = life.orders.carried_out
            life.orders.take_back()
            life.orders.forget()
            self._take_away(fault, "postgres", "mid-claim" if held else "no claim under way")

        self.away.add("postgres")
        self._beside(stop)
        return True

    def _break(self, fault: Fault) -> bool:
        server = "redis" if fault.kind is Kind.REDIS_DOWN else self._stack.brokers[0]
        if server in self.away:
            return False
        self.away.add(server)
        self._beside(lambda: self._take_away(fault, server, ""))
        return True

    def _take_away(
        self, fault: Fault, server: str, point: str, produce: Produce | None = None
    ) -> None:
        """`produce` is called while the server is away."""
        hit = self._hit(fault, point=point)
        try:
            if fault.kind is Kind.OUTAGE:
                self._stack.kill(server)
            else:
                self._stack.stop(server)
            hit.sent = produce(self._fleet, fault.kind) if produce is not None else []
            time.sleep(fault.down_s)
            self._stack.start(server)
        finally:
            hit.until_ms = now_ms()
            self.away.discard(server)

    def _starve(self, fault: Fault) -> bool:
        """Take Redis away for a minute while the provider refuses some and then takes them."""
        if "redis" in self.away:
            return False
        self.away.add("redis")
        self._weather.begin(fault.number, fault.kind)
        self._stage.later(_REFUSED_S, lambda: self._weather.end(fault.number))

        def starve() -> None:
            self._take_away(fault, "redis", "", bursts.produce)

        self._beside(starve)
        return True

    def _cut(self, fault: Fault) -> bool:
        """Lose replies to commits on the way to the worker and the recovery in the first places."""
        if "postgres" in self.away:
            return False
        hit, before = self._hit(fault), self._proxy.cuts
        self._proxy.cut_replies(_CUTS, _ends_a_commit)

        def look(more: int) -> None:
            """Whoever goes that way may just have been killed, and takes seconds to be back."""
            if self._proxy.cuts == before and more:
                self._stage.later(_HELD_S, partial(look, more - 1))
                return
            hit.effect = f"{self._proxy.cuts - before} replies lost"
            hit.until_ms = now_ms()
            self._proxy.cut_replies(0)

        self._stage.later(_HELD_S, partial(look, _PATIENCE))
        return True

    def _rebalance(self, fault: Fault) -> bool:
        """A stranger joins the group, takes partitions, and leaves."""
        if self.away & set(self._stack.brokers):
            return False
        hit = self._hit(fault)

        def visit() -> None:
            with self._fleet.intruder() as intruder:
                hit.effect = f"{len(intruder.held)} partitions taken"
                time.sleep(fault.down_s)
            hit.until_ms = now_ms()

        self._beside(visit)
        return True

    def _forget_offsets(self, fault: Fault) -> bool:
        """Kill every worker, and once the group is empty delete it with all its offsets."""
        if self.away & set(self._stack.brokers):
            return False
        self._held_back = True
        struck = [life for life in self._workers.running() if life.fit]
        hit = self._hit(fault, point=", ".join(life.point for life in struck))
        hit.lives = tuple(life.book.number for life in struck)
        for life in struck:
            self._refill(self._workers, self._workers.kill(life), 0.2)

        def delete() -> None:
            try:
                await_(self._delete_group, _GROUP_S, "the group is empty and deleted")
                hit.effect = "offsets deleted"
            finally:
                hit.until_ms = now_ms()
                self._held_back = False

        self._beside(delete)
        return True

    def _bare(self, fault: Fault) -> bool:
        """Kill every recovery while there is something to send again; none runs for longer than a lease."""
        struck = [life for life in self._recoveries.running() if life.fit]
        if len(struck) < len(self._recoveries.places):
            return False
        hit = self._hit(fault, point=", ".join(life.point for life in struck))
        hit.lives = tuple(life.book.number for life in struck)
        for life in struck:
            self._refill(self._recoveries, self._recoveries.kill(life), fault.down_s)
        self._weather.begin(fault.number, fault.kind)
        self._stage.later(fault.down_s, lambda: self._well(hit))
        self._beside(lambda: self._produce(hit))
        return True

    def _delete_group(self) -> bool:
        wire = self._fleet.wire
        try:
            wire.admin.delete_consumer_groups([wire.group])[wire.group].result()
        except KafkaException as exc:
            return bool(exc.args[0].name() == "GROUP_ID_NOT_FOUND")
        return True

    # -- the provider, and people --

    def _ail(self, fault: Fault) -> bool:
        """A spell of the provider's, or something produced; or both."""
        hit, spell = self._hit(fault), fault.down_s > 0
        if spell:
            self._weather.begin(fault.number, fault.kind)
            self._stage.later(fault.down_s, lambda: self._well(hit))
        if fault.kind not in ILLS:
            self._beside(lambda: self._produce(hit))
        return True

    def _well(self, hit: Hit) -> None:
        self._weather.end(hit.fault.number)
        hit.until_ms = now_ms()

    def _produce(self, hit: Hit) -> None:
        hit.sent = bursts.produce(self._fleet, hit.fault.kind)
        hit.effect = f"{len(hit.sent)} records produced"
        hit.until_ms = hit.until_ms or now_ms()

    def _race(self, fault: Fault) -> bool:
        """A person retries what was refused, over and over, as it comes due by itself."""
        if "postgres" in self.away:
            return False
        hit = self._hit(fault)
        self._weather.begin(fault.number, fault.kind)

        def retry() -> None:
            hit.sent = bursts.produce(self._fleet, fault.kind)
            keys = [key for sent in hit.sent for key in sent.keys]
            await_(lambda: self._fleet.books.states(keys)["RETRY"], _POINT_S, "some are refused")
            self._stage.later(fault.down_s, lambda: self._weather.end(fault.number))
            url = self._fleet.ground.database_url
            won, lost = person.race(url, keys, fault.down_s + _HELD_S)
            hit.effect = f"{won} retried by hand, {lost} times too late"
            hit.until_ms = now_ms()

        self._beside(retry)
        return True

    def _pause_lane(self, fault: Fault) -> bool:
        """A person pauses a lane in all processes, and resumes it. A second pause waits for the end of the
        first one, whose resume would end both."""
        lane = LANES[int(fault.victim * len(LANES))]
        if "postgres" in self.away or lane in self._paused:
            return False
        hit = self._hit(fault)
        hit.lane = lane
        self._paused.add(lane)

        def pause() -> None:
            url = self._fleet.ground.database_url
            found = person.pause(url, hit.lane, fault.down_s, lambda: self._wait_in_pause(hit))
            hit.quiet_ms, hit.resumed_ms = found
            hit.effect = f"{hit.lane} was paused, {len(hit.sent)} notifications waited"
            hit.until_ms = now_ms()
            self._paused.discard(lane)

        self._beside(pause)
        return True

    def _wait_in_pause(self, hit: Hit) -> None:
        hit.sent = bursts.of_paused(self._fleet, hit.lane)

    # -- how --

    def _beside(self, action: Callable[[], object]) -> None:
        """In a thread of its own; what goes wrong there is the run's trouble."""

        def act() -> None:
            try:
                action()
            except Exception as exc:
                self._stage.troubles.append(f"a fault could not be done: {exc!r}"[:2_000])

        helper = threading.Thread(target=act, daemon=True)
        self._helpers.append(helper)
        helper.start()

    def _hit(self, fault: Fault, life: Life | None = None, point: str = "") -> Hit:
        hit = Hit(fault, now_ms())
        if life is not None:
            hit.worker, hit.life = life.book.worker, life.book.number
        others = self.away - {"postgres"} if fault.kind is Kind.OUTAGE else self.away
        hit.point = ", ".join([*filter(None, [point]), *(f"{a} away" for a in sorted(others))])
        self._stage.note(hit)
        return hit


def _ends_a_commit(data: bytes) -> bool:
    """Whether an answer of the server's says that something was written: a transaction's end, or a
    statement that commits by itself (a claim ends as a SELECT)."""
    return b"COMMIT\0" in data or b"UPDATE " in data or b"SELECT 1\0" in data
