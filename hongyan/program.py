"""The entry of the installed program `hongyan`."""

from __future__ import annotations

from backends.interpreter import collect_seldom


def main() -> None:
    """Runs the command line. Its modules stay to the end, so Python looks for garbage seldom while it
    imports them (docs/decisions/299)."""
    collect_seldom()
    from hongyan import cli

    cli.main()
