"""`hongyan simulator`: the provider of simulator/, which reads its own flags."""

from __future__ import annotations

import typer

_THEIRS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "simulator",
        help="Play a provider, as badly as asked to.",
        context_settings=_THEIRS,
        add_help_option=False,
    )(simulator)


def simulator(context: typer.Context) -> None:
    """Hand the rest of the command line on."""
    from simulator.cli import main

    raise typer.Exit(main(context.args))
