"""The shape of `hongyan resend`: a command with arguments of its own, and the group `resend jobs`."""

from __future__ import annotations

from typing import Any

from typer.main import get_group

from hongyan.commands.resend_jobs import app
from hongyan.flags import OptionalValues
from hongyan.resend.options import GROUP


class ResendCommand(OptionalValues):
    """Reads `jobs` as a group of commands if it is the first word, and any other word as an ID. A message
    of that id is named by `hongyan resend -- jobs`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = {GROUP: get_group(app)}
        """As groups have them: the sentence for a wrong command line names commands by it."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Returns the context of the group, or of the command itself."""
        if args[:1] == [GROUP]:
            return self.commands[GROUP].make_context(
                f"{info_name} {GROUP}", args[1:], parent=parent, **extra
            )
        return super().make_context(info_name, args, parent=parent, **extra)
