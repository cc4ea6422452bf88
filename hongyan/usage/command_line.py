"""The shape of the command line: groups of commands, old spellings of options, one sentence for misuse."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

PANELS: Final = {
    "Try": ("demo", "dev", "simulator", "bench"),
    "Send": ("send", "campaign", "trace", "recall", "id", "schema"),
    "Run": (
        "worker",
        "recovery",
        "receipts",
        "relay",
        "lookback",
        "gateway",
        "keys",
        "console",
        "spark",
        "db",
        "topics",
    ),
    "Operate": (
        "status",
        "doctor",
        "deliveries",
        "resend",
        "lost",
        "dead",
        "outbox",
        "alerts",
        "lanes",
        "workers",
    ),
    "Policy and accounts": ("policy", "templates", "accounts"),
    "Configuration": ("config", "completion"),
}
"""Commands by the task of the person who types them. A command that is missing here comes last."""
OLD_OPTIONS: Final = {"biz": "biz-id", "lanes": "lane", "row-reason": "reason-code"}
"""Options that had another name. The old one still works everywhere, and no help shows it."""
_MISUSE: Final = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""The base of the errors that the library raises for a wrong command line, wherever it keeps it."""
_COMPLETES: Final = "_HONGYAN_COMPLETE"
"""Set by the shell that asks for completions."""
WITH_VALUE: Final = ("-c", "--config")
"""Options of the program whose value is a word of its own."""
_HELP_SHOWN: Final = "NoArgsIsHelpError"
_POSSIBLE: Final = re.compile(r" \(Possible options: ([^()]+)\)")


class PanelGroup(TyperGroup):
    """The program: lists its commands by PANELS."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Returns the commands in the order of the help."""
        names = super().list_commands(ctx)
        order = [name for group in PANELS.values() for name in group]
        known = [name for name in order if name in names]
        return known + [name for name in names if name not in order]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command, placed in its panel; None without one."""
        command = super().get_command(ctx, cmd_name)
        panel = next((title for title, some in PANELS.items() if cmd_name in some), None)
        if isinstance(command, TyperCommand | TyperGroup) and panel is not None:
            command.rich_help_panel = panel
        return command


def part_of(app: typer.Typer, words: Sequence[str]) -> typer.Typer:
    """Returns the program with only the command that the words name: to make all takes a quarter of a start
    (decision 285). Returns the whole program if they name none, and for completions."""
    name = _first_name(words)
    if _COMPLETES in os.environ or not name:
        return app
    part = copy.copy(app)
    part.registered_commands = [one for one in app.registered_commands if name == name_of(one)]
    part.registered_groups = [
        one
        for one in app.registered_groups
        if one.typer_instance is not None and name == one.typer_instance.info.name
    ]
    return part if part.registered_commands or part.registered_groups else app


def name_of(command: CommandInfo) -> str:
    """Returns the name by which the shell calls the command."""
    return str(command.name or getattr(command.callback, "__name__", ""))


def _first_name(words: Sequence[str]) -> str:
    """Returns the first word that is no option and no option's value; empty without one."""
    return next(free_words(words), "")


def free_words(words: Sequence[str]) -> Iterator[str]:
    """Yields the words that are no option, and no value of an option of the program."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in WITH_VALUE:
            yield word
        before = word


def current_name(name: str) -> str:
    """Returns the option's name of today. The library asks for every option and unknown command."""
    return OLD_OPTIONS.get(name, name)


def misuse(exc: BaseException, program: Callable[[], Any]) -> tuple[str, int] | None:
    """Returns the sentence and the exit code of a wrong command line; the sentence is empty if the help
    was shown in its place. Returns None for another error."""
    if isinstance(exc, typer.Abort):
        return "", 1
    if not isinstance(exc, _MISUSE):
        return None
    error: Any = exc
    code: int = getattr(exc, "exit_code", 2)
    if type(exc).__name__ == _HELP_SHOWN:
        return "", code
    text = " ".join(error.format_message().split()).rstrip(".")
    text = _POSSIBLE.sub(r"; did you mean \1?", text).replace(". Did you mean", "; did you mean")
    text = text.replace(". Choose from:", "; choose from").replace("Value error, ", "")
    return f"{text[:1].lower()}{text[1:]} (see `{_named(program(), sys.argv[1:])} --help`)", code


def _named(program: Any, words: Sequence[str]) -> str:
    """Returns the command that the words name. An error knows it only if it came after parsing."""
    path = ["hongyan"]
    for word in free_words(words):
        found = getattr(program, "commands", {}).get(word)
        if found is not None:
            path.append(word)
            program = found
    return " ".join(path)
