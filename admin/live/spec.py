"""The description of a board, as a page module gives it to the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from admin.access import Person, Role
from admin.parts import ConsoleParts


def _whole(value: Any, _person: Person) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class BoardSpec:
    """One board: what it reads, and the template of its part of the page."""

    name: str
    every_s: float
    reader: Callable[[ConsoleParts], Callable[[], Any]]
    """Returns the function that reads the value. It may raise LedgerError; a value is never changed."""
    template: str
    """Written with `board` (its BoardValue) and `value` (what `shown` returns); sent at each change."""
    role: Role = Role.VIEWER
    shown: Callable[[Any, Person], Any] = _whole
    """Returns the part of a value that a person may see."""
    shares_text: bool = False
    """Whether the text depends on the value, the person's roles and language alone, and so is written once
    for all who have the same: a form's token would make it depend on more."""
