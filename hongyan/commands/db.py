"""`hongyan db`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from backends.settings import SettingsError
from hongyan.errors import WrongUsage
from hongyan.terminal import PROBLEMS, complain, err, explained, out, print_json, settings_of
from hongyan.usage.durations import days

if TYPE_CHECKING:
    from backends.settings import Settings
    from idempotency.archive.contract import Archive
    from idempotency.sql_ledger import SqlLedger

app = typer.Typer(name="db", help="The ledger's database.", no_args_is_help=True)

UPGRADE = explained(
    "Bring the database's schema to this version; name the database and both versions. Safe to call "
    "twice, and by many at once.",
    "hongyan db upgrade",
    "HONGYAN_DATABASE__URL=postgresql://hongyan@db/hongyan hongyan db upgrade --json",
)
VERSION = explained(
    "Show the version of the database's schema; change nothing. Exits 1 if this program needs another.",
    "hongyan db version",
    "hongyan db version --json",
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
    from hongyan.configuration import DATABASE, require_sound
    from idempotency.sql_ledger import upgrade as bring_up

    require_sound(settings, DATABASE)
    version = _version(settings)
    shown = f"{version.database} ({version.origin})"
    if not as_json and version.now != version.wanted:
        err().print(
            f"{shown}: version {version.now or 'none'}, going to {version.wanted}", markup=False
        )
    built: list[str] = []

    def tell(step: str) -> None:
        built.append(step)
        if not as_json:
            err().print(f"index {step}", markup=False)

    before, now = bring_up(settings, tell)
    if as_json:
        changed = before != now or bool(built)
        shown_version = {**version._asdict(), "indexes_missing": []}
        print_json(
            {**shown_version, "before": before, "now": now, "changed": changed, "indexes": built}
        )
    elif before == now:
        out().print(f"{shown} is at version {now} already", markup=False)
    else:
        out().print(f"{shown}: version {before or 'none'} → {now}", markup=False)


@app.command("version", help=VERSION)
def version(context: typer.Context, as_json: _JSON = False) -> None:
    found = _version(settings_of(context))
    good = found.now == found.wanted and not found.indexes_missing
    if as_json:
        print_json({**found._asdict(), "current": good})
    else:
        out().print(
            f"{found.database} ({found.origin}): version {found.now or 'none'}", markup=False
        )
    if not good:
        complain(_behind(found))
        raise typer.Exit(PROBLEMS)


class SchemaVersion(NamedTuple):
    """A database, and the versions of its schema."""

    database: str
    """Without its password."""
    origin: str
    """The place that gives the database: a variable, file and line, or `default`."""
    now: str
    """Empty: it has no schema."""
    wanted: str
    """The version of this program."""
    indexes_missing: Sequence[str] = ()
    """Indexes that `hongyan db upgrade` has still to make; searches are slower until then."""


def _version(settings: Settings) -> SchemaVersion:
    """Reads the versions; makes no missing SQLite file. Raises SettingsError, SqlError."""
    from backends.sql import online_indexes, schema
    from backends.sql.database import Database, database_url, masked

    try:
        url = database_url(settings.database.url, settings.base)
    except ValueError as exc:
        raise SettingsError(f"database.url: {exc}") from exc
    now, lacking = "", list[str]()
    is_file = url.get_backend_name() == "sqlite"
    if is_file:
        url = url.set(database=str(Path(url.database or "").absolute()))
    if not is_file or Path(url.database or "").is_file():
        with closing(Database(url, pool_size=1)) as database:
            now = schema.current(database)
            lacking = online_indexes.missing(database) if now >= schema.head() else []
    origin = settings.origins.get("database.url", "default")
    return SchemaVersion(masked(url), origin, now, schema.head(), lacking)


def _behind(found: SchemaVersion) -> str:
    if not found.now or found.now < found.wanted:
        return f"this program needs version {found.wanted}: run `hongyan db upgrade`"
    if found.indexes_missing:
        return f"indexes are missing ({', '.join(found.indexes_missing)}): run `hongyan db upgrade`"
    return f"this program knows versions up to {found.wanted}: run one that is as new as the schema"


@app.command("archive", help=ARCHIVE)
def archive(
    context: typer.Context,
    before: Annotated[
        int | None,
        typer.Option(
            "--before",
            parser=days,
            metavar="DAYS",
            help="Days older than so many (30, 30d); default: the policy's retention_days.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would leave; change nothing.", metavar="")
    ] = False,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
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
    from policy.topic_retention import topic_keep_days
    from policy.versions import Versions

    policy = in_force(settings, Versions(ledger.database)).policy
    kept = topic_days(settings, topic_keep_days(policy))
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
