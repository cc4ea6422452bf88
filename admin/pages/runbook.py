"""`/runbook/RULE`: the section of docs/runbook.md about an alert, for somebody who has only the console."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from litestar import get
from litestar.params import FromPath

from admin.access import Role, needs
from admin.web.errors import Missing
from admin.web.given import GivenView
from admin.web.prose import blocks_of, section_of
from admin.web.view import HOME, Page

_PLACES: Final = (HOME / "runbook.md", HOME.parent / "docs" / "runbook.md")
"""In a wheel, and in the repository."""


@get("/runbook/{rule:str}", opt=needs(Role.VIEWER), sync_to_thread=False)
def runbook(view: GivenView, rule: FromPath[str]) -> Page:
    """The section. Raises Missing."""
    section = section_of(runbook_text(), rule)
    if section is None:
        raise Missing(rule)
    return view.page("runbook/section.html", rule=rule, blocks=list(blocks_of(section)))


@cache
def runbook_text() -> str:
    """Returns docs/runbook.md; empty where it was not packed."""
    found: list[Path] = [place for place in _PLACES if place.is_file()]
    return found[0].read_text(encoding="utf-8") if found else ""


HANDLERS = [runbook]
