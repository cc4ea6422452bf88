"""How commands speak: results to standard output, everything else to standard error."""

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
    """The options that stand before the command."""

    config: Path | None


def settings_of(context: typer.Context, *, quiet: bool = True) -> Settings:
    """The settings this call runs with; sets up logging, which `quiet` keeps to warnings."""
    from backends import logs
    from backends.settings import load

    global _serves
    options: Options = context.find_root().obj
    settings = load(options.config)
    logs.configure(settings.log, quiet=quiet)
    _serves = not quiet
    return settings


def serves() -> bool:
    """Whether this is a process that serves, whose log is read by others than who started it."""
    return _serves


@cache
def out() -> Console:
    """Standard output. Without a terminal there are no colours, and nothing is cut."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(highlight=False, width=width)


@cache
def err() -> Console:
    """Standard error: progress, remarks, errors."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON value on standard output, for programs."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def complain(text: str) -> None:
    """One sentence on standard error."""
    from rich.text import Text

    err().print(Text.assemble(("error: ", "bold red"), text))


def explained(text: str, *examples: str) -> str:
    """A command's help: what it does, then examples, one a line."""
    shown = "\n".join(f"  {example}" for example in examples)
    return f"{text}\n\n\b\nExamples:\n{shown}"
