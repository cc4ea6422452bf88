"""One run: the business works off its numbers while everything is killed in turn; then its books."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
from confluent_kafka import KafkaException

from deploy.local.stack import Stack
from tests.chaos.producing.brokers import Brokers
from tests.chaos.producing.extent import Extent
from tests.chaos.producing.judge import Acceptance, ProducingBooks
from tests.chaos.producing.kills import Kills
from tests.chaos.producing.scene import Carriers, Scene
from tests.harness import TimedOut, await_

_TICK_S, _LOOK_S = 0.05, 1.0
_STALL_S = 300.0
"""Without progress for so long the run is given up, and judged as it stands."""
_SETTLE_S = 900.0
_MOST_KILLS = 400
_OPEN_ROWS = "state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN')"

Say = Callable[[str], None]
Show = Callable[[int], None]


class ProducingRun:
    """The driver. `say` is told of kills, `show` of the numbers at their end."""

    def __init__(
        self, scene: Scene, stack: Stack, extent: Extent, say: Say, show: Show, *, every_s: float
    ) -> None:
        self.brokers = Brokers(stack)
        self.seconds = 0.0
        self._scene, self._extent, self._every_s = scene, extent, every_s
        self._say, self._show = say, show
        self._troubles: list[str] = []
        self._done = 0
        self._kills_from = 0
        """The next kill waits for so many numbers at their end: a slow machine gets on, too."""
        self._progressed_at = self._looked_at = 0.0

    def run(self) -> ProducingBooks:
        """Returns the books once all that was committed has been sent, or nothing moves any more."""
        self.brokers.await_in_sync()
        carriers = self._scene.start(self._extent)
        kills = Kills(self._extent.seed, list(carriers), self.brokers, every_s=self._every_s)
        begun = self._progressed_at = time.monotonic()
        try:
            while not self._over(carriers):
                self._go_round(carriers, kills)
                time.sleep(_TICK_S)
            self.brokers.join()
            self._await_sent(carriers)
            self.seconds = time.monotonic() - begun
            for places in carriers:
                places.stop()
        finally:
            for places in carriers:
                places.discard()
        for places in carriers:
            self._troubles += places.book.troubles
        return self._books(kills)

    def _go_round(self, carriers: Carriers, kills: Kills | None) -> None:
        now = time.monotonic()
        for places in carriers:
            places.look_after(now)
        if now - self._looked_at >= _LOOK_S:
            self._looked_at = now
            self._scene.show_gateways(carriers.gateway)
            self._note_progress(self._scene.shop.count())
        if kills is None or self._done < self._kills_from:
            return
        if kind := kills.strike_if_due(now):
            self._kills_from = self._done + self._extent.total // _MOST_KILLS
            self._say(f"{self._done:>7,} at their end; killed: {kind} ({kills.total} in all)")

    def _over(self, carriers: Carriers) -> bool:
        if time.monotonic() - self._progressed_at > _STALL_S:
            self._troubles.append(f"no number came to its end for {_STALL_S:.0f} s: given up")
            return True
        return carriers.business.all_ended

    def _note_progress(self, done: int) -> None:
        if done != self._done:
            self._done, self._progressed_at = done, time.monotonic()
            self._show(done)

    # -- the end --

    def _await_sent(self, carriers: Carriers) -> None:
        """Until nothing is open in the outbox, in look-back and in the ledger, and all is read."""
        fleet = self._scene.fleet

        def ended() -> bool:
            self._go_round(carriers, None)
            return not self._left()

        try:
            await_(ended, _SETTLE_S, lambda: f"all is sent; left: {self._left()}")
            await_(self._all_read, _SETTLE_S, "the group has read everything")
        except (TimedOut, psycopg.Error, KafkaException) as exc:
            self._troubles.append(str(exc)[:2_000])
        self._troubles += [f"broker: {one}" for one in self.brokers.troubles]
        for worker in (*fleet.workers, *fleet.recoveries):
            if not worker.running:
                self._troubles.append(f"{worker.id} ended by itself with {worker.code}")

    def _left(self) -> dict[str, int]:
        """Returns what is open, by place; deliveries that are to come count, too."""
        shop, books = self._scene.shop, self._scene.fleet.books
        outbox = shop.outbox_states()
        lookback = self._lookback_states()
        (row,) = books.query(
            f"SELECT count(*) AS n, count(*) FILTER (WHERE {_OPEN_ROWS}) AS open FROM deliveries"
        )
        left = {
            "outbox": outbox.get("PENDING", 0) + outbox.get("SENDING", 0),
            "look-back": sum(lookback.values())
            - sum(lookback.get(one, 0) for one in ("FORWARDED", "ROLLED_BACK", "UNRESOLVED")),
            "ledger": int(row.open),
            "to come": max(0, self._extent.committed - int(row.n)),
        }
        return {name: count for name, count in left.items() if count}

    def _all_read(self) -> bool:
        """Whether the group has committed each topic's end."""
        wire = self._scene.fleet.wire
        committed = wire.committed(self._scene.fleet.topics)
        ends = {p: end for topic in self._scene.fleet.topics for p, end in wire.ends(topic).items()}
        return all(committed[place].offset >= end or not end for place, end in ends.items())

    def _lookback_states(self) -> dict[str, int]:
        return self._counts("lookback_transactions")

    def _counts(self, table: str) -> dict[str, int]:
        statement = f"SELECT state, count(*) AS n FROM {table} GROUP BY state"
        rows: list[Any] = self._scene.fleet.books.query(statement)
        return {str(row.state): int(row.n) for row in rows}

    def _books(self, kills: Kills) -> ProducingBooks:
        shop, provider = self._scene.shop, self._scene.fleet.provider
        accepted = [Acceptance(r.id, r.receiver) for r in provider.records() if r.accepted]
        return ProducingBooks(
            extent=self._extent,
            orders=shop.orders(),
            refused=shop.refused(),
            accepted=accepted,
            ledger=self._counts("hongyan_deliveries"),
            outbox=shop.outbox_states(),
            lookback=self._lookback_states(),
            kills=kills.counts,
            troubles=self._troubles,
        )
