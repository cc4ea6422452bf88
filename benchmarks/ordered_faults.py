"""The faults of `benchmarks.ordered`, and who watches the ledger meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psycopg

from benchmarks.processes import Program
from message.states import OPEN

AWAY_S: Final = 3.0
GRACE_S: Final = 5.0
"""After a fault is over, what it left behind may still be late: leases end, clients connect again."""
_POLL_S: Final = 0.1
_LOOK_S: Final = 0.5
_OPEN: Final = ", ".join(f"'{state}'" for state in sorted(OPEN))
# A row that sleeps behind another is not due. A row that was given back is its next reader's.
_OVERDUE: Final = """
SELECT coalesce(max(hongyan_now() - next_at), 0) FROM (
    SELECT next_at FROM deliveries
     WHERE state = 'RETRY' AND next_at <= hongyan_now() AND reason IS DISTINCT FROM 'given_back'
     ORDER BY next_at LIMIT 1) AS oldest"""


class Crowd:
    """The workers and recoveries of a run; each can be killed and started again under its own name."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, workers: int, recoveries: int
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._kinds = {"worker": workers, "recovery": recoveries}
        self._running: dict[str, Program] = {}
        self._turns = {kind: cycle(range(count)) for kind, count in self._kinds.items()}
        self._lives = 0

    def __enter__(self) -> Self:
        try:
            for kind, count in self._kinds.items():
                for number in range(count):
                    self._start(kind, number)
            for program in self._running.values():
                program.await_ready()
        except BaseException:  # no process may outlive the benchmark
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()

    def replace(self, kind: str) -> None:
        """Kill the next one of the kind with -9, start it again and wait until it is ready."""
        number = next(self._turns[kind])
        self._running[f"{kind}-{number}"].kill()
        self._start(kind, number)
        self._running[f"{kind}-{number}"].await_ready()

    def _start(self, kind: str, number: int) -> None:
        self._lives += 1
        name = f"{kind}-{number}"
        # A name of its own for each life: what one leaves behind is swept once its lease is over.
        own = {f"HONGYAN_{kind.upper()}__ID": f"{name}-{self._lives}"}
        log = self._folder / f"{name}-{self._lives}.log"
        self._running[name] = Program([kind], {**self._environment, **own}, log)

    def _kill_all(self) -> None:
        for program in self._running.values():
            program.kill()


class DatabaseStop:
    """The run's database, away as if its server were stopped: nobody may connect, and who was is cut."""

    def __init__(self, server_url: str, name: str) -> None:
        self._server = server_url.replace("+psycopg", "")
        self._name = name

    def strike(self) -> None:
        """Away, and back after AWAY_S."""
        with psycopg.connect(self._server, autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{self._name}" WITH ALLOW_CONNECTIONS false')
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            try:
                admin.execute(cut, (self._name,))
                time.sleep(AWAY_S)
            finally:
                admin.execute(f'ALTER DATABASE "{self._name}" WITH ALLOW_CONNECTIONS true')


class Watcher:
    """Looks at the ledger twice a second, through a connection of its own; one thread."""

    def __init__(self, url: str) -> None:
        self.overdue_ms = 0  # written by `_watch`
        self._url = url.replace("+psycopg", "")
        self._died: BaseException | None = None  # written by `_run`
        self._excused_until = 0.0  # monotonic; `excuse` writes it
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(10)
        if error is None and (self._died or self._thread.is_alive()):
            raise RuntimeError("nobody watched to the end") from self._died

    def excuse(self, seconds: float) -> None:
        """Do not count delays within so many seconds from now."""
        self._excused_until = time.monotonic() + seconds

    def open_rows(self) -> int:
        """Rows that are not settled."""
        return sum(count for state, count in self.states().items() if state in OPEN)

    def states(self) -> dict[str, int]:
        """The ledger's rows by state."""
        counted = "SELECT state, count(*) FROM deliveries GROUP BY state"
        with psycopg.connect(self._url, autocommit=True) as connection:
            return {str(state): int(count) for state, count in connection.execute(counted)}

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as exc:  # `__exit__` raises it
            self._died = exc

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_S):
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    while not self._stop.wait(_LOOK_S):
                        self._look(connection)
            except psycopg.OperationalError:
                continue  # a fault of ours: the database is away

    def _look(self, connection: psycopg.Connection[tuple[int]]) -> None:
        row = connection.execute(_OVERDUE).fetchone()
        if row is not None and time.monotonic() > self._excused_until:
            self.overdue_ms = max(self.overdue_ms, int(row[0]))


def strike(
    fault: str, crowd: Crowd, outage: DatabaseStop, watcher: Watcher, when: Callable[[], bool]
) -> int:
    """Let the fault strike once `when` says so; returns when it was over, epoch milliseconds."""
    while not when():
        time.sleep(_POLL_S)
    watcher.excuse(60.0)
    if fault == "database":
        outage.strike()
    else:
        crowd.replace(fault)
    watcher.excuse(GRACE_S)
    return int(time.time() * 1_000)
