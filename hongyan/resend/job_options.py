"""The options of `hongyan resend jobs`."""

from pathlib import Path
from typing import Annotated

import typer

from hongyan.flags import MOST_ROWS

JobId = Annotated[str, typer.Argument(metavar="JOB", help="As `resend jobs list` shows it.")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Delivery keys or message ids.", show_default=False),
]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="IDs, one a line; - for standard input."),
]
State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="STATE", help="All in this state. Repeat it."),
]
Lane = Annotated[
    list[str] | None, typer.Option("--lane", metavar="PATTERN", help="With --state: these lanes.")
]
Since = Annotated[
    str,
    typer.Option("--since", metavar="AGO", help="With --state: since 30m, 1h30m or 2d ago."),
]
Until = Annotated[
    str,
    typer.Option(
        "--until", metavar="AGO", help="With --state: until then.", show_default="the order"
    ),
]
Account = Annotated[
    str,
    typer.Option("--account", metavar="NAME", help="With --state: last tried through this one."),
]
RowReason = Annotated[
    str,
    typer.Option("--reason-code", metavar="CODE", help="With --state: only with this reason."),
]
Template = Annotated[
    str, typer.Option("--template", metavar="NAME", help="With --state: only of this template.")
]
InDoubt = Annotated[
    bool, typer.Option("--in-doubt", help="Include those a call may have sent.", metavar="")
]
Expired = Annotated[
    bool, typer.Option("--expired", help="Include those past their time.", metavar="")
]
NewId = Annotated[bool, typer.Option("--new-id", help="Second copies.", metavar="")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--rate", min=0.01, metavar="N", help="Most a second.", show_default="resend.rate_per_s"
    ),
]
Job = Annotated[
    str, typer.Option("--job", metavar="NAME", help="A name; the same twice is one job.")
]
Preview = Annotated[
    str, typer.Option("--preview", metavar="SIGNATURE", help="As `resend jobs show` prints it.")
]
Count = Annotated[
    int, typer.Option("--count", metavar="N", help="The number that would be sent, typed again.")
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Kept with the job.", show_default=False)
]
Author = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=MOST_ROWS, metavar="N", help="N at most.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
