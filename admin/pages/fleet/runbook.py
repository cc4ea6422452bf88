"""The runbook's section of each alert, as text; docs/runbook.md beside the packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parents[3] / "docs" / "runbook.md"
_HEADING: Final = "### "


def section(rule: str) -> str:
    """Returns the section of a rule; empty if there is none, or if the docs are not installed."""
    return _sections().get(rule, "")


@cache
def _sections() -> dict[str, str]:
    try:
        whole = FILE.read_text(encoding="utf-8")
    except OSError:
        return {}
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
