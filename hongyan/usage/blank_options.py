"""Options with a blank value, as of a shell's variable that is not set. They are refused before the command
runs: `resend --lane "$LANE"` would act on every lane."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from hongyan.errors import WrongUsage
from hongyan.usage.command_line import current_name, free_words

MAY_BE_BLANK: Final = ("--author", "--reason", "--separator", "--subject", "--text")
"""Texts of a person, which select nothing. A reason has sentences of its own; a blank may separate."""
_OPTIONAL: Final = "["
"""The metavar of an option whose value may be left out begins so."""


def refuse_blank_options(program: Any, words: Sequence[str]) -> None:
    """Raises WrongUsage for the first option on the command line whose value is blank."""
    known = _options_with_values(program, words)
    for word, after in pairwise([*words, "--"]):
        if word == "--":
            return
        name, equals, value = word.partition("=")
        named = f"--{current_name(name[2:])}" if name.startswith("--") else name
        if named in known and not (value if equals else after).strip():
            raise WrongUsage(f"{name} is blank: give it a value, or leave it out")


def _options_with_values(program: Any, words: Sequence[str]) -> set[str]:
    """Returns the names of the options of the command that the words name, and of the groups around it."""
    params = [*program.params]
    for word in free_words(words):
        found = getattr(program, "commands", {}).get(word)
        if found is not None:
            params += found.params
            program = found
    return {
        name
        for one in params
        for name in getattr(one, "opts", ())
        if name.startswith("-")
        and not one.is_flag
        and not (one.metavar or "").startswith(_OPTIONAL)
        and (name not in MAY_BE_BLANK or one.hidden)
    }
