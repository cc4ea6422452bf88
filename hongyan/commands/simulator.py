"""`hongyan simulator`. The package simulator/ reads the flags."""

from __future__ import annotations

import typer

_THEIRS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "simulator",
        help="Simulate a provider and its faults.",
        context_settings=_THEIRS,
        add_help_option=False,
    )(simulator)


def simulator(context: typer.Context) -> None:
    """Passes the rest of the command line on."""
    from simulator.cli import main

    raise typer.Exit(main(context.args))
