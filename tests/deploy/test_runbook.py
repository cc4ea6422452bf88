"""docs/runbook.md has a section for each alert, with commands that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from deploy.local.layout import REPOSITORY
from hongyan.cli import app
from sending.alerts.notifier import LASTING, RULES, runbook
from tests.deploy.watching import alerts

PAGE = REPOSITORY / "docs" / "runbook.md"
PARTS = ("**Means.** ", "**Look** ", "**Type**", "**Clears.** ")


def sections() -> dict[str, str]:
    """Returns the sections by their title."""
    _, *found = re.split(r"^### ", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {title: text for title, _, text in (one.partition("\n") for one in found)}


def typed() -> Iterator[tuple[str, list[str]]]:
    """Yields the section and the words of each command of ours."""
    for title, text in sections().items():
        for line in re.findall(r"^\$ (.*)$", text, flags=re.MULTILINE):
            words = shlex.split(line)
            if words[0] == "hongyan":
                yield title, words[1:]


def test_each_alert_has_a_section_and_no_section_is_left_over() -> None:
    assert set(sections()) == {*RULES, *alerts()}


@pytest.mark.parametrize("part", PARTS)
def test_each_section_has_all_parts(part: str) -> None:
    for title, text in sections().items():
        assert f"\n{part}" in f"\n{text}", f"{title}: {part}"
        assert "```console\n$ " in text, f"{title}: commands to type"


def test_an_event_is_not_said_to_end_with_its_cause() -> None:
    for rule in RULES:
        clears = sections()[rule].partition("**Clears.** ")[2]
        assert clears.startswith("It is an event") == (rule not in LASTING), rule


def test_an_alert_names_its_section() -> None:
    assert runbook("parked") == "docs/runbook.md#parked"


def test_the_commands_exist_with_these_options() -> None:
    program: Any = typer.main.get_command(app)
    count = 0
    for title, words in typed():
        command, rest = program, words
        while rest and rest[0] in getattr(command, "commands", ()):
            command, rest = command.commands[rest[0]], rest[1:]
        assert not isinstance(command, TyperGroup), f"{title}: there is no command {words}"
        known = {
            name for option in command.params for name in (*option.opts, *option.secondary_opts)
        }
        unknown = {word for word in rest if word.startswith("--")} - known - {"--help"}
        assert not unknown, f"{title}: {words}"
        count += 1
    assert count > 50
