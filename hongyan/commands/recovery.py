"""`hongyan recovery`."""

from __future__ import annotations

from typing import Annotated

import typer

from hongyan.serving import serving
from hongyan.terminal import explained

HELP = explained(
    "Send due deliveries again and resolve those in doubt, until SIGTERM or Ctrl-C.",
    "hongyan recovery",
    "hongyan recovery --embedded",
    "hongyan recovery --lane 'sms.*,email.notice'",
)


def recovery(
    context: typer.Context,
    lanes: Annotated[
        list[str] | None,
        typer.Option(
            "--lane",
            "-l",
            metavar="PATTERN",
            help="Lanes to recover, as CHANNEL.KIND with * and ?; repeat it, or separate by commas. "
            "Default: recovery.lanes of hongyan.toml.",
            show_default=False,
        ),
    ] = None,
    embedded: Annotated[
        bool,
        typer.Option(
            "--embedded",
            help="Schedule by the built-in loop, without Celery; the default if redis.url is empty.",
            metavar="",
        ),
    ] = False,
) -> None:
    with serving(context, "recovery") as (settings, stop):
        from hongyan.configuration import require_sound
        from hongyan.usage.extras import require_telemetry

        require_sound(settings)
        require_telemetry(settings)
        from backends.interpreter import tune_interpreter
        from dispatcher.process import leave
        from hongyan.flags import patterns
        from recovery.process import run_recovery

        tune_interpreter()
        leave(run_recovery(settings, stop, patterns(lanes), embedded=embedded))
