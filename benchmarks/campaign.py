"""`hongyan bench campaign`: a large crowd file through kills of its process.

Each process is killed -9 at a random row; the last one ends the campaign. Afterwards the topic is read:

    gaps       rows of the file without a record
    doubles    records beyond the first of a row
    memory     growth of a process from its first checkpoint until its end, the largest of all
"""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from backends.kafka.topic_reader import read_topic
from backends.settings import DatabaseSettings, KafkaSettings, Settings
from benchmarks.ground import LANE, Servers, environment_for, fresh_database, topics
from benchmarks.processes import Program
from idempotency.sql_ledger import SqlLedger, open_ledger
from policy.templates.templates import Templates
from producer.campaigns.actions import CampaignActions
from producer.campaigns.contract import (
    CampaignLimits,
    CampaignRun,
    CampaignSchedule,
    CrowdColumns,
)
from producer.campaigns.creation import CampaignDraft
from producer.campaigns.row_checks import row_checks
from producer.campaigns.row_ids import row_id
from producer.campaigns.run_store import CampaignRuns, runs_of
from producer.campaigns.store import campaigns_of

ROWS: Final = 1_000_000
KILLS: Final = 10
MOST_GROWTH_MIB: Final = 32.0
RATE: Final = 100_000.0
_LEASE_S: Final = 2.0
_POLL_S: Final = 0.02
_LONGEST_S: Final = 7_200.0


class CampaignSize(NamedTuple):
    """Size of one run."""

    rows: int = ROWS
    kills: int = KILLS
    seed: int = 7


class _Life(NamedTuple):
    """One process: the rows it settled, its time, and the growth of its memory."""

    rows: int
    seconds: float
    grown_mib: float
    rss_mib: float


def measure(servers: Servers, *, size: CampaignSize, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the report."""
    name = f"bench_campaign_{uuid.uuid4().hex[:6]}"
    with (
        TemporaryDirectory() as folder,
        topics(servers, [LANE]) as prefix,
        fresh_database(servers.database_url, name) as url,
    ):
        kafka = KafkaSettings(bootstrap=servers.bootstrap, topic_prefix=prefix)
        with _ledger(url) as ledger:
            run_id = _started(ledger, _crowd(Path(folder), size.rows))
            environment = _environment(servers, prefix, name, url, Path(folder))
            lives = _lives(ledger, run_id, size, environment, Path(folder), say)
        counts = Counter(
            dict(record.headers() or ())["hongyan-id"]
            for record in read_topic(kafka, LANE.topic(prefix))
        )
        say(f"{sum(counts.values()):,} records in the topic")
    return _report(size, run_id, counts, lives)


@contextmanager
def _ledger(url: str) -> Iterator[SqlLedger]:
    ledger = open_ledger(Settings(database=DatabaseSettings(url=url)))
    try:
        yield ledger
    finally:
        ledger.close()


def _crowd(folder: Path, rows: int) -> Path:
    file = folder / "crowd.csv"
    with file.open("w") as target:
        target.write("receiver,name,code\n")
        for number in range(1, rows + 1):
            target.write(f"user-{number},Customer {number},C{number % 9_973:04d}\n")
    return file


def _started(ledger: SqlLedger, file: Path) -> str:
    """Starts the campaign. Returns the id that its run will have."""
    actions = CampaignActions(campaigns_of(ledger), runs_of(ledger))
    draft = CampaignDraft(
        path=str(file),
        lane=LANE.name,
        template="sale",
        columns=CrowdColumns(),
        schedule=CampaignSchedule(),
        limits=CampaignLimits(rate_per_s=RATE, approve_above=10**12),
        author="bench",
        reason="bench",
    )
    made = actions.make(draft, row_checks(Settings(), Templates())).campaign
    started = actions.start(made.id, who="bench", reason="bench")
    return f"{started.id}.{started.next_at}"


def _environment(
    servers: Servers, prefix: str, name: str, url: str, folder: Path
) -> dict[str, str]:
    (folder / "hongyan.toml").write_text("[trace]\nkafka = false\ndatabase = false\n")
    (folder / "policy.toml").write_text("")
    own = {
        "HONGYAN_CAMPAIGNS__HEALTH_ADDRESS": "127.0.0.1:0",
        "HONGYAN_CAMPAIGNS__RATE_PER_S": f"{RATE:g}",
        "HONGYAN_CAMPAIGNS__LEASE_S": f"{_LEASE_S:g}",
    }
    return environment_for(servers, prefix, name, url, folder / "policy.toml") | own


def _lives(
    ledger: SqlLedger,
    run_id: str,
    size: CampaignSize,
    environment: dict[str, str],
    folder: Path,
    say: Callable[[str], None],
) -> list[_Life]:
    """Runs a process up to each kill, and one up to the end."""
    chance = random.Random(size.seed)
    marks = sorted(chance.sample(range(1, size.rows), size.kills))
    runs, found = runs_of(ledger), []
    for number, mark in enumerate([*marks, size.rows]):
        log = folder / f"{number}.log"
        with Program(["campaign", "run"], environment, log) as process:
            life = _until(runs, run_id, mark, process, end=mark == size.rows)
        found.append(life)
        say(f"process {number}: {life.rows:,} rows, {life.rss_mib:g} MiB")
    return found


def _until(runs: CampaignRuns, run_id: str, mark: int, process: Program, *, end: bool) -> _Life:
    """Returns once the checkpoint has passed the mark."""
    first: tuple[int, float, float] | None = None
    deadline = time.monotonic() + _LONGEST_S
    before = runs.get(run_id)
    while time.monotonic() < deadline:
        run = runs.get(run_id)
        if run is not None and first is None and run.done > (before.done if before else 0):
            first = run.done, time.monotonic(), process.rss_mib()
        if run is not None and _passed(run, mark, end=end):
            done, since, rss = first or (run.done, time.monotonic(), process.rss_mib())
            now = process.rss_mib()
            return _Life(run.done - done, time.monotonic() - since, round(now - rss, 1), now)
        time.sleep(_POLL_S)
    raise RuntimeError(f"row {mark} did not come within {_LONGEST_S:g} s")


def _passed(run: CampaignRun, mark: int, *, end: bool) -> bool:
    return run.ended_at is not None if end else run.done >= mark


def _report(
    size: CampaignSize, run_id: str, counts: Counter[Any], lives: list[_Life]
) -> dict[str, Any]:
    wanted = (row_id(run_id, number).encode() for number in range(1, size.rows + 1))
    there = sum(1 for one in wanted if counts[one])
    figures = {
        "gaps": size.rows - there,
        "doubles": sum(counts.values()) - len(counts),
        "foreign": len(counts) - there,
        "MiB that a process grew, at most": max(life.grown_mib for life in lives),
    }
    most = dict.fromkeys(figures, 0.0) | {"MiB that a process grew, at most": MOST_GROWTH_MIB}
    ratios = [
        {
            "ratio": name,
            "rounds": [value],
            "median": value,
            "wanted": most[name],
            "at_most": True,
            "holds": value <= most[name],
        }
        for name, value in figures.items()
    ]
    seconds = sum(life.seconds for life in lives)
    per_second = round(sum(life.rows for life in lives) / seconds) if seconds else 0
    rss = max(life.rss_mib for life in lives)
    medians = {"hongyan campaign run": {"per_second": per_second, "rss_mib": rss}}
    return {**size._asdict(), "medians": medians, "ratios": ratios}
