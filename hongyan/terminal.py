"""Output of commands: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import re
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
_origins: dict[str, str] = {}
"""Written by `settings_of`."""
_KEY = re.compile(r"[a-z_]+(?:\.[^\s:]+)?(?=: )")
"""A setting at the beginning of a problem, as `database.url`."""


class Options(NamedTuple):
    """Options given before the command."""

    config: Path | None


def settings_of(context: typer.Context, *, quiet: bool = True) -> Settings:
    """Returns the settings of this call. Sets up logging; `quiet` keeps it to warnings."""
    import structlog

    from backends import logs
    from backends.settings import load

    global _serves, _origins
    options: Options = context.find_root().obj
    settings = load(options.config)
    logs.configure(settings.log, quiet=quiet)
    _serves, _origins = not quiet, settings.origins
    if settings.allow_literal_secrets and not quiet:
        log = structlog.get_logger(__name__)
        log.warning("literal_secrets_allowed", key="allow_literal_secrets")
    return settings


def placed(text: str) -> str:
    """Returns the problems, one a line, with the file and line that gave the setting each begins with."""
    from backends.settings_reader import origin_of

    lines = []
    for line in text.split("\n"):
        key = _KEY.match(line)
        origin = origin_of(_origins, key[0]) if key else ""
        lines.append(f"{origin}: {line}" if origin else line)
    return "\n".join(lines)


def serves() -> bool:
    """Whether this command serves (worker, recovery, receipts) and so reports bugs to its log."""
    return _serves


@cache
def out() -> Console:
    """Returns standard output. Without a terminal it has no colours and cuts nothing. A text is printed as
    it is, since most of them are others': `markup=True` and Text are for styles of ours. Characters that a
    terminal obeys are shown instead."""
    from hongyan.safe_console import SafeConsole

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return SafeConsole(highlight=False, markup=False, emoji=False, width=width)


@cache
def err() -> Console:
    """Returns standard error, for progress, remarks and errors. Texts are printed as `out` does."""
    from hongyan.safe_console import SafeConsole

    return SafeConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Prints one JSON value to standard output."""
    import msgspec

    print(json.dumps(msgspec.to_builtins(value), ensure_ascii=False))


def complain(text: str) -> None:
    """Prints one sentence a line to standard error. An empty text prints nothing."""
    from rich.text import Text

    for line in filter(None, text.split("\n")):
        err().print(Text.assemble(("error: ", "bold red"), line))


def explained(text: str, *examples: str) -> str:
    """Returns a command's help: its purpose, then examples, one a line."""
    shown = "\n".join(f"  {example}" for example in examples)
    return f"{text}\n\n\b\nExamples:\n{shown}"
