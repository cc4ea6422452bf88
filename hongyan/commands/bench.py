"""`hongyan bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json

HELP = explained(
    "Measure the worker beside loops that do less, in one run on the local stack (`make up`), as "
    "ratios. Takes some minutes. Exits 1 when a ratio is below what the project promises.",
    "hongyan bench worker",
    "hongyan bench worker --json --rounds 5",
)
REDIS_DATABASE = 63
"""The last of the local stack's: tests take theirs from the front."""
app = typer.Typer(name="bench", help="Measure.", no_args_is_help=True)


@app.command("worker", help=HELP, short_help="The worker beside loops that do less.")
def worker(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only these variants.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    """See HELP."""
    try:
        from benchmarks.ground import Servers
        from benchmarks.worker import endure, measure
        from deploy.local.stack import shared_stack
    except ImportError as exc:
        complain(f"benchmarks need the source tree, not only the installed program ({exc})")
        raise typer.Exit(PROBLEMS) from exc
    stack = shared_stack(lambda line: err().print(line))
    stack.up()
    redis_url = f"{stack.redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"
    servers = Servers(stack.bootstrap, stack.database_url, redis_url)
    report = measure(servers, rounds=rounds, only=only or (), say=lambda line: err().print(line))
    if not only:
        report |= endure(servers, say=lambda line: err().print(line))
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not all(ratio["holds"] for ratio in report["ratios"]):
        raise typer.Exit(PROBLEMS)


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(title="Medians")
    for column in ("variant", "messages/s", "µs CPU each", "MiB"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, found in report["medians"].items():
        figures = (found["per_second"], found["cpu_us_per_message"], found["rss_mib"])
        table.add_row(name, *(f"{figure:,.1f}" for figure in figures))
    out().print(table)
    ratios = Table(title="Ratios")
    for column in ("ratio", "median", "wanted", ""):
        ratios.add_column(column)
    for ratio in report["ratios"]:
        good = "[green]holds[/]" if ratio["holds"] else "[red]missed[/]"
        ratios.add_row(ratio["ratio"], f"{ratio['median']:.2f}", f"≥ {ratio['wanted']}", good)
    out().print(ratios)
    for name in ("memory", "sigterm"):
        if name in report:
            shown = "  ".join(f"{key} {value}" for key, value in report[name].items())
            out().print(f"[bold]{name}[/]  {shown}")
