"""`hongyan gateway`."""

from __future__ import annotations

from typing import Annotated

import typer

from hongyan.serving import serving
from hongyan.terminal import explained

HELP = explained(
    "Take notifications over HTTP, until SIGTERM or Ctrl-C. It answers 202 once Kafka has a notification. "
    "`hongyan keys new` makes the keys of its clients.",
    "hongyan gateway",
    "hongyan gateway --listen 127.0.0.1:9484      behind a proxy that speaks TLS",
)


def gateway(
    context: typer.Context,
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Address that clients, or the proxy before them, reach; port 0: any free one. "
            "Default: gateway.listen of hongyan.toml.",
            show_default=False,
        ),
    ] = "",
) -> None:
    with serving(context, "gateway") as (settings, stop):
        from backends.interpreter import tune_interpreter
        from producer.gateway.process import run_gateway

        tune_interpreter()
        raise typer.Exit(run_gateway(settings, stop, listen))
