"""One run of tellers under kill -9, theirs and of brokers: what became of each yes in their journals?"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from deploy.local.stack import Stack
from simulator import Lists, spawn
from tests.chaos.producing.brokers import Brokers
from tests.chaos.producing.kills import Kills
from tests.chaos.producing.places import Places
from tests.chaos.producing.processes import TellerProcess
from tests.chaos.producing.scene import LANE_POLICY, START_S, WORKER_LEASE_S, make_topics
from tests.chaos.producing.teller import (
    LANE,
    ORDER_VARIABLE,
    TellerOrder,
    Yes,
    enough_of,
    journal_of,
    read_journal,
)
from tests.harness import Fleet, TimedOut, await_, ground_on
from tests.spark_jobs.truth.program import Program

TELLERS, _WORKERS = 3, 2
_PAUSE_S = 0.5
_TICK_S, _LOOK_S = 0.05, 1.0
_STALL_S, _SETTLE_S = 300.0, 900.0
_SPARK: Mapping[str, object] = {
    "spark.ui.showConsoleProgress": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class JournalBooks:
    """All that is known at the end."""

    yeses: list[Yes]
    states: Mapping[str, str]
    """The ledger's state of each message."""
    accepted: Counter[str]
    """How often the provider accepted each message."""
    found_lost: list[tuple[str, str]]
    """Subject and cause of each finding of `hongyan spark lost`."""
    ingested: int
    """Records that the job read: a job that read nothing finds nothing."""
    kills: Mapping[str, int]
    troubles: list[str]


class JournalRun:
    """The driver."""

    def __init__(
        self,
        fleet: Fleet,
        stack: Stack,
        *,
        seed: int,
        count: int,
        every_s: float,
        say: Callable[[str], None],
        show: Callable[[int], None],
    ) -> None:
        self.brokers = Brokers(stack)
        self.seconds = 0.0
        self._fleet, self._seed, self._every_s = fleet, seed, every_s
        self._share = -(-count // TELLERS)
        self._say, self._show = say, show
        self._troubles: list[str] = []
        self._lives = 0

    def run(self) -> JournalBooks:
        """Returns the books once everything was sent, and the Spark jobs have looked."""
        self.brokers.await_in_sync()
        for worker in [self._fleet.worker() for _ in range(_WORKERS)]:
            worker.wait_ready(START_S)
        self._fleet.recovery()
        tellers = Places("teller", TELLERS, self._teller, may_end=True)
        kills = Kills(self._seed, [tellers], self.brokers, every_s=self._every_s)
        begun = time.monotonic()
        try:
            self._tell(tellers, kills)
        finally:
            tellers.discard()
        self.brokers.join()
        self._troubles += [*tellers.book.troubles, *self.brokers.troubles]
        self._await_sent()
        self.seconds = time.monotonic() - begun
        return self._books(kills)

    def _tell(self, tellers: Places, kills: Kills) -> None:
        """Until each teller has its count and an empty spool."""
        told = 0
        looked_at = 0.0
        progressed_at = time.monotonic()
        while not tellers.all_ended:
            now = time.monotonic()
            tellers.look_after(now)
            if now - looked_at >= _LOOK_S:
                looked_at, before, told = now, told, len(self._yeses())
                progressed_at = now if told != before else progressed_at
                self._show(told)
            if now - progressed_at > _STALL_S:
                self._troubles.append(f"no yes for {_STALL_S:.0f} s: given up")
                return
            if self._is_enough(kills):
                enough_of(self._fleet.folder).touch()
            if kind := kills.strike_if_due(now):
                self._say(f"{told:>7,} yeses; killed: {kind} ({kills.total} in all)")
            time.sleep(_TICK_S)

    def _is_enough(self, kills: Kills) -> bool:
        """Whether each broker was killed, and the tellers more than once each."""
        return min(self.brokers.kills.values()) > 0 and kills.counts["teller"] > TELLERS

    def _teller(self, place: int) -> TellerProcess:
        self._lives += 1
        ground = self._fleet.ground
        order = TellerOrder(
            place=place,
            count=self._share,
            pause_s=_PAUSE_S,
            folder=str(self._fleet.folder),
            bootstrap=ground.bootstrap,
            prefix=ground.topic_prefix,
        )
        told = {ORDER_VARIABLE: msgspec.json.encode(order).decode()}
        return TellerProcess(f"t{self._lives}", self._fleet.folder, told)

    def _yeses(self) -> list[Yes]:
        folder = self._fleet.folder
        return [one for place in range(TELLERS) for one in read_journal(journal_of(folder, place))]

    def _await_sent(self) -> None:
        """Until the group has read every record, and no delivery is open."""

        def ended() -> bool:
            states = self._fleet.books.states()
            return not (states["IN_FLIGHT"] or states["RETRY"] or states["UNKNOWN"])

        try:
            await_(self._all_read, _SETTLE_S, "the group has read everything")
            await_(ended, _SETTLE_S, "no delivery is open")
        except TimedOut as exc:
            self._troubles.append(str(exc)[:2_000])

    def _all_read(self) -> bool:
        wire, topics = self._fleet.wire, self._fleet.topics
        committed = wire.committed(topics)
        ends = {place: end for topic in topics for place, end in wire.ends(topic).items()}
        return all(committed[place].offset >= end or not end for place, end in ends.items())

    def _books(self, kills: Kills) -> JournalBooks:
        program, books = Program(self._fleet.config), self._fleet.books
        program.run("spark", "rebuild")
        program.run("spark", "lost")
        runs = books.query("SELECT figures FROM spark_runs WHERE job = 'ingest' AND state = 'DONE'")
        records = self._fleet.provider.records()
        rows = books.query("SELECT message_id, state FROM hongyan_deliveries")
        return JournalBooks(
            yeses=self._yeses(),
            states={row.message_id: row.state for row in rows},
            accepted=Counter(one.id for one in records if one.accepted),
            found_lost=[
                (row.subject, row.cause)
                for row in books.query("SELECT subject, cause FROM lost_findings")
            ],
            ingested=sum(json.loads(run.figures)["rows"].get("records", 0) for run in runs),
            kills=kills.counts,
            troubles=self._troubles,
        )


def journal_problems(books: JournalBooks) -> Iterator[str]:
    """Yields the broken promises. Pure."""
    lost = [one.id for one in books.yeses if books.states.get(one.id) not in ("SENT", "DELIVERED")]
    if lost:
        yield f"answered yes, and not sent: {lost[:5]} ({len(lost)} in all)"
    unsent = [one.id for one in books.yeses if books.accepted[one.id] != 1]
    if unsent:
        yield f"the provider did not accept exactly once: {unsent[:5]} ({len(unsent)} in all)"
    if books.found_lost:
        yield f"`hongyan spark lost` found {books.found_lost[:5]} ({len(books.found_lost)} in all)"
    if books.ingested < len(books.yeses):
        yield f"the jobs read {books.ingested} records of {len(books.yeses)}"
    if not any(one.spooled for one in books.yeses):
        yield "no yes came from a spool: the run proves nothing about it"
    for name, count in books.kills.items():
        if not count:
            yield f"nothing of this kind was killed: {name}"
    yield from books.troubles


@contextmanager
def tellers_on(stack: Stack, folder: Path) -> Iterator[Fleet]:
    """Yields a fleet on a stack of three brokers; ends its processes afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        ground = held.enter_context(ground_on(stack))
        provider = held.enter_context(spawn(folder, lists=Lists(status_query=True, lag_ms=0)))
        spark = {"warehouse": str(folder / "warehouse"), "properties": dict(_SPARK)}
        fleet = held.enter_context(
            Fleet(
                ground,
                folder,
                lanes=[LANE],
                policy={LANE: LANE_POLICY},
                settings={
                    "recovery": {"lease_s": WORKER_LEASE_S, "health_address": "127.0.0.1:0"},
                    "trace": {"database": False},
                    "spark": spark,
                },
                lease_s=WORKER_LEASE_S,
                session_timeout_s=20.0,
                provider=provider,
                make_topics=False,
            )
        )
        make_topics(fleet)
        yield fleet
