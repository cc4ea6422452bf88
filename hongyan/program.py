"""The entry of the installed program `hongyan`."""

from __future__ import annotations

from backends.interpreter import collect_seldom


def main() -> None:
    """Runs the command line. What it imports is there to the end, so that garbage is looked for seldom: a
    worker's modules are imported in two thirds of the time (docs/decisions/299)."""
    collect_seldom()
    from hongyan import cli

    cli.main()
