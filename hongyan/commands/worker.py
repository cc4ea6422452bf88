"""`hongyan worker`."""

from __future__ import annotations

from typing import Annotated

import typer

from hongyan.serving import serving
from hongyan.terminal import explained

HELP = explained(
    "Send notifications from Kafka, until SIGTERM or Ctrl-C; then drain and end.",
    "hongyan worker",
    "hongyan worker --lane 'sms.*,email.notice'",
    "HONGYAN_WORKER__ID=worker-1 hongyan -c /etc/hongyan.toml worker",
)


def worker(
    context: typer.Context,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            "--lane",
            "-l",
            metavar="PATTERN",
            help="Lanes to serve, as CHANNEL.KIND with * and ?; repeat it, or separate by commas. "
            "Default: worker.lanes of hongyan.toml.",
            show_default=False,
        ),
    ] = None,
) -> None:
    with serving(context, "worker") as (settings, stop):
        from hongyan.configuration import require_sound
        from hongyan.usage.extras import require_telemetry

        require_sound(settings)
        require_telemetry(settings)
        from dispatcher.process import leave, run_worker
        from hongyan.flags import patterns

        leave(run_worker(settings, stop, patterns(lanes)))
