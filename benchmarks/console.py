"""`hongyan bench console`: a console over a large ledger, with a worker at full rate beside it.

Searches are asked of `idempotency.search.Search` in this process, as the page does it; the overview, and
pages that exist, of a real `hongyan console` by HTTP, which is judged by its own clock. Twenty clients ask
at once: each one again a second after its question (judged), then without a pause (shown as `busy`).
Freezing runs the product's own steps.
"""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from sqlalchemy import make_url

from admin.pages import HANDLERS
from admin.parts import READ_STATEMENT_MS
from admin.web.navigation import ENTRIES
from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database
from benchmarks.console_client import ConsoleProgram, console_on, watch
from benchmarks.console_data import Shape, database_of, fill
from benchmarks.console_load import CLIENTS, EVERY_S, AnswerTimes, ask_at_once
from benchmarks.console_questions import Line, Samples, asker, lines, read_samples
from benchmarks.console_sql import HASH_KEY, LANE_SHARES
from benchmarks.ground import LANE, Servers, environment_for, preloaded
from benchmarks.processes import Program
from idempotency.resend_jobs.contract import JobFilter, JobLimits, JobState, ResendMode
from idempotency.resend_jobs.store import NewJob
from idempotency.search.store import Search
from idempotency.sql_ledger import open_ledger
from message.receiver_hash import hasher
from tracing import stories

BAR_MS: Final = 50.0
LATE: Final = 0.05
"""Share of a console's answers that may take longer than the bar, so that their p95 is within it."""
FREEZE_BAR_S: Final = 60.0
FREEZE_ROWS: Final = 1_000_000
PAGE_BAR_KB: Final = 150.0
WATCHERS: Final = 200
WATCH_BAR: Final = 1.1
"""Queries of 200 watchers over those of one; a query more or less is chance."""
WATCH_S: Final = 70.0
"""Longer than the minute after which each stream asks for its session."""
SECONDS: Final = 5.0
WORKER_PER_SECOND: Final = 7_000
"""Deliveries of the worker beside, more than it was ever seen to send: it has enough to the end."""
_BETWEEN_S: Final = 4.0
"""First answers of each kind of question, which are not counted."""
_POOL: Final = 8
_BY_HTTP: Final = ", by HTTP"
_ENDED: Final = ("PARKED", "REJECTED", "EXPIRED", "UNDELIVERED", "DROPPED")
_POLICY: Final = f"""
[lanes."{LANE.name}"]
threads = 64
accounts = ["none"]
"""
_CONFIGURATION: Final = """
[accounts.none]
provider = "null"
endpoint = "http://127.0.0.1:9"
"""
Say = Callable[[str], None]


class ConsoleLoad(msgspec.Struct, frozen=True):
    """The questions, and their time."""

    seconds: float = SECONDS
    every_s: float = EVERY_S
    watch_s: float = WATCH_S
    freeze_rows: int = FREEZE_ROWS
    with_worker: bool = False
    only: Sequence[str] = ()
    """Names of questions; empty: all, with pages, watchers and freezing."""

    @property
    def worker_records(self) -> int:
        """Returns how many notifications wait for the worker: enough for all questions."""
        questions = len(self.only) or 2 * (len(lines()) + 1)
        return round(questions * (1.5 * self.seconds + _BETWEEN_S) * WORKER_PER_SECOND)


def measure(
    servers: Servers,
    *,
    load: ConsoleLoad,
    shape: Shape,
    database_url: str = "",
    keep: bool = False,
    say: Say = print,
) -> dict[str, Any]:
    """Fills a database, or takes the one of that address, and measures. Raises ValueError, RuntimeError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        url = database_url
        if not url:
            name = f"console_bench_{uuid.uuid4().hex[:8]}"
            url = stack.enter_context(database_of(servers, name, kept=keep))
            say(f"filled: {msgspec.to_builtins(fill(url, shape, say))}")
        samples = read_samples(url, shape.seed)
        records = load.worker_records
        worker = _worker(servers, folder, url, records) if load.with_worker else nullcontext(None)
        beside = stack.enter_context(worker)
        return _measured(url, folder, samples, load, beside, say)


def _measured(
    url: str, folder: Path, samples: Samples, load: ConsoleLoad, worker: Program | None, say: Say
) -> dict[str, Any]:
    report: dict[str, Any] = {"clients": CLIENTS, "medians": {}, "failed_by": {}, "ratios": []}
    before, began = (worker.settled() if worker else 0), time.monotonic()
    with console_on(url, _environment(folder), folder) as console:
        for name, ask in _asked(url, samples, console):
            if not load.only or name in load.only:
                server = ServerTimes(console, _route(name))
                found = ask_at_once(
                    ask,
                    seconds=load.seconds,
                    every_s=load.every_s,
                    began=server.begin,
                    ended=server.end,
                )
                figures = msgspec.to_builtins(found)
                if failed_by := figures.pop("failed_by"):  # a table of medians has numbers alone
                    report["failed_by"][name] = failed_by
                report["medians"][name] = figures
                report["ratios"].append(_judged(name, found, server))
                say(f"{name:28} {_line(found)}{server.line}")
        if worker is not None:
            rate = (worker.settled() - before) / (time.monotonic() - began)
            report["worker_per_second"] = round(rate, 1)
            report["worker_busy"] = worker.settled() < load.worker_records
            say(
                f"worker beside: {rate:,.0f} deliveries/s, busy to the end: {report['worker_busy']}"
            )
        if not load.only:
            report["ratios"] += [*_pages(console, say), _watched(console, url, load, say)]
    if not load.only:
        frozen = frozen_selection(url, load.freeze_rows)
        report["frozen"] = frozen
        report["ratios"].append(_freeze_ratio(frozen))
        say(f"frozen: {frozen}")
    return report


class ServerTimes:
    """A console's own times of one route, while twenty clients ask with pauses."""

    def __init__(self, console: ConsoleProgram, route: str) -> None:
        self.route = route
        """Empty: the questions are not asked of the console."""
        self.late = 0.0
        """Share of the answers that took longer than the bar, 0 to 1."""
        self._console = console
        self._before = (0.0, 0.0)

    def begin(self) -> None:
        """Notes what was counted so far. One of the clients' threads calls it, the others wait."""
        if self.route:
            self._before = self._counted()

    def end(self) -> None:
        """Reads what was counted since."""
        if self.route:
            every, in_time = (
                now - then for now, then in zip(self._counted(), self._before, strict=True)
            )
            if not every:
                raise RuntimeError(f"the console timed no answer of {self.route}")
            self.late = round(1 - in_time / every, 4)

    @property
    def line(self) -> str:
        """For the terminal."""
        return f"   later than {BAR_MS:g} ms at the server: {self.late:.1%}" if self.route else ""

    def _counted(self) -> tuple[float, float]:
        return self._console.answered(self.route, BAR_MS / 1_000)


def _route(name: str) -> str:
    """Returns the console's route of a kind of question; empty for one that is asked in this process."""
    if not name.endswith(_BY_HTTP):
        return ""
    pages = {f"overview{_BY_HTTP}": "GET /", f"timeline{_BY_HTTP}": "GET /deliveries/{key}"}
    return pages.get(name, "GET /search")


def _asked(
    url: str, samples: Samples, console: ConsoleProgram
) -> Iterator[tuple[str, Callable[[random.Random], object]]]:
    """Yields the questions: of the search, of one delivery's story, and of pages that exist."""
    paths = {path for one in HANDLERS for path in one.paths}
    yield f"overview{_BY_HTTP}", lambda _pick: console.get("/")
    with closing(_reads(url)) as reads:
        ask = asker(Search(reads, hasher(HASH_KEY)), samples)
        for name, line in lines().items():
            yield name, partial(_ask, ask, line, samples)
            if "/search" in paths:
                yield f"{name}{_BY_HTTP}", partial(_ask, console.search, line, samples)
        yield (
            "timeline",
            lambda pick: stories.find(reads, pick.choice(samples.rows).delivery_key),
        )
    if any(path.startswith("/deliveries/{") for path in paths):
        yield (
            f"timeline{_BY_HTTP}",
            lambda pick: console.get(f"/deliveries/{pick.choice(samples.rows).delivery_key}"),
        )


def _ask(ask: Callable[[str], object], line: Line, samples: Samples, pick: random.Random) -> object:
    return ask(line(pick, samples))


def _reads(url: str) -> Database:
    """Returns a pool as the console has it for pages."""
    limit = READ_STATEMENT_MS
    return Database(make_url(url), pool_size=_POOL, statement_ms=limit, keeps_plans=True)


def frozen_selection(url: str, rows: int = FREEZE_ROWS) -> dict[str, float]:
    """Freezes what ended unsent, in all lanes, up to so many rows. Returns the rows and the seconds; the
    items go afterwards."""
    with closing(open_ledger(Settings(database=DatabaseSettings(url=url)))) as ledger:
        store, freezing = ledger.resend_jobs(), ledger.job_freezing()
        lanes = [lane for lane, _share in LANE_SHARES]
        wanted = JobFilter(states=_ENDED, lanes=lanes, in_doubt=True, expired=True)
        job = store.make(
            NewJob(
                id=uuid.uuid4().hex,
                mode=ResendMode.AGAIN,
                wanted=wanted,
                limits=JobLimits(),
                author="benchmark",
                reason="benchmark",
            )
        )
        began = time.monotonic()
        while job.state is JobState.FREEZING and job.items < rows:
            job = freezing.page(job)
        seconds = time.monotonic() - began
        with ledger.database.begin() as connection:
            for table in ("items", "counts", "names"):
                connection.exec_driver_sql(f"TRUNCATE resend_job_{table}")
            connection.exec_driver_sql("DELETE FROM resend_jobs")
    each = seconds / max(job.items, 1)
    return {
        "rows": job.items,
        "seconds": round(seconds, 2),
        "seconds_of_a_million": round(each * FREEZE_ROWS, 1),
    }


@contextmanager
def _worker(servers: Servers, folder: Path, url: str, records: int) -> Iterator[Program]:
    """A worker at full rate on the database: its provider answers at once."""
    environment = _environment(folder)
    with preloaded(servers, records) as prefix:
        policy = folder / "policy.toml"
        own = environment_for(servers, prefix, prefix, url, policy)
        with Program(["worker"], environment | own, folder / "worker.log") as worker:
            worker.await_ready()
            while not worker.settled():
                time.sleep(0.1)
            yield worker


def _environment(folder: Path) -> dict[str, str]:
    (folder / "hongyan.toml").write_text(_CONFIGURATION)
    (folder / "policy.toml").write_text(_POLICY)
    unused = Servers("127.0.0.1:9", "", "redis://127.0.0.1:9/0")
    return environment_for(unused, "bench", "bench", "", folder / "policy.toml")


def _pages(console: ConsoleProgram, say: Say) -> Iterator[dict[str, Any]]:
    """Yields the cold size of the largest page of the navigation."""
    paths = {path for one in HANDLERS for path in one.paths}
    sizes = {e.path: console.cold_bytes(e.path) / 1_000 for e in ENTRIES if e.path in paths}
    for path, size in sizes.items():
        say(f"{path:28} {size:8.1f} kB cold")
    path = max(sizes, key=lambda one: sizes[one])
    yield _ratio(f"largest page cold ({path}), kB", round(sizes[path], 1), PAGE_BAR_KB)


def _watched(console: ConsoleProgram, url: str, load: ConsoleLoad, say: Say) -> dict[str, Any]:
    """Returns the transactions of many watchers over those of one."""
    found = {}
    for watchers in (1, WATCHERS):
        queries, events = asyncio.run(watch(console, watchers, load.watch_s, url))
        found[watchers] = max(queries, 1)
        say(f"{watchers:>4} watchers: {queries} queries, {events} events in {load.watch_s:g} s")
    ratio = round(found[WATCHERS] / found[1], 2)
    return _ratio(f"queries of {WATCHERS} watchers / of one", ratio, WATCH_BAR)


def _freeze_ratio(frozen: Mapping[str, float]) -> dict[str, Any]:
    title = f"frozen selection of 1 M rows, s (from {frozen['rows']:,.0f})"
    return _ratio(title, frozen["seconds_of_a_million"], FREEZE_BAR_S)


def _judged(name: str, found: AnswerTimes, server: ServerTimes) -> dict[str, Any]:
    if server.route:
        title = f"{name}, share later than {BAR_MS:g} ms at the server"
        one = _ratio(title, server.late, LATE)
    else:
        one = _ratio(f"{name}, p95 ms", found.p95_ms, BAR_MS)
    return one | {"holds": one["holds"] and not found.failures}


def _ratio(title: str, value: float, wanted: float) -> dict[str, Any]:
    """Returns an entry of a report; the value is to be `wanted` at most."""
    holds = value <= wanted
    return {"ratio": title, "median": value, "wanted": wanted, "at_most": True, "holds": holds}


def _line(found: AnswerTimes) -> str:
    failed = ""
    if found.failed_by:
        failed = f"  FAILED {found.failures}, {found.busy_failures} when busy: {found.failed_by}"
    return (
        f"p50 {found.p50_ms:7.1f}  p95 {found.p95_ms:7.1f}  p99 {found.p99_ms:7.1f} ms   "
        f"busy: p95 {found.busy_p95_ms:7.1f} ms, {found.busy_per_second:6.1f}/s{failed}"
    )
