"""`hongyan completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from hongyan.terminal import explained

HELP = explained(
    "Print the script that completes commands and options with the Tab key in your shell.",
    'source <(hongyan completion bash)      now; add `eval "$(hongyan completion bash)"` to ~/.bashrc',
    "hongyan completion zsh > ~/.zfunc/_hongyan",
    "hongyan completion fish > ~/.config/fish/completions/hongyan.fish",
)


class Shell(StrEnum):
    """Shells that are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    from typer.completion import shell_complete

    program = context.find_root().command
    done = shell_complete(program, {}, "hongyan", "_HONGYAN_COMPLETE", f"source_{shell.value}")
    raise typer.Exit(done)
