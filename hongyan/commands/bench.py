"""`hongyan bench`."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json

HELP = explained(
    "Measure the worker beside loops that do less, in one run on the local stack (`make up`), as "
    "ratios. Takes some minutes. Exits 1 when a ratio is below what the project promises.",
    "hongyan bench worker",
    "hongyan bench worker --json --rounds 5",
)
RECOVERY_HELP = explained(
    "Measure live traffic while recovery sends 100,000 due retries, beside the same without them, in one "
    "run on the local stack, as a ratio. Takes some two minutes. Exits 1 below 0.9.",
    "hongyan bench recovery",
    "hongyan bench recovery --json --rounds 5",
)
ISOLATION_HELP = explained(
    "Measure throughput and p99 (from a notification's creation to its provider) of one lane while "
    "another lane's provider hangs and a third one's refuses everything, beside the same traffic with all "
    "providers well, in one run on the local stack. Takes some minutes. Exits 1 when it is off by a tenth.",
    "hongyan bench isolation",
    "hongyan bench isolation --json --rounds 5",
)
CHANNELS_HELP = explained(
    "Measure recipients a second through one account of a provider that takes 200 numbers a call, beside "
    "the same with one a call, and beside a provider that takes one, in one run on the local stack, as "
    "ratios. Takes some two minutes. Exits 1 below 50.",
    "hongyan bench channels",
    "hongyan bench channels --json --rounds 3",
)
SPREAD_HELP = explained(
    "Measure how evenly 1 to 5 workers share each of three lanes of 12 partitions, and one lane's "
    "throughput with three workers beside one, under both group protocols, in one run on the local stack. "
    "Takes some minutes. Exits 1 when shares of a lane differ by more than 1, or three workers do less "
    "than 2.5 times what one does.",
    "hongyan bench spread",
    "hongyan bench spread --json --rounds 1",
)
GATEWAY_HELP = explained(
    "Measure single POSTs to a gateway that waits for Kafka, beside the same gateway that answers without "
    "producing, in one run on the local stack, as a ratio. Takes a minute. Exits 1 below 0.5.",
    "hongyan bench gateway",
    "hongyan bench gateway --json --rounds 5",
)
PACING_HELP = explained(
    "Send bursts to providers that only answer 'slower', on the local stack: 2,000 notices to one that "
    "refuses all for a minute and then takes 20 a second, and 200 mails to one that takes 2 a second. "
    "Takes some seven minutes. Exits 1 if one is not sent, or at more than 1.3 calls each.",
    "hongyan bench pacing",
    "hongyan bench pacing --json",
)
ORDERED_HELP = explained(
    "Measure an ordered lane under kills, outages of the database and refusals, beside the same lane "
    "undisturbed, on the local stack; then check order, losses and doubles by the provider's own book, and "
    "one look of recovery at 100 and at 100,000 rows behind one key. Takes some minutes. Exits 1 when a "
    "figure is missed, and names it.",
    "hongyan bench ordered --json",
    "hongyan bench ordered --messages 4000 --keys 20 --kills 3      a small one",
)
TURNS_HELP = explained(
    "Measure this tree's worker beside another tree's, in turns within each round, on the same servers and "
    "through the same provider: what a change costs. The other tree needs a .venv/ (`make venv`). Takes "
    "some ten minutes. Exits 1 where a share of the bare loop is lower than the other tree's by more than "
    "0.02.",
    "hongyan bench turns ../before",
    "hongyan bench turns ../before --rounds 4 --json",
)
SPARK_HELP = explained(
    "Measure the rebuild of generated days beside a bare read, shuffle by key and write of the same rows, "
    "in one Spark session on local[2]; then a tenth more on top of the largest size. Needs Java 17, 4 GB "
    "of memory and some 10 GB of disk for 10 million events. Takes a quarter of an hour. Exits 1 when a "
    "bar is missed, and names it.",
    "hongyan bench spark --json",
    "hongyan bench spark --sizes 200000,1000000      small ones",
)
OUTBOX_HELP = explained(
    "Measure a relay of an outbox beside a bare producer loop, its claim over a thousand and over a "
    "million pending rows, and the time from a commit to Kafka when nothing else happens, in one run on "
    "the local stack. Takes some minutes. Exits 1 below half of the bare loop, where a claim takes more "
    "than twice as long, or above 50 ms (p99).",
    "hongyan bench outbox --json",
    "hongyan bench outbox --rows 5000 --pending 20000 --rounds 1      a small one",
)
CONSOLE_HELP = explained(
    "Measure the console over a large ledger on the local stack: searches by every field, overview and "
    "timeline, 20 clients at once; live streams; bytes of pages; a frozen selection. Without "
    "--database-url it fills a database first: 10 million rows take some quarter of an hour and 20 GB. "
    "Exits 1 when a bar is missed, and names it.",
    "hongyan bench console --with-worker --json",
    "hongyan bench console --rows 600000 --keep      a small one, kept for further runs",
    "hongyan bench console --database-url postgresql://…/console_bench_1 --only receiver",
)
CLIENT_HELP = explained(
    "Measure hongyan-client beside a bare confluent-kafka loop, in turns on the local stack; then its "
    "memory and order with a spool while an embedded broker stands still for a minute. Takes some three "
    "minutes. Exits 1 below 0.8 of the bare loop, above 100 MiB, if one is "
    "lost or out of order, or if an import of the client takes more than 150 ms.",
    "hongyan bench client --json",
    "hongyan bench client --messages 20000 --rounds 1 --outage 5      a small one",
)
SPOOL_HELP = explained(
    "Measure the client's spool beside loops over SQLite with the same settings, and its drain beside a "
    "publisher that sends the same records; then the memory of a process whose records wait, and the "
    "opening of its spool after kill -9. In one run on the local stack; takes a minute or two. Exits 1 if "
    "a bar is missed.",
    "hongyan bench spool --json",
    "hongyan bench spool --records 5000 --puts 200 --rounds 1      a small one",
    "hongyan bench spool --folder /var/lib/shop      on the disk of that folder",
)
IDS_HELP = explained(
    "Measure snowflake ids in batches and one by one beside a bare loop, in one run; then eight processes "
    "issue ids while their clocks are set back and their lives end as after a kill. Takes half a minute. "
    "Exits 1 if two ids are equal, or batches make less than 2 million ids a second.",
    "hongyan bench ids",
    "hongyan bench ids --ids 2000000 --json      a small one",
)
CAMPAIGN_HELP = explained(
    "Send a campaign of a large crowd file on the local stack, with kill -9 of its process at random rows; "
    "then count the topic's records. A million rows take some fifteen minutes. Exits 1 at a gap, a double, "
    "or a process that grew by more than 32 MiB.",
    "hongyan bench campaign --json",
    "hongyan bench campaign --rows 50000 --kills 3      a small one",
)
FLEET_HELP = explained(
    "Run all processes of a platform on the local stack under steady traffic by every way in, with a "
    "provider that refuses, resets and sends receipts; then say what grew from the second quarter of the "
    "run to the last one, and what was lost or doubled. Takes an hour. Exits 1 if a process grew by more "
    "than 8 MiB, if files or threads pile up, or if one is lost or doubled.",
    "hongyan bench fleet --json",
    "hongyan bench fleet --minutes 10 --rate 50      a small one",
)
_COLUMNS = {
    "ordered_per_second": "ordered/s",
    "per_second": "messages/s",
    "ids_per_second": "ids/s",
    "cpu_us_per_message": "µs CPU each",
    "rss_mib": "MiB",
    "second_quarter_mib": "MiB, second quarter",
    "last_quarter_mib": "MiB, last quarter",
    "resent_per_second": "resent/s",
}
REDIS_DATABASE = 63
"""The local stack's last database: tests take the first ones."""
app = typer.Typer(name="bench", help="Benchmarks.", no_args_is_help=True)


@app.command("worker", help=HELP, short_help="The worker beside loops that do less.")
def worker(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only these variants.")] = None,
    own_core: Annotated[
        bool, typer.Option("--own-core", help="Keep a core for what is measured alone.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("worker")
    report = bench.measure(servers, rounds=rounds, only=only or (), own_core=own_core, say=_say)
    if not only:
        report |= bench.endure(servers, say=_say)
    _end(report, as_json=as_json)


@app.command("recovery", help=RECOVERY_HELP, short_help="Live traffic beside due retries.")
def recovery(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Retries that are due.")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("recovery")
    _end(bench.measure(servers, rounds=rounds, rows=rows, say=_say), as_json=as_json)


def _interleaved(name: str, usual: int) -> Callable[..., None]:
    """Returns the command of a benchmark that has rounds alone, `usual` of them by default."""

    def run(
        rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = usual,
        as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
    ) -> None:
        bench, servers = _bench(name)
        _end(bench.measure(servers, rounds=rounds, say=_say), as_json=as_json)

    return run


for _name, _usual, _help, _line in (
    ("isolation", 5, ISOLATION_HELP, "A lane beside lanes whose providers fail."),
    ("channels", 5, CHANNELS_HELP, "200 recipients a call beside one."),
    ("spread", 3, SPREAD_HELP, "Lanes shared by one to five workers."),
):
    app.command(_name, help=_help, short_help=_line)(_interleaved(_name, _usual))


@app.command("campaign", help=CAMPAIGN_HELP, short_help="A crowd file through kills.")
def campaign(
    rows: Annotated[int, typer.Option("--rows", min=100, help="Rows of the file.")] = 1_000_000,
    kills: Annotated[int, typer.Option("--kills", min=0, help="Kills of the process.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the rows of the kills.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("campaign")
    size = bench.CampaignSize(rows=rows, kills=kills, seed=seed)
    _end(bench.measure(servers, size=size, say=_say), as_json=as_json)


@app.command("fleet", help=FLEET_HELP, short_help="All processes for long: what grows.")
def fleet(
    minutes: Annotated[float, typer.Option("--minutes", min=1, help="Minutes of traffic.")] = 60,
    rate: Annotated[float, typer.Option("--rate", min=10, help="Notifications a second.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("fleet")
    size = bench.FleetRunSize(minutes=minutes, per_second=rate)
    _end(bench.measure(servers, size=size, say=_say), as_json=as_json)


@app.command("pacing", help=PACING_HELP, short_help="Bursts at providers that say slower.")
def pacing(
    notices: Annotated[
        int, typer.Option("--notices", min=1, help="Notices of the first burst.")
    ] = 2_000,
    silence_s: Annotated[
        float, typer.Option("--silence", min=0, help="Seconds for which all is refused.")
    ] = 60,
    mails: Annotated[int, typer.Option("--mails", min=1, help="Mails of the second burst.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("pacing")
    some = bench.bursts(notices=notices, silence_s=silence_s, mails=mails)
    _end(bench.measure(servers, some, say=_say), as_json=as_json)


@app.command(
    "ordered",
    help=ORDERED_HELP,
    short_help="An ordered lane under kills beside an undisturbed one.",
)
def ordered(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Both, so many times.")] = 1,
    messages: Annotated[
        int, typer.Option("--messages", min=200, help="Half with a key, half without.")
    ] = 60_000,
    keys: Annotated[int, typer.Option("--keys", min=1, help="Ordering keys.")] = 50,
    kills: Annotated[
        int, typer.Option("--kills", min=0, help="Kills of workers and recoveries.")
    ] = 12,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the order of faults.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("ordered")
    size = bench.Size(messages=messages, keys=keys, kills=kills, seed=seed)
    report = bench.measure(servers, rounds=rounds, size=size, say=_say)
    for ratio in report["ratios"]:
        if not ratio["holds"]:
            complain(f"missed: {ratio['ratio']} is {ratio['median']}, wanted {ratio['wanted']}")
    _end(report, as_json=as_json)


@app.command("outbox", help=OUTBOX_HELP, short_help="A relay beside a bare producer loop.")
def outbox(
    rows: Annotated[int, typer.Option("--rows", min=100, help="Rows of each round.")] = 50_000,
    pending: Annotated[
        int, typer.Option("--pending", min=2_000, help="Pending rows of the slower claim.")
    ] = 1_000_000,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("outbox")
    sizes = bench.Sizes(rows=rows, pending=pending)
    _end(bench.measure(servers, sizes, rounds=rounds, say=_say), as_json=as_json)


@app.command("turns", help=TURNS_HELP, short_help="This tree's worker beside another tree's.")
def turns(
    tree: Annotated[
        Path,
        typer.Argument(help="The other tree.", exists=True, file_okay=False, resolve_path=True),
    ],
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("turns")
    try:
        report = bench.measure(servers, tree, rounds=rounds, say=_say)
    except FileNotFoundError as exc:
        complain(str(exc))
        raise typer.Exit(PROBLEMS) from exc
    _end(report, as_json=as_json)


@app.command("spark", help=SPARK_HELP, short_help="A rebuild beside a bare shuffle.")
def spark(
    sizes: Annotated[
        str, typer.Option("--sizes", metavar="N,N", help="Events of each size.")
    ] = "1000000,3000000,10000000",
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Where the tables go; default: the system's temporary one."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench = _module("spark")
    report = bench.measure(sizes_of(sizes), say=_say, folder=folder)
    for ratio in report["ratios"]:
        if not ratio["holds"]:
            complain(f"missed: {ratio['ratio']} is {ratio['median']}, wanted {ratio['wanted']}")
    _end(report, as_json=as_json)


@app.command("gateway", help=GATEWAY_HELP, short_help="Notifications over HTTP.")
def gateway(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds of each.")] = 3,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="Seconds a round.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("gateway")
    _end(bench.measure(servers, rounds=rounds, seconds=seconds, say=_say), as_json=as_json)


@app.command("console", help=CONSOLE_HELP, short_help="The console over a large ledger.")
def console(
    rows: Annotated[int, typer.Option("--rows", min=1_000, help="Deliveries.")] = 10_000_000,
    days: Annotated[int, typer.Option("--days", min=7, help="Days that they cover.")] = 60,
    database_url: Annotated[
        str,
        typer.Option("--database-url", metavar="URL", help="A database that is filled already."),
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the database that is made.")] = False,
    with_worker: Annotated[
        bool, typer.Option("--with-worker", help="With a worker at full rate beside it.")
    ] = False,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Seconds for each kind of question.")
    ] = 5.0,
    only: Annotated[list[str] | None, typer.Option("--only", help="Only these questions.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("console")
    load = bench.ConsoleLoad(seconds=seconds, with_worker=with_worker, only=only or ())
    shape = bench.Shape(rows=rows, days=days)
    given: dict[str, Any] = {"database_url": database_url, "keep": keep, "say": _say}
    try:
        report = bench.measure(servers, load=load, shape=shape, **given)
    except ValueError as exc:
        complain(str(exc))
        raise typer.Exit(PROBLEMS) from exc
    for ratio in report["ratios"]:
        if not ratio["holds"]:
            complain(f"missed: {ratio['ratio']} is {ratio['median']}, wanted {ratio['wanted']}")
    _end(report, as_json=as_json)


@app.command("client", help=CLIENT_HELP, short_help="The client beside a bare producer loop.")
def client(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 5,
    messages: Annotated[
        int, typer.Option("--messages", min=1_000, help="Notifications of each variant and round.")
    ] = 100_000,
    outage_s: Annotated[
        float, typer.Option("--outage", min=1, help="Seconds without a broker.")
    ] = 60,
    rate: Annotated[
        int, typer.Option("--rate", min=50, help="Notifications a second meanwhile.")
    ] = 5_000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("client")
    given: dict[str, Any] = {"outage_s": outage_s, "rate": rate, "say": _say}
    _end(bench.measure(servers, rounds=rounds, messages=messages, **given), as_json=as_json)


@app.command("spool", help=SPOOL_HELP, short_help="The client's spool beside SQLite and Kafka.")
def spool(
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Interleaved rounds.")] = 3,
    records: Annotated[
        int, typer.Option("--records", min=1_000, help="Records that wait and drain.")
    ] = 100_000,
    puts: Annotated[
        int, typer.Option("--puts", min=100, help="Records that are put one by one.")
    ] = 2_000,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Whose disk is measured.", exists=True, file_okay=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    bench, servers = _bench("spool")
    size = bench.SpoolSize(records=records, puts=puts)
    report = bench.measure(servers, size, rounds=rounds, say=_say, folder=folder)
    _end(report, as_json=as_json)


@app.command("ids", help=IDS_HELP, short_help="Snowflake ids beside a bare loop.")
def ids(
    count: Annotated[
        int, typer.Option("--ids", min=100_000, help="Ids of the eight processes.")
    ] = 20_000_000,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    from tempfile import TemporaryDirectory

    bench = _module("ids")
    with TemporaryDirectory() as folder:
        _end(bench.measure(f"sqlite:///{Path(folder) / 'ids.db'}", count), as_json=as_json)


def sizes_of(text: str) -> list[int]:
    """Returns the numbers of a list. Raises WrongUsage."""
    try:
        sizes = [int(word) for word in text.replace("_", "").split(",")]
    except ValueError as exc:
        raise WrongUsage(f"--sizes {text}: give whole numbers with commas between them") from exc
    if min(sizes) < 1:
        raise WrongUsage(f"--sizes {text}: a size is at least 1")
    return sizes


def _bench(name: str) -> tuple[Any, Any]:
    """Returns the benchmark's module and the running stack. Sets up logging to standard error. From now on
    SIGTERM interrupts as Ctrl-C does: a benchmark ends the processes that it has started."""
    bench = _module(name)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    from benchmarks.ground import Servers
    from deploy.local.stack import shared_stack

    stack = shared_stack(_say)
    stack.up()
    redis_url = f"{stack.redis_url.rpartition('/')[0]}/{REDIS_DATABASE}"
    processes = [stack.pid(name) for name in stack.names]
    return bench, Servers(stack.bootstrap, stack.database_url, redis_url, processes)


def _module(name: str) -> Any:
    """Returns the benchmark's module. Sets up logging to standard error."""
    from backends import logs
    from backends.settings import LogSettings

    logs.configure(LogSettings(), quiet=True)
    try:
        return import_module(f"benchmarks.{name}")
    except ImportError as exc:
        complain(f"benchmarks need the source tree, not only the installed program ({exc})")
        raise typer.Exit(PROBLEMS) from exc


def _say(line: str) -> None:
    err().print(line)


def _end(report: dict[str, Any], *, as_json: bool) -> None:
    """Prints the report; exits 1 when a ratio is missed."""
    if as_json:
        print_json(report)
    else:
        _show(report)
    if not all(ratio["holds"] for ratio in report["ratios"]):
        raise typer.Exit(PROBLEMS)


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table

    names = list(next(iter(report["medians"].values())))
    table = Table("variant", title="Medians")
    for name in names:
        table.add_column(_COLUMNS.get(name, name.replace("_", " ")), justify="right")
    for variant, found in report["medians"].items():
        table.add_row(variant, *(_figure(found[name]) for name in names))
    out().print(table)
    if report["ratios"]:
        _show_ratios(report["ratios"])
    for name in ("memory", "sigterm"):
        if name in report:
            shown = "  ".join(f"{key} {value}" for key, value in report[name].items())
            out().print(name, style="bold", end="  ")
            out().print(shown)


def _figure(value: float) -> str:
    return f"{value:,.1f}" if abs(value) >= 10 or not value else f"{value:.3f}"


def _show_ratios(found: Sequence[Mapping[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    ratios = Table("ratio", "median", "wanted", "", title="Ratios")
    for ratio in found:
        good = Text("holds", "green") if ratio["holds"] else Text("missed", "red")
        wanted = f"{'≤' if ratio.get('at_most') else '≥'} {ratio['wanted']}"
        ratios.add_row(ratio["ratio"], f"{ratio['median']:.2f}", wanted, good)
    out().print(ratios)
