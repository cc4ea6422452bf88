"""`hongyan relay`."""

from __future__ import annotations

from typing import Final

import typer

from hongyan.serving import serving
from hongyan.terminal import explained

HELP: Final = explained(
    "Publish what a business wrote into its outbox, until SIGTERM or Ctrl-C. Start as many as you like: "
    "each row is one relay's at a time. The database is the business's own: PostgreSQL, MySQL or MariaDB, "
    "or SQLite.",
    "HONGYAN_RELAY__OUTBOX_URL=postgresql://orders@db/orders hongyan relay",
    "HONGYAN_RELAY__OUTBOX_URL=mysql://orders@db/orders HONGYAN_RELAY__TABLE=mail_outbox hongyan relay",
)


def relay(context: typer.Context) -> None:
    with serving(context, "relay") as (settings, stop):
        from backends.interpreter import tune_interpreter
        from producer.relay.process import run_relay

        tune_interpreter()
        raise typer.Exit(run_relay(settings, stop))
