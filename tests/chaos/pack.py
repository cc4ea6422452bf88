"""The pack: three places, each with a worker process in it, and the book of every life so far."""

from __future__ import annotations

import time
from pathlib import Path

from tests.chaos import logs
from tests.chaos.books import LifeBook
from tests.harness import Fleet, WorkerProcess, now_ms

SIZE = 3
_STOP_S = 30.0


class Life:
    """One worker process and its book."""

    def __init__(self, process: WorkerProcess, book: LifeBook) -> None:
        self.process = process
        self.book = book
        self.paused = False

    def measure(self) -> None:
        """Take down the most memory it ever held."""
        self.book.peak_mb = max(self.book.peak_mb, peak_mb(self.process.pid))

    def end(self, by: str) -> None:
        """It is gone: close its book."""
        self.book.ended_ms, self.book.ended_by = now_ms(), by
        self.book.code = self.process.code
        if not by:
            self.book.tail = self.process.tail()

    def read_log(self) -> None:
        """What the whole log shows, once."""
        text = self.process.log_text()
        self.book.lapses_ms = logs.lapses_ms(text)
        self.book.complaints = logs.complaints(text)


class Pack:
    """Belongs to the driver's thread."""

    def __init__(self, fleet: Fleet) -> None:
        self.lives: list[Life] = []
        self.places: list[Life | None] = [None] * SIZE
        self._fleet = fleet
        self._names = 0

    def start(self) -> None:
        """Fill every place and wait until the partitions are shared out."""
        for place in range(SIZE):
            self.fill(place)
        workers = [life.process for life in self.running()]
        for worker in workers:
            worker.wait_ready()
        self._fleet.await_shared_out(workers)

    def fill(self, place: int, name: str = "") -> Life:
        """Start a worker in a place, under this id or one never used."""
        if not name:
            self._names += 1
            name = f"{self._fleet.ground.topic_prefix}-w{self._names}"
        book = LifeBook(len(self.lives), name, now_ms())
        life = Life(self._fleet.worker(name), book)
        self.lives.append(life)
        self.places[place] = life
        return life

    def running(self) -> list[Life]:
        """Those that run, paused ones too."""
        return [life for life in self.places if life is not None]

    def choose(self, luck: float) -> Life | None:
        """One of those that run and are not paused: who sleeps past its lease shall wake up."""
        fit = [life for life in self.running() if not life.paused]
        return fit[int(luck * len(fit))] if fit else None

    def kill(self, life: Life) -> int:
        """SIGKILL; the place that is empty now."""
        life.measure()
        life.process.kill()
        life.end("kill -9")
        place = self.places.index(life)
        self.places[place] = None
        return place

    def bury(self) -> list[tuple[int, Life]]:
        """Those that ended by themselves since the last call, with their places."""
        dead = [
            (place, life)
            for place, life in enumerate(self.places)
            if life is not None and not life.process.running
        ]
        for place, life in dead:
            life.end("")
            self.places[place] = None
        return dead

    def measure(self) -> None:
        """The memory of all that run."""
        for life in self.running():
            life.measure()

    def stop(self) -> None:
        """SIGTERM to all once they are ready, and wait; one that does not end in time has no code."""
        self.bury()
        lives = self.running()
        for life in lives:
            life.process.wait_ready()  # Python itself ends at a SIGTERM until the worker listens
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

    def books(self) -> list[LifeBook]:
        """Every life's book, with what its log shows."""
        for life in self.lives:
            life.read_log()
        return [life.book for life in self.lives]


def peak_mb(pid: int) -> float:
    """The most resident memory a process ever held; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return float(lines.get("VmHWM", "0 kB").split()[0]) / 1_024
