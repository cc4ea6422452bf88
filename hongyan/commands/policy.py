"""`hongyan policy`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hongyan.commands import policy_versions
from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from message.vocabulary import Lane
    from policy.problems import Problem
    from policy.schema import LanePolicy, Policy, RetryPolicy

app = typer.Typer(name="policy", help="The policy of each lane.", no_args_is_help=True)

CHECK = explained(
    "Report every problem of the policy with file, line and key. Exits 1 if there is one. Valid values "
    "that deserve a look, such as limits of SMTP below the protocol's own, are warnings.",
    "hongyan policy check",
    "hongyan policy check draft.toml --json",
)
SHOW = explained(
    "Show the policy of every lane as a worker would follow it: the newest applied version if there is "
    "one, else the file. Values that differ from the built-in defaults are highlighted.",
    "hongyan policy show",
    "hongyan policy show --lane 'sms.*' --json",
)
_FILE = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Instead of policy.file of hongyan.toml.", show_default=False
    ),
]
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]

app.command("apply", help=policy_versions.APPLY)(policy_versions.apply)
app.command("history", help=policy_versions.HISTORY)(policy_versions.history)


@app.command("check", help=CHECK)
def check(context: typer.Context, file: _FILE = None, as_json: _JSON = False) -> None:
    settings = settings_of(context)
    from channels.accounts.lane_accounts import check_accounts, strangers
    from policy.loading import PolicyError, cautions_in, file_of, load
    from policy.outcome_checks import check_outcomes

    path = file or file_of(settings)
    policy: Policy | None
    try:
        read = load(path, settings.accounts)
        warnings = cautions_in(path)
        problems = []
        if path is not None:
            problems = check_accounts(settings, read, path) + check_outcomes(settings, read, path)
            warnings += strangers(settings, read, path)
        policy = None if problems else read
    except PolicyError as exc:
        policy, problems, warnings = None, exc.problems, []
    version = policy.version if policy else None
    if as_json:
        print_json({"version": version, "problems": problems, "warnings": warnings})
    elif policy is not None:
        _tell(warnings, "warning")
        where = path or "no policy file, so the defaults hold"
        out().print("ok", style="green", end=" ")
        out().print(f"{where}  ({version})")
    else:
        _tell(problems)
        err().print(
            f"{len(problems)} problem{'s' if problems[1:] else ''}; no worker starts with it"
        )
    raise typer.Exit(PROBLEMS if problems else DONE)


def _tell(problems: Sequence[Problem], label: str = "") -> None:
    for problem in problems:
        if label:
            out().print(label, style="yellow", end="  ")
        out().print(f"{problem.file}:{problem.line}", style="bold", end="  ")
        out().print(f"{problem.key}: {problem.text}")


@app.command("show", help=SHOW)
def show(
    context: typer.Context,
    file: _FILE = None,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            "--lane", "-l", metavar="PATTERN", help="Only these lanes.", show_default="all"
        ),
    ] = None,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from hongyan.flags import patterns
    from hongyan.policy_source import policy_in_force
    from message.vocabulary import lanes_matching
    from policy.loading import load

    policy = load(file, settings.accounts) if file is not None else policy_in_force(settings)
    chosen = lanes_matching(patterns(lanes) or ["*"])
    if as_json:
        print_json({"version": policy.version, "lanes": {x.name: policy.of(x) for x in chosen}})
    else:
        _table(policy, chosen)


def _table(policy: Policy, lanes: tuple[Lane, ...]) -> None:
    from rich.text import Text

    from policy.schema import DEFAULTS_BY_KIND

    table = listing(_TITLES, right=_NUMBERS, whole=_TITLES[:-1])
    for lane in lanes:
        mine, usual = _cells(lane, policy.of(lane)), _cells(lane, DEFAULTS_BY_KIND[lane.kind])
        pairs = zip(mine, usual, strict=True)
        shown = (own if own == default else Text(own, "bold yellow") for own, default in pairs)
        table.add_row(lane.name, *shown)
    out().print(table)
    out().print(
        f"\nversion {policy.version}; THREADS: calls at once + waiting; CALL: over HTTP · over SMTP;"
        " RETRY: calls in all (made again at once) × first wait; TTL: usual ≤ greatest",
        style="dim",
    )


_TITLES = ("LANE", "GUARANTEE", "THREADS", "IN FLIGHT", "CALL", "RETRY", "TTL", "ORDER", "ACCOUNTS")
_NUMBERS = ("THREADS", "IN FLIGHT", "CALL", "RETRY", "TTL")


def _cells(lane: Lane, policy: LanePolicy) -> list[str]:
    p = policy
    by_mail = f" · {_span(p.smtp.total_ms)}" if lane.channel == "email" else ""
    return [
        p.guarantee.value,
        f"{p.threads}+{p.queue_size}",
        f"{p.max_in_flight:,}",
        _span(p.timeout_ms) + by_mail,
        _retry(p.retry),
        f"{_span(p.ttl_ms)} ≤ {_span(p.max_ttl_ms)}",
        p.ordering.value,
        _accounts(p),
    ]


def _retry(retry: RetryPolicy) -> str:
    """Returns `10 × 5 s`, or `10 (2) × 1 s` if two of the calls are made again at once."""
    at_once = f" ({retry.immediate})" if retry.immediate else ""
    return f"{retry.attempts}{at_once} × {_span(retry.base_ms)}"


def _accounts(policy: LanePolicy) -> str:
    """Returns `aliyun 3, tencent 1` if the policy has weights, else the names alone."""
    if isinstance(policy.accounts, dict):
        return ", ".join(f"{name} {weight}" for name, weight in policy.accounts.items())
    return ", ".join(policy.accounts) or "all"


_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def _span(ms: int) -> str:
    """Returns `1 d` for 86,400,000: the largest unit that leaves no fraction."""
    for size, unit in _UNITS:
        if ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
