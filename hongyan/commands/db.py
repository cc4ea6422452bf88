"""`hongyan db`."""

from __future__ import annotations

from typing import Annotated

import typer

from hongyan.terminal import explained, out, print_json, settings_of

app = typer.Typer(name="db", help="The ledger's database.", no_args_is_help=True)

UPGRADE = explained(
    "Bring the database's schema to this version. Safe to call twice, and by many at once.",
    "hongyan db upgrade",
    "HONGYAN_DATABASE__URL=postgresql://hongyan@db/hongyan hongyan db upgrade --json",
)


@app.callback()
def _group() -> None:
    """Keeps `upgrade` a subcommand while it is the only one."""


@app.command("upgrade", help=UPGRADE)
def upgrade(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    """See UPGRADE."""
    settings = settings_of(context)
    from backends.sql import masked
    from idempotency.opening import upgrade as bring_up

    before, now = bring_up(settings)
    if as_json:
        print_json({"before": before, "now": now, "changed": before != now})
    elif before == now:
        out().print(f"{masked(settings.database.url)} is at version {now} already")
    else:
        out().print(f"{masked(settings.database.url)}: version {before or 'none'} → {now}")
