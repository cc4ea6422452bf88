"""The runbook's section of each alert, as text: from docs/runbook.md, which a wheel carries."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from admin.web.view import HOME

FILES: Final = (HOME / "runbook.md", HOME.parent / "docs" / "runbook.md")
"""In a wheel, and in the repository."""
_HEADING: Final = "### "


def section(rule: str) -> str:
    """Returns the section of a rule; empty if there is none, or if the docs are not installed."""
    return _sections().get(rule, "")


@cache
def _sections() -> dict[str, str]:
    there: list[Path] = [file for file in FILES if file.is_file()]
    if not there:
        return {}
    whole = there[0].read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in whole.splitlines():
        if line.startswith(_HEADING):
            lines = found.setdefault(line[len(_HEADING) :].strip(), [])
        elif line.startswith("## "):
            lines = None
        elif lines is not None:
            lines.append(line)
    return {rule: "\n".join(lines).strip() for rule, lines in found.items()}
