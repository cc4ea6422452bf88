"""`hongyan topics`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.kafka.topics import TopicReport, Wish
    from backends.settings import Settings

app = typer.Typer(name="topics", help="The topics in Kafka.", no_args_is_help=True)

APPLY = explained(
    "Create the missing topics of lanes, dead letters, trace and outcomes, and report those that differ. "
    "The policy's longest lifetime decides how long lanes are kept. "
    "Changes and deletes nothing. Exits 1 if a topic falls short of what was asked for.",
    "hongyan topics apply",
    "hongyan topics apply --lane 'sms.*' --partitions 24 --dry-run",
    "hongyan topics apply --replication 3 --min-isr 2 --json",
)
_STYLES = {"created": "green", "exists": "dim", "differs": "yellow", "failed": "bold red"}


_LANES = Annotated[
    list[str] | None,
    typer.Option("--lane", "-l", metavar="PATTERN", help="Only these lanes.", show_default="all"),
]
_PARTITIONS = Annotated[int, typer.Option(min=1, metavar="N", help="Partitions of a lane's topic.")]
_DEAD_PARTITIONS = Annotated[
    int, typer.Option(min=1, metavar="N", help="Partitions of the dead letters' topic.")
]
_TRACE_PARTITIONS = Annotated[
    int, typer.Option(min=1, metavar="N", help="Partitions of the trace's topic.")
]
_OUTCOME_PARTITIONS = Annotated[
    int, typer.Option(min=1, metavar="N", help="Partitions of the outcomes' topic.")
]
_REPLICATION = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Copies of each partition.",
        show_default="3, or the brokers there are",
    ),
]
_MIN_ISR = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Copies a write waits for.", show_default="2 of 3"),
]
_UNCOMPRESSED = Annotated[
    bool,
    typer.Option(
        "--uncompressed",
        help="Let brokers keep lanes uncompressed, so that their size limit counts inflated records.",
        metavar="",
    ),
]
_DRY_RUN = Annotated[bool, typer.Option("--dry-run", help="Create nothing.", metavar="")]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.callback()
def _group() -> None:
    """Keeps `apply` a subcommand while it is the only one."""


@app.command("apply", help=APPLY)
def apply(
    context: typer.Context,
    lanes: _LANES = None,
    partitions: _PARTITIONS = 12,
    dead_partitions: _DEAD_PARTITIONS = 3,
    trace_partitions: _TRACE_PARTITIONS = 6,
    outcome_partitions: _OUTCOME_PARTITIONS = 6,
    replication: _REPLICATION = None,
    min_isr: _MIN_ISR = None,
    uncompressed: _UNCOMPRESSED = False,
    dry_run: _DRY_RUN = False,
    as_json: _JSON = False,
) -> None:
    from backends.kafka.topics import Wish

    settings = settings_of(context)
    lookback = settings.lookback
    wish = Wish(
        lookback_topic=lookback.topic if lookback.biz_types else "",
        partitions=partitions,
        dead_partitions=dead_partitions,
        trace_partitions=trace_partitions,
        outcome_partitions=outcome_partitions,
        replication=replication,
        min_isr=min_isr,
        uncompressed=uncompressed,
    )
    reports = _applied(settings, lanes, wish, dry_run=dry_run)
    print_json(reports) if as_json else _show(reports, dry_run)
    bad = any(r.status in ("differs", "failed") for r in reports)
    raise typer.Exit(PROBLEMS if bad else DONE)


def _applied(
    settings: Settings, lanes: list[str] | None, wish: Wish, *, dry_run: bool
) -> list[TopicReport]:
    import msgspec

    from backends.kafka import topics as kafka_topics
    from hongyan.flags import patterns
    from hongyan.policy_source import policy_in_force
    from message.vocabulary import lanes_matching
    from policy.topic_retention import topic_keep_days

    chosen = lanes_matching(patterns(lanes) or ["*"])
    wish = msgspec.structs.replace(wish, keep_days=topic_keep_days(policy_in_force(settings)))
    return kafka_topics.apply(settings.kafka, chosen, wish, dry_run=dry_run)


def _show(reports: list[TopicReport], dry_run: bool) -> None:
    from rich.text import Text

    titles = ("TOPIC", "PARTITIONS", "COPIES", "STATUS")
    table = listing(titles, right=("PARTITIONS", "COPIES"))
    for report in reports:
        status = "missing" if dry_run and report.status == "created" else report.status
        shown = Text(status, _STYLES[report.status])
        table.add_row(report.name, str(report.partitions), str(report.replication), shown)
    out().print(table)
    for report in reports:
        for remark in report.remarks:
            err().print(f"{report.name}: {remark}", markup=False)
