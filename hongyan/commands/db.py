"""`hongyan db`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.errors import WrongUsage
from hongyan.terminal import PROBLEMS, complain, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.archive.contract import Archive
    from idempotency.sql_ledger import SqlLedger

app = typer.Typer(name="db", help="The ledger's database.", no_args_is_help=True)

UPGRADE = explained(
    "Bring the database's schema to this version. Safe to call twice, and by many at once.",
    "hongyan db upgrade",
    "HONGYAN_DATABASE__URL=postgresql://hongyan@db/hongyan hongyan db upgrade --json",
)
ARCHIVE = explained(
    "Move past days out of the ledger: into the schema `archive` on PostgreSQL, into compressed files "
    "on SQLite. A day with an open row stays, whole; exits 1 if one does.",
    "hongyan db archive --dry-run",
    "hongyan db archive",
    "hongyan db archive --before 30 --json",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]


@app.command("upgrade", help=UPGRADE)
def upgrade(context: typer.Context, as_json: _JSON = False) -> None:
    settings = settings_of(context)
    from backends.sql.database import masked
    from idempotency.sql_ledger import upgrade as bring_up

    before, now = bring_up(settings)
    if as_json:
        print_json({"before": before, "now": now, "changed": before != now})
    elif before == now:
        out().print(f"{masked(settings.database.url)} is at version {now} already")
    else:
        out().print(f"{masked(settings.database.url)}: version {before or 'none'} → {now}")


@app.command("archive", help=ARCHIVE)
def archive(
    context: typer.Context,
    before: Annotated[
        int | None,
        typer.Option(
            "--before",
            metavar="DAYS",
            help="Days older than so many; default: the policy's retention_days.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave; change nothing.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from contextlib import closing

    from idempotency.sql_ledger import open_ledger

    with closing(open_ledger(settings)) as ledger:
        keep_days = _keep_days(settings, ledger, before)
        way_out = ledger.archive(settings.recovery.archive_dir, settings.base)
        finished = 0 if dry_run else way_out.finish()
        days = [_one(way_out, day, dry_run=dry_run) for day in way_out.days(keep_days)]
    if as_json:
        print_json({"keep_days": keep_days, "dry_run": dry_run, "days": days})
    else:
        _show(days, keep_days, finished)
    if any(day["stays"] for day in days):
        raise typer.Exit(PROBLEMS)


def _keep_days(settings: Settings, ledger: SqlLedger, asked: int | None) -> int:
    from backends.kafka.retention import topic_days
    from idempotency.archive.contract import least_days
    from policy.active import in_force
    from policy.versions import Versions

    policy = in_force(settings, Versions(ledger.database)).policy
    kept = topic_days(settings)
    keep_days, least = policy.retention_days if asked is None else asked, least_days(policy, kept)
    if keep_days < least:
        name = "retention_days" if asked is None else "--before"
        raise WrongUsage(
            f"{name} {keep_days} is less than {least} days: Kafka keeps topics for up to {kept} days, and"
            " a record that is read again must find its row or be past its TTL"
        )
    return keep_days


def _one(way_out: Archive, day: int, *, dry_run: bool) -> dict[str, Any]:
    """Archives one day, unless it is open or `dry_run`. Returns its report for JSON."""
    from idempotency.archive.contract import DayOpen

    found = way_out.survey(day)
    report: dict[str, Any] = {
        "day": found.date,
        "rows": found.rows,
        "open": found.open,
        "parked": found.parked,
        "where": None,
        "stays": found.open > 0,
    }
    if dry_run or found.open:
        return report
    try:
        return report | {"where": way_out.archive(day).where}
    except DayOpen:
        return report | {"stays": True}


def _show(days: list[dict[str, Any]], keep_days: int, finished: int) -> None:
    if finished:
        out().print(f"an earlier run was completed: {finished:,} names removed")
    for day in days:
        parked = f", {day['parked']:,} of them parked" if day["parked"] else ""
        where = f" → {day['where']}" if day["where"] else ""
        out().print(f"{day['day']}  {day['rows']:,} deliveries{parked}{where}")
        if day["stays"]:
            complain(f"{day['day']} stays: {day['open'] or 'some'} of its deliveries are open")
    if not days:
        out().print(f"nothing is older than {keep_days} days")
