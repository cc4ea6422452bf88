"""The options of `hongyan campaign`."""

from typing import Annotated

import typer

from hongyan.flags import MOST_ROWS

CampaignId = Annotated[str, typer.Argument(metavar="CAMPAIGN", help="As `campaign list` shows it.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A .csv or .jsonl file, or .gz of one.")]
Lane = Annotated[str, typer.Option("--lane", metavar="CHANNEL.KIND", help="The lane.")]
Template = Annotated[str, typer.Option("--template", metavar="NAME", help="The template.")]
Receiver = Annotated[
    str, typer.Option("--receiver", metavar="COLUMN", help="Column with the receiver.")
]
BizId = Annotated[str, typer.Option("--biz-id", metavar="COLUMN", help="Column with your own id.")]
Mapped = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="VARIABLE=COLUMN", help="Column of a variable; repeat it."),
]
Constant = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="VARIABLE=TEXT", help="The same for all rows; repeat it."),
]
At = Annotated[
    str,
    typer.Option(
        "--at", metavar="TIME", help="One run, at 2026-12-24 09:00.", show_default="at once"
    ),
]
Cron = Annotated[
    str, typer.Option("--cron", metavar="EXPRESSION", help="Runs by cron: '0 9 * * MON-FRI'.")
]
Zone = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Time zone of the times.")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate",
        min=0.01,
        metavar="N",
        help="Most rows a second.",
        show_default="campaigns.rate_per_s",
    ),
]
Hours = Annotated[
    str, typer.Option("--hours", metavar="HH:MM-HH:MM", help="Only within these hours of the zone.")
]
Ttl = Annotated[
    str, typer.Option("--ttl", metavar="TIME", help="Time to live: 6h.", show_default="the lane's")
]
Account = Annotated[
    str, typer.Option("--account", metavar="NAME", help="Send through this account only.")
]
OncePerReceiver = Annotated[
    bool,
    typer.Option(
        "--once-per-receiver",
        help="Send the first row of each receiver, report the others.",
        metavar="",
    ),
]
Encoding = Annotated[
    str, typer.Option("--encoding", metavar="NAME", help="The file's: utf-8 or gb18030.")
]
Separator = Annotated[
    str, typer.Option("--separator", metavar="CHARACTER", help="Between the cells of CSV.")
]
Campaign = Annotated[
    str,
    typer.Option(
        "--campaign", metavar="NAME", help="A name; the same order twice is one campaign."
    ),
]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="Kept with the campaign.", show_default=False),
]
Author = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
