"""`hongyan spark`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.flags import seconds
from hongyan.serving import serving
from hongyan.tables import listing, local_time
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from hongyan.spark.cycle import EndedJob
    from idempotency.lost.runs import SparkRun

app = typer.Typer(
    name="spark",
    help="Rebuild what became of every delivery; find lost ones.",
    no_args_is_help=True,
)

_HELP = {
    "ingest": explained(
        "Read the lanes' topics, the trace and the dead letters into the warehouse, up to their present "
        "ends. Offsets that were gone before they were read are put on record.",
        "hongyan spark ingest",
        "hongyan spark ingest --json",
    ),
    "rebuild": explained(
        "Read Kafka into the warehouse, then rebuild one row per delivery: its timeline, latencies, state, "
        "and what is missing in its trace.",
        "hongyan spark rebuild",
        "hongyan spark rebuild --json",
    ),
    "lost": explained(
        "Find lost deliveries: note Kafka's positions, read it into the warehouse, then ask the ledger. "
        "`hongyan lost list` shows the findings; recovery acts on the certain ones by itself.",
        "hongyan spark lost",
        "hongyan spark lost --json",
    ),
    "audit": explained(
        "Compare the counts of Kafka, ledger, trace and receipts per lane and hour. Exits 1 if a "
        "difference has no explanation.",
        "hongyan spark audit",
        "hongyan spark audit --json",
    ),
}
RUN = explained(
    "Run all jobs once, in their order; with --every again and again in one session, until SIGTERM, which "
    "ends it after the job at work.",
    "hongyan spark run",
    "hongyan spark run --every 10m",
)
RUNS = explained(
    "List the newest runs with what they read, shuffled and took, and why they failed.",
    "hongyan spark runs",
    "hongyan spark runs --limit 100 --json",
)
_BEFORE = {
    "ingest": (),
    "rebuild": ("ingest",),
    "lost": ("ingest",),
    # Findings explain differences.
    "audit": ("ingest", "lost", "rebuild"),
}
"""Jobs that run in front of one that is asked for."""
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


def _register(job: str) -> None:
    def run(context: typer.Context, as_json: _JSON = False) -> None:
        _once(context, [*_BEFORE[job], job], as_json=as_json)

    app.command(job, help=_HELP[job])(run)


for _job in _HELP:
    if find_spec(f"hongyan.spark.{_job}") is not None:
        _register(_job)


@app.command("run", help=RUN)
def run(
    context: typer.Context,
    every: Annotated[
        str,
        typer.Option(
            "--every",
            metavar="TIME",
            help="From one beginning to the next: 30s, 10m.",
            show_default="once",
        ),
    ] = "",
) -> None:
    every_s = seconds("--every", every) if every else None
    with serving(context, "spark") as (settings, stop):
        import structlog

        from hongyan.spark.cycle import JOBS, available, open_cycle
        from hongyan.spark.schedule import run_every

        log = structlog.get_logger(__name__)
        jobs = available(JOBS)
        with open_cycle(settings, lambda line: log.info("spark_jars", text=line)) as cycle:
            log.info("spark_runs", jobs=jobs, every_s=every_s)
            if every_s is not None:
                run_every(cycle, jobs, every_s, stop)
            elif any(one.error for one in cycle.run(jobs, stop)):
                raise typer.Exit(PROBLEMS)


@app.command("runs", help=RUNS)
def runs(
    context: typer.Context,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Most runs shown.")
    ] = 20,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from contextlib import closing

    from hongyan.database import existing
    from idempotency.lost.runs import Runs
    from idempotency.sql_ledger import clock_of

    with closing(existing(settings)) as database:
        found = Runs(database, clock_of(database)).list(limit)
    if as_json:
        print_json([{**one._asdict(), "positions": bool(one.positions)} for one in found])
    elif found:
        _table(found)
    else:
        out().print("no runs yet; `hongyan spark run --every 10m` makes them")


def _once(context: typer.Context, jobs: Sequence[str], *, as_json: bool) -> None:
    settings = settings_of(context)
    from hongyan.spark.cycle import available, open_cycle

    with open_cycle(settings, lambda line: err().print(line, markup=False)) as cycle:
        ended = cycle.run(available(jobs))
    if as_json:
        print_json([_shown(one) for one in ended])
    else:
        for one in ended:
            if one.result is not None:
                out().print(_line(one), markup=False)
        if "audit" in jobs and not any(one.error for one in ended):
            _show_audit(settings)
    failed = [one for one in ended if one.error]
    for one in failed:
        complain(f"{one.job} (run {one.run_id}): {one.error}")
    if failed or any(one.result and one.result.problems for one in ended):
        raise typer.Exit(PROBLEMS)


def _show_audit(settings: Settings) -> None:
    from contextlib import closing

    from hongyan.database import existing
    from hongyan.spark.audit import show

    with closing(existing(settings)) as database:
        show(database)


def _shown(one: EndedJob) -> dict[str, object]:
    figures = one.result.figures if one.result else {}
    watermark = one.result.watermark if one.result else None
    named = {"job": one.job, "run": one.run_id, "error": one.error or None}
    return {**named, "watermark": watermark, "figures": figures}


def _line(one: EndedJob) -> str:
    assert one.result is not None
    figures = one.result.figures
    rows = _counted(figures)
    counts = ", ".join(f"{count:,} {name}" for name, count in sorted(rows.items()))
    took = f"{figures['ms'] / 1_000:.1f} s, {_size(figures['bytes_shuffled'])} shuffled"
    holes = f", {figures['holes']} holes" if figures.get("holes") else ""
    return f"{one.job}: {counts or 'nothing new'}{holes} (run {one.run_id}, {took})"


def _table(found: Sequence[SparkRun]) -> None:
    from rich.text import Text

    titles = ("RUN", "JOB", "STATE", "STARTED", "TOOK", "ROWS", "SHUFFLED", "WHY")
    table = listing(
        titles, right=("RUN", "TOOK", "ROWS", "SHUFFLED"), whole=("JOB", "STATE", "STARTED")
    )
    for one in found:
        rows = sum(_counted(one.figures).values())
        took = f"{(one.ended_at - one.started_at) / 1_000:.0f} s" if one.ended_at else "-"
        shuffled = _size(one.figures.get("bytes_shuffled", 0))
        cells = (str(one.id), one.job, one.state, local_time(one.started_at), took, f"{rows:,}")
        table.add_row(*map(Text, (*cells, shuffled, one.error or "")))
    out().print(table)


def _counted(figures: Mapping[str, Any]) -> Mapping[str, int]:
    """Returns a run's rows by table, or its findings by cause."""
    return figures.get("rows") or figures.get("findings") or {}


_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _size(count: int) -> str:
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
