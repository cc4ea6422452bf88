"""The options of `hongyan resend`."""

from typing import Annotated, Final

import typer

GROUP: Final = "jobs"
"""First word of `hongyan resend jobs`."""


def completed(incomplete: str) -> list[str]:
    """Returns the only word of an ID's place that a shell can know."""
    return [GROUP] if GROUP.startswith(incomplete) else []


Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Delivery keys or message ids.", autocompletion=completed),
]
Biz = Annotated[str | None, typer.Option("--biz-id", metavar="ID", help="A business id.")]
State = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="All in this state: PARKED, REJECTED or EXPIRED; other orders take others. Repeat it.",
    ),
]
Lane = Annotated[
    list[str] | None, typer.Option("--lane", metavar="PATTERN", help="With --state: these lanes.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="AGO",
        help="With --state: in that state since 30m, 1h30m or 2d ago, or later.",
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
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="With --state: N at most.")
]
InDoubt = Annotated[
    bool,
    typer.Option(
        "--in-doubt", help="With --state: include those a call may have sent.", metavar=""
    ),
]
NewId = Annotated[bool, typer.Option("--new-id", help="A second copy.", metavar="")]
Job = Annotated[
    str, typer.Option("--job", metavar="NAME", help="With --new-id: go on with that job.")
]
Arrived = Annotated[
    bool, typer.Option("--arrived", help="In doubt: it arrived; somebody saw it.", metavar="")
]
NotArrived = Annotated[
    bool, typer.Option("--not-arrived", help="In doubt: it surely was not sent.", metavar="")
]
AcceptRisk = Annotated[
    bool,
    typer.Option("--accept-risk", help="In doubt: send it, maybe a second time.", metavar=""),
]
Ask = Annotated[
    bool,
    typer.Option("--ask", help="In doubt: have its provider asked now.", metavar=""),
]
Discard = Annotated[bool, typer.Option("--discard", help="End it unsent, for good.", metavar="")]
Sent = Annotated[str, typer.Option("--sent", metavar="KEY", help="Short for KEY --arrived.")]
Reason = Annotated[
    str,
    typer.Option("--reason", metavar="TEXT", help="The reason, for the trace and the ledger."),
]
Author = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who decides.", show_default="user@host")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing.", metavar="")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
