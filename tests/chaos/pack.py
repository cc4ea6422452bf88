"""The packs: three places for workers and two for recoveries, each with a process in it, and the book of
every life so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.chaos import logs
from tests.chaos.books import LifeBook
from tests.chaos.points import Orders
from tests.harness import Fleet, WorkerProcess, now_ms
from tests.harness.worker import RecoveryProcess

WORKERS, RECOVERIES = 3, 2
_STOP_S = 30.0
_FAULT = "has_points"

Environment = Callable[[int], Mapping[str, str]]
"""The settings of the process in a place, by their variables' names."""


class Life:
    """One process and its book."""

    def __init__(self, process: WorkerProcess, book: LifeBook, orders: Orders) -> None:
        self.process = process
        self.book = book
        self.orders = orders
        self.paused = False
        self.leaving = False
        """It was told to end."""

    @property
    def fit(self) -> bool:
        """Whether a fault may strike it: who sleeps past its lease shall wake up."""
        return not self.paused and not self.leaving and self.process.running

    @property
    def point(self) -> str:
        """How far it has come."""
        return logs.point_of(self.process.log_text())

    def measure(self) -> None:
        """Take down the most memory it ever held."""
        self.book.peak_mb = max(self.book.peak_mb, peak_mb(self.process.pid))

    def end(self, by: str) -> None:
        """It is gone: close its book."""
        self.book.ended_ms, self.book.ended_by = now_ms(), by
        self.book.code = self.process.code
        self.orders.take_back()
        if not by:
            self.book.tail = self.process.tail()

    def read_log(self) -> None:
        """What the whole log shows, once."""
        text = self.process.log_text()
        self.book.lapses_ms = logs.lapses_ms(text)
        self.book.complaints = logs.complaints(text)


class Pack:
    """One kind of process. Belongs to the driver's thread."""

    def __init__(
        self,
        fleet: Fleet,
        lives: list[Life],
        kind: type[WorkerProcess],
        size: int,
        environment: Environment,
    ) -> None:
        """`lives` is shared by all packs: numbers are given once."""
        self.places: list[Life | None] = [None] * size
        self._fleet = fleet
        self._lives = lives
        self._kind = kind
        self._environment = environment
        self._names = 0

    def start(self) -> list[Life]:
        """Fill every place and wait until all are ready."""
        lives = [self.fill(place) for place in range(len(self.places))]
        for life in lives:
            life.process.wait_ready()
        return lives

    def fill(self, place: int, name: str = "") -> Life:
        """Start a process in a place, under this id or one never used."""
        if not name:
            self._names += 1
            name = f"{self._fleet.ground.topic_prefix}-{self._kind.program[0]}{self._names}"
        role = self._kind.program
        book = LifeBook(len(self._lives), name, now_ms(), role=role)
        orders = Orders(self._fleet.folder / f"orders-{book.number}")
        variables = {
            "HONGYAN_CONFIG": str(self._fleet.config),
            "CHAOS_ORDERS": str(orders.path),
            **{f"HONGYAN_{key}": value for key, value in self._environment(place).items()},
        }
        process = self._kind(name, self._fleet.folder, variables, fault=_FAULT)
        held: list[WorkerProcess] = self._fleet.workers
        held.append(process)
        life = Life(process, book, orders)
        self._lives.append(life)
        self.places[place] = life
        return life

    def running(self) -> list[Life]:
        """Those that have a place, paused ones too."""
        return [life for life in self.places if life is not None]

    def choose(self, luck: float, *, at_work: bool = False) -> Life | None:
        """One of those that may be struck; `at_work`: of those that have started."""
        fit = [life for life in self.running() if life.fit]
        if at_work:
            fit = [life for life in fit if life.point == "at work"]
        return fit[int(luck * len(fit))] if fit else None

    def kill(self, life: Life) -> int:
        """SIGKILL; the place that is empty now."""
        life.measure()
        life.process.kill()
        return self.leave(life, "kill -9")

    def leave(self, life: Life, by: str) -> int:
        """It is gone, and why is known; the place that is empty now."""
        life.end(by)
        place = self.places.index(life)
        self.places[place] = None
        return place

    def gone(self) -> list[Life]:
        """Those that have a place and do not run any more."""
        return [life for life in self.running() if not life.process.running]

    def measure(self) -> None:
        """The memory of all that run."""
        for life in self.running():
            life.measure()

    def stop(self) -> None:
        """SIGTERM to all once they are ready, and wait; one that does not end in time has no code."""
        lives = [life for life in self.running() if life.process.running]
        for life in lives:
            life.process.wait_ready()  # Python itself ends at a SIGTERM until the process listens
        for life in lives:
            life.measure()
            life.process.terminate()
        deadline = time.monotonic() + _STOP_S
        for life in lives:
            try:
                life.process.wait(max(deadline - time.monotonic(), 0.1))
            except AssertionError:
                pass
            life.end("SIGTERM")


def packs(fleet: Fleet, database_url: str) -> tuple[list[Life], Pack, Pack]:
    """(every life, the workers, the recoveries). Each pack's first reaches the ledger by `database_url`;
    the second recovery has no Redis, and so the built-in loop in place of Celery."""

    def reached(place: int) -> dict[str, str]:
        return {"DATABASE__URL": database_url} if place == 0 else {}

    def recovering(place: int) -> dict[str, str]:
        return reached(place) if place == 0 else {"REDIS__URL": ""}

    lives: list[Life] = []
    workers = Pack(fleet, lives, WorkerProcess, WORKERS, reached)
    recoveries = Pack(fleet, lives, RecoveryProcess, RECOVERIES, recovering)
    return lives, workers, recoveries


def peak_mb(pid: int) -> float:
    """The most resident memory a process ever held; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return float(lines.get("VmHWM", "0 kB").split()[0]) / 1_024
