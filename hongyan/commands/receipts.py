"""`hongyan receipts`."""

from __future__ import annotations

from typing import Annotated

import typer

from hongyan.serving import serving
from hongyan.terminal import explained

HELP = explained(
    "Take in providers' receipts for sent deliveries, until SIGTERM or Ctrl-C.",
    "hongyan receipts",
    "hongyan receipts --listen 127.0.0.1:9470      behind a proxy that speaks TLS",
    "HONGYAN_RECEIPTS__ACCOUNTS__TWILIO__AUTH_TOKEN=… hongyan receipts",
)


def receipts(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address that providers, or the proxy before them, reach; port 0: any free one. "
            "Default: receipts.listen of hongyan.toml.",
            show_default=False,
        ),
    ] = "",
) -> None:
    with serving(context, "receipts") as (settings, stop):
        from backends.interpreter import tune_interpreter
        from receipts.process import run_receipts

        tune_interpreter()
        raise typer.Exit(run_receipts(settings, stop, listen))
