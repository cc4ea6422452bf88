"""Output of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import typer
    from rich.console import Console

    from backends.settings import Settings

DONE, PROBLEMS, USAGE = 0, 1, 2
"""Exit codes of every command."""


_PIPE_WIDTH = 200
_serves = False
"""Written by `settings_of`."""


class Options(NamedTuple):
    """Options given before the command."""

    config: Path | None


def settings_of(context: typer.Context, *, quiet: bool = True) -> Settings:
    """Returns the settings of this call. Sets up logging; `quiet` keeps it to warnings."""
    from backends import logs
    from backends.settings import load

    global _serves
    options: Options = context.find_root().obj
    settings = load(options.config)
    logs.configure(settings.log, quiet=quiet)
    _serves = not quiet
    return settings


def serves() -> bool:
    """Whether this command serves (worker, recovery, receipts) and so reports bugs to its log."""
    return _serves


@cache
def out() -> Console:
    """Returns standard output. Without a terminal it has no colours and cuts nothing."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, width=width)


@cache
def err() -> Console:
    """Returns standard error, for progress, remarks and errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints one JSON value to standard output."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def complain(text: str) -> None:
    """Prints one sentence to standard error."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), text))


def explained(text: str, *examples: str) -> str:
    """Returns a command's help: its purpose, then examples, one a line."""
    shown = "\n".join(f"  {example}" for example in examples)
    return f"{text}\n\n\b\nExamples:\n{shown}"
