"""`hongyan demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from hongyan.demo.tally import Tally

HELP = explained(
    "Run the whole platform on this machine without any server: an embedded Kafka, SQLite, a provider "
    "and two workers. Sends a few thousand notifications, kills one worker with -9 in the middle, lets "
    "recovery settle what that left in doubt, and shows what became of every delivery. Exits 1 when one "
    "was lost or doubled.",
    "hongyan demo",
    "hongyan demo --file my.jsonl --keep /tmp/demo",
)
EXAMPLES = Path(__file__).parents[2] / "examples" / "notifications.jsonl"


def demo(
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help="Notifications, one JSON object a line.", exists=True),
    ] = EXAMPLES,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Keep ledger, logs and configuration in this folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    from tempfile import TemporaryDirectory

    from backends import logs
    from backends.settings import LogSettings

    logs.configure(LogSettings(), quiet=True)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        _play(keep.resolve(), file, as_json)
        return
    with TemporaryDirectory(prefix="hongyan-demo-") as folder:
        _play(Path(folder), file, as_json)


def _play(folder: Path, file: Path, as_json: bool) -> None:
    from hongyan.commands.trace import show as show_story
    from hongyan.demo.play import DemoFailed, run

    try:
        with _Progress() as progress:
            result, stories = run(folder, file, say=progress.say, show=progress.show)
    except DemoFailed as exc:
        complain(str(exc))
        raise typer.Exit(PROBLEMS) from exc
    if as_json:
        print_json(result)
    else:
        out().print(_table(result))
        out().print("\nTwo of them, as [bold]hongyan trace ID[/] tells it:\n")
        for story in stories:
            show_story(story)
    if result.lost or result.doubled:
        raise typer.Exit(PROBLEMS)


class _Progress:
    """A live bar on standard error; plain lines if that is no terminal."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[states]}"),
            TimeElapsedColumn(),
            console=err(),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("deliveries", total=None, states="")

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Prints one line that stays."""
        err().print(f"[green]▸[/] {text}")

    def show(self, states: Mapping[str, int], expected: int) -> None:
        """Updates the bar."""
        shown = "  ".join(f"{state} {count:,}" for state, count in sorted(states.items()))
        done = sum(states.values()) - states.get("IN_FLIGHT", 0)
        self._bar.update(self._task, completed=done, total=expected, states=shown)


def _table(result: Tally) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title="What became of every delivery", box=box.ROUNDED, title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("", style="dim")
    good = "bold green"
    table.add_row("accepted", f"{result.accepted:,}", f"of {result.notifications:,} notifications")
    table.add_row("sent", f"{result.sent:,}", "the provider has them, the ledger says so")
    for state, count in sorted(result.other.items()):
        table.add_row(state.lower().replace("_", " "), f"{count:,}", "in the ledger, by name")
    table.add_row("lost", f"[{good if not result.lost else 'bold red'}]{result.lost}[/]", "")
    table.add_row(
        "doubled", f"[{good if not result.doubled else 'bold red'}]{result.doubled}[/]", ""
    )
    missing = result.in_doubt - result.in_doubt_arrived
    note = (
        f"at the kill; recovery asked the provider: {result.in_doubt_arrived} had arrived, "
        f"{missing} had not and were sent again"
    )
    table.add_row("in doubt", f"[yellow]{result.in_doubt}[/]", note)
    waits = f"{result.p50_ms:,.0f} / {result.p99_ms:,.0f} ms"
    table.add_row("p50 / p99", waits, "from creation to the provider; all came in one burst")
    rate = f"{result.per_second:,.0f}/s"
    table.add_row("throughput", rate, f"{result.seconds:.1f} s with start, kill and take-over")
    return table
