"""`hongyan demo`."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json
from hongyan.usage.extras import missing_of

if TYPE_CHECKING:
    from rich.table import Table

    from hongyan.demo.progress import FleetProgress
    from hongyan.demo.proof import DemoSummary

HELP = explained(
    "Run the whole platform on this machine without any server: an embedded Kafka, SQLite, a provider "
    "and two workers. Sends a few thousand notifications, kills one worker with -9 while its calls are "
    "under way, and lets recovery decide about the deliveries left in doubt. Then it reads the provider's "
    "own book: exits 0 only if each receiver of each notification is in it exactly once.",
    "hongyan demo",
    "hongyan demo --file my.jsonl --keep /tmp/demo",
)
_FILE: Final = "notifications.jsonl"
_LINE_S: Final = 1.0
"""Interval between two lines of progress where standard error is no terminal."""
_KILLED: Final = "killed"


def examples() -> Path:
    """Returns the demo's notifications: beside the program in a wheel, else in the repository."""
    packaged = Path(__file__).parents[1] / "demo" / _FILE
    return packaged if packaged.is_file() else Path(__file__).parents[2] / "examples" / _FILE


def demo(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Notifications of webhook lanes, one JSON object a line; default: a shop's and a bank's.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="A new folder for ledger, logs and configuration. Default: hongyan-demo, whose last run "
            "is removed.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    from backends import logs
    from backends.settings import LogSettings

    logs.configure(LogSettings(), quiet=True)
    try:
        from hongyan.demo.folder import FOLDER, new_folder
    except ModuleNotFoundError as exc:
        raise WrongUsage(f"{exc}; install hongyan[worker,simulator]") from exc
    with new_folder(keep or FOLDER, again=keep is None) as folder:
        _play(folder.resolve(), file or examples(), as_json)
    if not as_json:
        out().print(_offer(keep), markup=False, soft_wrap=True)


def _offer(keep: Path | None) -> str:
    """Returns the line that shows the way to the console on this data."""
    where = f" --folder {shlex.quote(str(keep))}" if keep else ""
    extra = "" if not missing_of(("console",)) else "pip install 'hongyan[console]', then "
    return (
        f"See it in the browser, with operators of every role: {extra}hongyan console --demo{where}"
    )


def _play(folder: Path, file: Path, as_json: bool) -> None:
    from hongyan.commands.trace import show as show_story
    from hongyan.demo.spark_note import spark_note

    try:
        from hongyan.demo.scenario import DemoFailed, run
    except ModuleNotFoundError as exc:
        raise WrongUsage(f"{exc}; install hongyan[worker,simulator]") from exc
    try:
        with _Display() as display:
            result = run(folder, file, say=display.say, show=display.show)
    except DemoFailed as exc:
        complain(str(exc))
        raise typer.Exit(PROBLEMS) from exc
    if as_json:
        print_json(result.summary)
    else:
        out().print(_table(result.summary))
        out().print("\nTwo of them, as [bold]hongyan trace ID[/] shows them:\n", markup=True)
        for story in result.stories:
            show_story(story)
    if not result.proof.holds:
        complain(result.proof.sentence())
        raise typer.Exit(PROBLEMS)
    if not as_json:
        out().print(
            "Next: [bold]hongyan dev[/] keeps such a platform running, for sends of your own.",
            markup=True,
        )
        out().print(spark_note(os.environ.get("JAVA_HOME", "")), markup=False)


class _Display:
    """Workers, lanes and rate on standard error: a live table on a terminal, else a line a second."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(console=err(), transient=True, auto_refresh=False)
        self._shows = sys.stderr.isatty()
        self._last = 0.0

    def __enter__(self) -> _Display:
        if self._shows:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shows:
            self._live.stop()

    def say(self, text: str) -> None:
        """Prints one line that stays."""
        err().print("▸", style="green", end=" ")
        err().print(text)

    def show(self, progress: FleetProgress, expected: int) -> None:
        """Shows the progress."""
        if self._shows:
            self._live.update(_screen(progress, expected), refresh=True)
        elif time.monotonic() - self._last >= _LINE_S:
            self._last = time.monotonic()
            err().print(_line(progress), markup=False)


def _line(progress: FleetProgress) -> str:
    parts = [
        f"{name}{f' ({_KILLED})' if name in progress.killed else ''} {states['SENT']:,} sent, "
        f"{states['IN_FLIGHT'] + states['UNKNOWN']:,} open"
        for name, states in sorted(progress.workers.items())
    ]
    return f"  {progress.seconds:4.1f} s  {progress.per_second:5,.0f}/s  " + "  ".join(parts)


def _screen(progress: FleetProgress, expected: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    done = progress.states["SENT"]
    title = f"{progress.seconds:.1f} s   {done:,} of {expected:,}   {progress.per_second:,.0f}/s"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for name in ("sent", "in flight", "in doubt"):
        table.add_column(name, justify="right")
    for group in (progress.workers, progress.lanes):
        for name, states in sorted(group.items()):
            shown = Text(f"{name} {_KILLED}", "red") if name in progress.killed else Text(name)
            counts = (states["SENT"], states["IN_FLIGHT"], states["UNKNOWN"])
            table.add_row(shown, *(f"{count:,}" for count in counts))
        table.add_section()
    return table


def _table(result: DemoSummary) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title="The provider's own book", box=box.ROUNDED, title_justify="left", show_header=False
    )
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    note = f"receivers of {result.notifications:,} notifications"
    table.add_row("sent once", f"{result.sent_once:,}", f"of {result.expected:,} {note}")
    for name, count in (("lost", result.lost), ("doubled", result.doubled)):
        table.add_row(name, Text(str(count), "bold red" if count else "bold green"), "")
    if result.unasked:
        table.add_row("unasked", Text(str(result.unasked), "bold red"), "")
    for state, count in sorted(result.ledger.items()):
        if state != "SENT":
            table.add_row(state.lower().replace("_", " "), f"{count:,}", "in the ledger, by name")
    missing = result.in_doubt - result.in_doubt_arrived
    asked = f"{result.in_doubt_arrived} had arrived, {missing} had not and were sent again"
    table.add_row("in doubt", Text(str(result.in_doubt), "yellow"), f"after the kill: {asked}")
    table.add_row("take-over", f"{result.takeover_s:.1f} s", "until the other worker had its lanes")
    waits = f"{result.p50_ms:,.0f} / {result.p99_ms:,.0f} ms"
    table.add_row("p50 / p99", waits, "from creation to the provider, take-over and all")
    rate = f"{result.per_second:,.0f}/s"
    table.add_row("throughput", rate, f"over {result.seconds:.1f} s; start-up is not in it")
    return table
